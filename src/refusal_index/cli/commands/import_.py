"""``refusal-index import``: the first pass of somebody else's evaluation as an outcome table."""

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
    variant: str | None = None,
    penalty: Penalty = 1.0,
    json: bool = False,
) -> None:
    """Import first passes that others asked for and graded.

    Writes an outcome table and prints what the first passes say. Refused questions lack their forced answers ('force'
    asks for them) unless the rows hold both passes, or --forced names the other's file. Grades are taken as they are.
    Exit status: 0 done, 2 bad input.

    - `files` FILE: Logs of Inspect, samples of lm-eval, graded answers as .csv, .jsonl, .json or .parquet.
    - `out`: The outcome table to write: .parquet, .csv or .jsonl.
    - `forced`: A file of the same kinds with the forced answers of the only FILE, joined by question.
    - `name`: Name of the model, in place of what the files say.
    - `dataset`: Name of the questions, in place of what the files say.
    - `variant`: Name of the prompt, as in normal, in place of what the files say.
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

    file_format(out)  # a suffix that cannot be written is told before anything is read
    if any(out.resolve() == file.resolve() for file in (*files, *([forced] if forced else []))):
        raise OptionError(f"--out: {out} is one of the files to import and would be lost; choose another name")
    if forced is not None and len(files) > 1:
        raise OptionError(f"--forced: expected one FILE whose forced answers these are, got {len(files)}")
    options = ReadOptions(columns_of(column or []) or {}, scorer, refusal, name, dataset, words_of(map_ or []))
    read = [one for path in files for one in import_file(path, format_, options).passes]
    if forced is None:
        together = with_rows_of_forced(read)
    else:
        check_order(read, files[0], forced)
        together = joined(read, forced, format_, options)
    passes = [replace(one, variant=variant or one.variant) for one in together]
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
        " 'refusal-index force' sends one request for each question that it asks, and one or two more to a model that "
        "grades."
    )
    console.prose(f"{out}: {len(table):,} rows.{further if asked else ''}")
