"""In what runs differ apart from their outcomes: settings, rules of reading, models that answered, what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refusal_index import stats
from refusal_index.data.rates import contingency_table, first_draws, forced_refusals, never_forced, too_many_missing
from refusal_index.data.run_json import ANSWERED_BY, SENT, refusal_setting
from refusal_index.errors import OutcomeTableError, shortened
from refusal_index.findings.metrics import Statement
from refusal_index.findings.models_asked import distinct_models, key_of_model
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sensitivity import missing_ranges


def differing_settings(runs: Sequence[RunResults]) -> tuple[str, ...]:
    """Return the settings, other than the model, in which runs differ; outcome tables from files are ignored.

    Different questions of one dataset are not a difference: only shared questions are compared.
    """
    recorded = [run for run in runs if run.settings]
    keys = ("dataset", "grader", "prompts", "placement", "decoding", "comparability_version")
    know_what_was_sent = all(run.about.get(SENT) for run in recorded)

    def comparable(run: RunResults, key: str) -> str:
        value = run.settings.get(key)
        if key == "dataset" and isinstance(value, Mapping):
            value = {name: value.get(name) for name in ("name", "sha256")}
        sent = run.about[SENT].get("model") if key == "decoding" and know_what_was_sent else None
        return json.dumps([value, sent], sort_keys=True)

    return tuple(key for key in keys if len({comparable(run, key) for run in recorded}) > 1)


def check_same_reading(runs: Sequence[RunResults]) -> None:
    """Raise OutcomeTableError if replies were read or graded by different rules, of this version or of settings."""
    versions = [(run.label, run.settings.get("comparability_version")) for run in runs if run.settings]
    if len({version for _, version in versions}) > 1:
        listed = "; ".join(f"{label}: {version}" for label, version in versions)
        raise OutcomeTableError(
            "expected runs whose replies were read and graded by one version of the rules, got different ones "
            f"({listed}); grade the older ones again with 'refusal-index score RUN --regrade'"
        )
    rules = [(run.label, refusal_setting(run.settings)) for run in runs if run.settings]
    by_rule = [(label, rule) for label, rule in rules if rule is not None]
    if len({rule for _, rule in by_rule}) > 1:
        listed = "; ".join(f"{label}: {shortened(rule)}" for label, rule in by_rule)
        raise OutcomeTableError(
            f"expected runs whose refusals are recognised in the same way, got different ones ({listed}); grade one "
            "again with 'refusal-index regrade' and the --refusal of the other"
        )


def missing_statements(runs: Sequence[RunResults]) -> Iterator[Statement]:
    """State for each run which questions lack a grade, with the range of RI that this allows, or were refused again."""
    for run in runs:
        tables = {variant: first_draws(rows) for variant, rows in run.tables.items()}
        if any(map(never_forced, tables.values())):
            yield Statement("never_forced", "serious", {"run": run.label})
        missing: list[dict[str, Any]] = [
            {
                "variant": variant,
                "questions": missing_range.questions,
                "asked": tables[variant].height,
                "low": missing_range.low,
                "high": missing_range.high,
            }
            for variant, missing_range in missing_ranges(run.tables).items()
        ]
        many = any(too_many_missing(entry["questions"], entry["asked"]) for entry in missing)
        if missing:
            values = {"run": run.label, "missing": missing, "many": many}
            yield Statement("missing_grades", "serious" if many else "note", values)
        forced = {variant or "all": forced_refusals(rows) for variant, rows in tables.items()}
        again = {
            variant: counted
            for (variant, counted), rows in zip(forced.items(), tables.values(), strict=True)
            if counted.are_many and stats.refusal_index(contingency_table(rows)).status != "undefined"
        }
        if again:
            yield Statement("forced_refusals_of", "serious", {"run": run.label, "variants": again})


def settings_statements(runs: Sequence[RunResults]) -> Iterator[Statement]:
    """State which settings other than the model differ, and whether one model's name stands for different models."""
    yield from model_statements(runs)
    if differing := differing_settings(runs):
        yield Statement("settings_differ", "serious", {"settings": list(differing)})


def model_statements(runs: Sequence[RunResults]) -> Iterator[Statement]:
    """State which runs of one model's name were answered by different models."""
    by_name: dict[str, list[tuple[str, list[str]]]] = {}
    for run in runs:
        answered = (run.about.get(ANSWERED_BY) or {}).get("model")
        if answered and isinstance(asked := run.settings.get("model"), str):
            by_name.setdefault(asked, []).append((run.label, list(answered)))
    for asked, answers in by_name.items():
        every = distinct_models(asked, [name for _, names in answers for name in names])
        keys = {
            frozenset({key_of_model(name) for name in every} & {key_of_model(name) for name in names})
            for _, names in answers
        }
        if len(answers) > 1 and len(every) > 1 and len(keys) > 1:
            runs_shown = [(label, distinct_models(asked, names)) for label, names in answers]
            yield Statement("other_models_answered", "serious", {"asked": asked, "runs": runs_shown})
