"""``refusal-index import``: the results of another evaluation tool as an outcome table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from refusal_index.cli import console
from refusal_index.cli.console import OptionError
from refusal_index.cli.shared_options import Penalty, output


def import_(
    files: list[Path],
    /,
    out: Annotated[Path, output()],
    forced: Path | None = None,
    format_: str | None = None,
    column: list[str] | None = None,
    map_: list[str] | None = None,
    scorer: str | None = None,
    refusal: str | None = None,
    name: str | None = None,
    dataset: str | None = None,
    variants: str | None = None,
    penalty: Penalty = 1.0,
    json: bool = False,
) -> None:
    """Import results of other evaluation tools.

    Writes an outcome table and prints the rates of the first pass; grades are not changed. Refused questions lack their
    forced answers unless the file holds both passes or --forced names a second file; 'refusal-index force' adds them.

    Exit status: 0 done, 2 bad input.

    - `files` FILE: Logs of Inspect, samples of lm-eval, or graded answers (.csv, .jsonl, .json, .parquet).
    - `out` FILE: Outcome table to write: .parquet, .csv or .jsonl.
    - `forced` FILE: File with the forced answers to a single FILE, matched by question.
    - `name`: Name of the model, instead of the one in the files.
    - `dataset`: Name of the dataset, instead of the one in the files.
    - `variants` NAME: Name of the prompt variant, such as normal, instead of the one in the files.
    - `json`: Print the counts as JSON and nothing else.
    """
    from refusal_index.cli.shared_options import columns_of, words_of
    from refusal_index.data.imports import ReadOptions, self_contained, to_outcomes
    from refusal_index.data.imports.first_pass import check_order, with_rows_of_forced
    from refusal_index.data.outcome_table import write_outcomes
    from refusal_index.data.tables import file_format
    from refusal_index.findings.tally import tallies, tally_document
    from refusal_index.render.summary import tally_blocks
    from refusal_index.runs.force import import_file, joined

    file_format(out)  # before anything is read
    if any(out.resolve() == file.resolve() for file in (*files, *([forced] if forced else []))):
        raise OptionError(f"--out: {out} is one of the files to import; choose another name")
    if forced is not None and len(files) > 1:
        raise OptionError(f"--forced: expected a single FILE to match, got {len(files)}")
    options = ReadOptions(columns_of(column or []) or {}, scorer, refusal, name, dataset, words_of(map_ or []))
    read = [one for path in files for one in import_file(path, format_, options).passes]
    if forced is None:
        together = with_rows_of_forced(read)
    else:
        check_order(read, files[0], forced)
        together = joined(read, forced, format_, options)
    passes = [replace(one, variant=variants or one.variant) for one in together]
    table = to_outcomes(self_contained(one) for one in passes)
    try:
        write_outcomes(table, out)
    except OSError as error:
        raise OptionError(f"--out: {out} cannot be written ({error.strerror}); choose another place") from error
    found = tallies(passes, penalty=penalty)
    if json:
        console.document([tally_document(tally) for tally in found])
        return
    console.show(tally_blocks(found))
    console.say()
    asked = sum(tally.to_force for tally in found)
    further = (
        " 'refusal-index force' sends one request for each refused question, and one or two more if a model grades."
    )
    console.prose(f"{out}: {len(table):,} rows.{further if asked else ''}")
