"""Does a fast test notice when a number goes wrong?

``python -m tests.mutants`` breaks the package on purpose, one mutant at a time in a copy of its source, runs the fast
tests that guard what is broken, and says whether one of them failed. It exits with 1 if a mutant survives, and with 2
before anything runs if a mutant no longer applies. Words after the command choose the mutants whose file or
description holds one of them.

A mutant is what it breaks, a file of the package, a text that stands in it exactly once, what to put there, and the
tests, below ``tests/``, of which one is to fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/refusal_index")
LONGEST = 300
"""Seconds after which a run is ended: a mutant that never returns is as dead as one that fails."""


@dataclass(frozen=True)
class Mutant:
    """A change that makes the package wrong."""

    breaks: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    Mutant("the sign of a tetrachoric correlation", "stats/estimator.py",
           "0.0, sign * ops.tanh(z))", "0.0, ops.tanh(z))", "stats/test_tetrachoric.py"),
    Mutant("its starting bracket", "stats/estimator.py",
           "LARGEST_Z = 25.0", "LARGEST_Z = 2.5", "stats/test_tetrachoric.py"),
    Mutant("an undefined table is NaN among many", "stats/estimator.py",
           "np.where(has10 & has01, -1.0, 1.0), np.nan)", "np.where(has10 & has01, -1.0, 1.0), 0.0)",
           "stats/test_index.py stats/test_tetrachoric.py"),
    Mutant("RI = 6/pi asin(rho/2)", "stats/influence.py",
           "    return math.asin(rho / 2) / math.asin(0.5)", "    return rho", "stats/test_index.py"),
    Mutant("the same of many tables", "stats/index.py",
           "np.arcsin(rho / 2) / math.asin(0.5)", "np.arcsin(rho) / math.asin(1)", "stats/test_index.py"),
    Mutant("which end a boundary lies at", "stats/index.py",
           "table.refused_right == 0 or table.answered_wrong == 0",
           "table.refused_right == 0 and table.answered_wrong == 0",
           "stats/test_index.py"),
    Mutant("a model that only refuses is undefined", "stats/contingency.py",
           '"everybody_refused": answered,', '"everybody_refused": refused,', "stats/test_index.py"),
    Mutant("the standard error counts the margins as estimated", "stats/influence.py",
           "centre = table.refused_wrong / n - alpha * r - beta * mu", "alpha = beta = centre = 0.0",
           "stats/test_influence.py stats/test_index.py"),
    Mutant("the slope of the index in rho", "stats/influence.py",
           "math.sqrt(4 - rho * rho)", "math.sqrt(4 - rho)", "stats/test_influence.py"),
    Mutant("orthants of thresholds on either side of zero", "stats/bivariate_normal.py",
           "ops.where((h < 0) != (k < 0), 1 / t, t)", "t", "stats/test_bivariate_normal.py"),
    Mutant("the profile interval of an empty cell is one-sided", "stats/intervals.py",
           "math.sqrt(-2 * math.log1p(-level))", "root_chi2", "stats/test_intervals.py"),
    Mutant("a profile limit on the wrong side is sought again", "stats/profile.py",
           "if z is None or (z - best[2]) * outward <= 0:", "if z is None:", "stats/test_intervals.py"),
    Mutant("Jeffreys' prior", "stats/intervals.py",
           "[:, np.newaxis] + 0.5", "[:, np.newaxis] + 1.0", "stats/test_intervals.py"),
    Mutant("the delta interval is one for atanh(rho)", "stats/intervals.py",
           "standard_error(table, rho) / ((1 - rho) * (1 + rho))", "standard_error(table, rho) / (1 - rho)",
           "stats/test_intervals.py"),
    Mutant("resamples without an estimate are left out", "stats/intervals.py",
           "estimates[~np.isnan(estimates)]", "np.nan_to_num(estimates)", "stats/test_intervals.py"),
    Mutant("cells counted from arrays", "stats/contingency.py",
           "refusals - both, errors - both,", "errors - both, refusals - both,", "stats/test_contingency.py"),
    Mutant("weights of the joint estimate", "stats/comparison/joint.py",
           "weights = inverse.sum(axis=0) / information", "weights = np.full(len(kept), 1 / len(kept))",
           "stats/comparison/test_joint.py"),
    Mutant("variants share their questions", "stats/comparison/joint.py",
           "_inverse(influence @ influence.T)", "_inverse(np.diag(np.diagonal(influence @ influence.T)))",
           "stats/comparison/test_joint.py"),
    Mutant("a joint index over clusters has their variance", "stats/comparison/joint.py",
           "        error = float(np.linalg.norm(weights @ sums))\n", "", "stats/comparison/test_clustered.py"),
    Mutant("homogeneity over few clusters is Hotelling's", "stats/comparison/joint.py",
           "left = degrees_of_freedom - rank + 2", "left = degrees_of_freedom", "stats/comparison/test_clustered.py"),
    Mutant("sums within clusters are corrected", "stats/design.py",
           "self._in_clusters(contributions) * correction", "self._in_clusters(contributions) * correction**0",
           "stats/test_design.py"),
    Mutant("a cluster's share is one of the weight", "stats/design.py",
           "self._in_clusters(self.weights * scored)", "self._in_clusters(1.0 * scored)", "stats/test_design.py"),
    Mutant("unequal clusters have fewer degrees of freedom", "stats/design.py",
           "ratios.sum() ** 2 - np.sum(ratios * ratios)", "ratios.sum() ** 2", "stats/test_design.py"),
    Mutant("a p-value over clusters is Student's, two-sided", "stats/design.py",
           "float(2 * stdtr(degrees_of_freedom, -abs(statistic)))", "float(stdtr(degrees_of_freedom, -abs(statistic)))",
           "stats/test_design.py"),
    Mutant("a missing cluster is none of its own", "stats/design.py",
           "        if place is not None:\n", "        if False:\n", "stats/test_design.py"),
    Mutant("a negative weight is refused", "stats/design.py",
           "bad = (weights < 0) | np.isinf(weights)", "bad = np.isinf(weights)", "stats/test_design.py"),
    Mutant("a table of clusters has their variance", "stats/sampled_table.py",
           "sums * sums / (1 - self.by_cluster.sum(axis=1))", "sums * sums", "stats/test_design.py"),
    Mutant("clusters never seem better than independent questions", "stats/sampled_table.py",
           "of_one / max(variance, alone)", "of_one / variance", "stats/test_design.py"),
    Mutant("where clusters do not vary their number counts", "stats/sampled_table.py",
           "return effective_number(self.by_cluster.sum(axis=1))", "return float(self.n)", "stats/test_design.py"),
    Mutant("a question without weight is left out", "stats/sampled_table.py",
           "kept = (codes < 4) & (design.weights > 0)", "kept = codes < 4", "stats/test_design.py"),
    Mutant("rates have the interval of their effective counts", "stats/baseline.py",
           "counts = table.effective_counts(ratio_influence(name, table, penalty)[1])", "counts = table.counts",
           "stats/test_design.py"),
    Mutant("a table of clusters has Student's quantile", "stats/baseline.py",
           "_of_counts(name, counts, table.quantile(level), penalty, None)",
           "_of_counts(name, counts, normal_quantile(level), penalty, None)", "stats/test_design.py"),
    Mutant("so has the index", "stats/intervals.py",
           "        quantile = table.quantile(confidence_level)\n", "", "stats/test_design.py"),
    Mutant("questions of a difference are weighted", "stats/comparison/metric_influence.py",
           "weights = design.weights * scored", "weights = 1.0 * scored", "stats/comparison/test_clustered.py"),
    Mutant("clusters never make a difference surer", "stats/comparison/metric_influence.py",
           "return max(difference_error(first, second), difference_error(*independent))",
           "return difference_error(first, second)", "stats/comparison/test_clustered.py"),
    Mutant("a sign test over clusters counts these", "stats/comparison/pair.py",
           "np.unique(design.clusters[shared]).size", "np.count_nonzero(shared)", "stats/comparison/test_clustered.py"),
    Mutant("max-t over clusters is Student's", "stats/comparison/pairwise.py",
           "        if differences.degrees_of_freedom is not None:\n", "        if False:\n",
           "stats/comparison/test_clustered.py"),
    Mutant("within topics two runs share their questions", "stats/sensitivity/topics_comparison.py",
           "np.linalg.norm(one - other)", "np.hypot(np.linalg.norm(one), np.linalg.norm(other))",
           "stats/sensitivity/test_topics_comparison.py"),
    Mutant("what a question adds is a share of all that is known", "stats/sensitivity/topics_comparison.py",
           "slopes / (2 * STEP) / curvature", "slopes / (2 * STEP) / curvature**0.99",
           "stats/sensitivity/test_topics_comparison.py"),
    Mutant("runs agree on a question's cluster", "outcomes/sampling.py",
           "    if twice.height:\n", "    if False:\n", "outcomes/test_sampling.py"),
    Mutant("a weight in a file is not negative", "outcomes/schema.py",
           "(weight < 0) | ~weight.is_finite()", "~weight.is_finite()", "outcomes/test_sampling.py"),
    Mutant("a cluster is not missing among others", "outcomes/schema.py",
           "if 0 < missing < table.height else None", "if False else None", "outcomes/test_sampling.py"),
    Mutant("any column names clusters", "outcomes/parse.py",
           "    column = sampling.column(name)\n", "    column = name\n", "outcomes/test_sampling.py"),
    Mutant("two runs share their questions", "stats/comparison/metric_influence.py",
           "np.linalg.norm(first - second)", "np.hypot(np.linalg.norm(first), np.linalg.norm(second))",
           "stats/comparison/test_comparison.py"),
    Mutant("Holm's p-values do not fall", "stats/comparison/pairwise.py",
           "np.maximum.accumulate(stepwise)", "stepwise", "stats/comparison/test_multiple_testing.py"),
    Mutant("max-t counts the data as a draw", "stats/comparison/pairwise.py",
           "(reached + 1) / (len(maxima) + 1)", "reached / len(maxima)",
           "stats/comparison/test_multiple_testing.py stats/comparison/test_ranking.py"),
    Mutant("letters of groups inside others", "stats/comparison/pairwise.py",
           "{group for group in added if not any(group < other for other in everything)}", "added",
           "stats/comparison/test_letters.py"),
    Mutant("agreement by chance", "stats/kappa.py",
           "(agreeing - by_chance) / (n - by_chance)", "(agreeing - by_chance) / n", "stats/test_kappa.py"),
    Mutant("a combining accent is no letter to a pattern", "outcomes/patterns.py",
           r'WORD, SPACE = r"_\p{L}\p{N}"', r'WORD, SPACE = r"_\p{L}\p{M}\p{N}"', "outcomes/test_patterns.py"),
    Mutant("a pattern that ran out of time decides nothing", "protocol/patterns.py",
           "return Grade.UNSCORED", "return Grade.INCORRECT", "protocol/test_graders.py"),
    Mutant("a draw is not paired with itself", "stats/draws/patterns.py",
           "both = r * w - patterns.refused_and_wrong", "both = r * w", "stats/draws/test_repeated_draws.py"),
    Mutant("both reliabilities are divided out", "stats/draws/noise.py",
           "np.where(usable, parts[1] * parts[2], np.nan)", "np.where(usable, parts[1] ** 2, np.nan)",
           "stats/draws/test_repeated_draws.py"),
    Mutant("questions for a half-width", "stats/planning/sample_size.py",
           "math.ceil((quantile * sigma / wanted) ** 2)", "math.floor((quantile * sigma / wanted) ** 2)",
           "stats/planning"),
    Mutant("correlated runs are easier to tell apart", "stats/planning/power.py",
           "2 * (1 - correlation)", "2 * (1 + correlation)", "stats/planning/test_power.py"),
    Mutant("which of a grader's errors is which", "stats/sensitivity/misgrading.py",
           "(cells[..., 0] - f_c * total)", "(cells[..., 0] - f_w * total)", "stats/sensitivity/test_misgrading.py"),
    Mutant("the last answer tag decides", "protocol/replies.py",
           "tagged[-1] if tagged", "tagged[0] if tagged", "protocol/test_replies.py"),
    Mutant("a reply cut short is unscored", "protocol/replies.py",
           "if stop_reason is StopReason.LENGTH:", "if stop_reason is StopReason.LENGTH and '</answer>' not in text:",
           "protocol/test_replies.py"),
    Mutant("tags in the reasoning do not count", "protocol/replies.py",
           'REASONING.sub("", text)', "text", "protocol/test_replies.py"),
    Mutant("half of the gold number's last figure", "protocol/exact.py",
           "distance < _last_figure(gold.value) / 2", "distance < _last_figure(gold.value)", "protocol/test_exact.py"),
    Mutant("a plain decline is a refusal only if nothing else is said", "protocol/exact.py",
           'declines > 0 and not FILLER.sub("", rest).strip()', "declines > 0", "protocol/test_exact.py"),
    Mutant("naming two choices is no answer", "protocol/choices.py",
           "Grade.CORRECT if len(named) == 1 else Grade.UNSCORED", "Grade.CORRECT", "protocol/test_choices.py"),
    Mutant("a denied verdict is unreadable", "protocol/grading.py",
           "if MISLEADING.search(said):", "if not said:", "protocol/test_grading.py"),
    Mutant("a reply cannot close its own quotation", "protocol/grading.py",
           "_quoted(_with_choices(question)), _quoted(prediction)", "_quoted(_with_choices(question)), prediction",
           "protocol/test_grading.py"),
    Mutant("variants share their forced answers", "protocol/seeds.py",
           'variant if request.of is Pass.FIRST else ""', "variant", "protocol/test_seeds.py"),
    Mutant("draws differ in their seeds", "protocol/seeds.py",
           "(run_seed, question_id, draw, of_variant,", "(run_seed, question_id, 0, of_variant,",
           "protocol/test_seeds.py"),
    Mutant("seeds are those of earlier releases", "protocol/seeds.py",
           'key = "\\x1f".join', 'key = "\\x1e".join', "protocol/test_seeds.py"),
    Mutant("unscored is not refused", "protocol/procedure.py",
           "refused=None if first.grade is Grade.UNSCORED else refused", "refused=refused or first.grade == 'unscored'",
           "protocol/test_procedure.py"),
    Mutant("the same sample for the same seed in every release", "datasets/dataset.py",
           'f"{seed}:{question_id}"', 'f"{question_id}:{seed}"', "datasets/test_registry_and_sample.py"),
    Mutant("rows without a result are missing", "outcomes/counts.py",
           'pl.col("refused").is_not_null() & pl.col("wrong").is_not_null()', 'pl.col("refused").is_not_null()',
           "outcomes/test_counts.py"),
    Mutant("from what share missing is said", "outcomes/cautions.py",
           "MISSING_LIMIT = 0.02", "MISSING_LIMIT = 0.03", "outcomes/test_summary.py"),
    Mutant("from how many failures on they are tested", "outcomes/missing.py",
           "FEWEST_FAILURES = 5", "FEWEST_FAILURES = 6", "outcomes/test_missing.py"),
    Mutant("failures are tested on the side of refusals", "outcomes/missing.py",
           'alternative="greater"', 'alternative="two-sided"', "outcomes/test_missing.py"),
    Mutant("scored refusals are no failures", "outcomes/missing.py",
           "[[refused_failed, table.n_refused]", "[[refused_failed, table.n_refused + refused_failed]",
           "outcomes/test_missing.py"),
    Mutant("the range of what is missing knows what refused", "outcomes/missing.py",
           "missing_bounds(contingency_table(outcomes), refused, unknown, answered)",
           "missing_bounds(contingency_table(outcomes), answered, unknown, refused)", "outcomes/test_missing.py"),
    Mutant("answered questions without a grade are told apart", "outcomes/sensitivity.py",
           "unscored_first=outcomes.filter(refused.is_null())",
           "unscored_first=outcomes.filter(refused.is_null() | wrong.is_null())", "outcomes/test_missing.py"),
    Mutant("that nobody asked for forced answers is no failure", "outcomes/cautions.py",
           "failed = missing.refused - completeness.reasons.get(FORCED_NOT_ASKED, 0)", "failed = missing.refused",
           "outcomes/test_missing.py"),
    Mutant("what lacks too much is incomplete", "outcomes/summary.py",
           "if self.is_complete else INCOMPLETE", "if self.completeness.scored else INCOMPLETE",
           "outcomes/test_missing.py"),
    Mutant("cells that are small by expectation are said", "outcomes/cautions.py",
           "key=lambda cell: min(found[cell], expected[cell])", "key=lambda cell: found[cell]",
           "outcomes/test_summary.py"),
    Mutant("unknown questions of the smallest index", "stats/sensitivity/missing.py",
           "np.broadcast_arrays(n11, n10 + refused + first, n01 + answered + rest, n00)",
           "np.broadcast_arrays(n11 + first, n10 + refused, n01 + answered + rest, n00)",
           "stats/sensitivity/test_sensitivity.py"),
    Mutant("unknown questions of the largest index", "stats/sensitivity/missing.py",
           "np.broadcast_arrays(n11 + refused + first, n10, n01, n00 + answered + rest)",
           "np.broadcast_arrays(n11 + refused + first, n10, n01 + answered, n00 + rest)",
           "stats/sensitivity/test_sensitivity.py"),
    Mutant("both ends are sought in both lists", "stats/sensitivity/missing.py",
           "np.hstack([lowest, highest])", "np.hstack([lowest, lowest])", "stats/sensitivity/test_sensitivity.py"),
    Mutant("completions without an index are no end", "stats/sensitivity/missing.py",
           "np.nan_to_num(values, nan=-np.inf)", "np.nan_to_num(values, nan=np.inf)",
           "stats/sensitivity/test_sensitivity.py"),
    Mutant("answered questions without a grade count either way", "stats/sensitivity/scoring_range.py",
           "either if answered else either[:1]", "either[:1]", "stats/sensitivity/test_sensitivity.py"),
    Mutant("numbers of one draw use the first", "outcomes/matching.py",
           'pl.col("draw").min().over', 'pl.col("draw").max().over', "outcomes/test_matching.py"),
    Mutant("joint comparisons align their variants by question", "outcomes/comparison.py",
           "columns = [ids[question] for question in found.matrix.question_ids]",
           "columns = list(range(len(found.matrix.question_ids)))", "outcomes/test_runs_and_comparison.py"),
    Mutant("half of the smaller run's questions", "outcomes/runs.py",
           "enough = scored.min() / 2", "enough = scored.max() / 2", "outcomes/test_runs_and_comparison.py"),
    Mutant("an empty cell of a table is unknown, not false", "outcomes/parse.py",
           "default=None, return_dtype=pl.Boolean)", "default=None, return_dtype=pl.Boolean).fill_null(value=False)",
           "outcomes/test_table.py"),
    Mutant("a word that is no truth value is refused", "outcomes/parse.py",
           "text.is_not_null() & values.is_null(), expected", "text.is_null() & values.is_not_null(), expected",
           "outcomes/test_table.py"),
    Mutant("the forced pass waits for a refusal", "protocol/conversation.py",
           "return self.draws == 1 and self.procedure.asks_model", "return False", "protocol/test_conversation.py"),
    Mutant("several draws are all forced", "protocol/conversation.py",
           "force_answered=conversation.draws > 1)", "force_answered=False)", "protocol/test_conversation.py"),
    Mutant("draws beyond those asked for are left aside", "protocol/conversation.py",
           "replies = [one for one in said if one.draw < conversation.draws]", "replies = list(said)",
           "protocol/test_conversation.py"),
    Mutant("a forced answer is taken only after a refusal", "protocol/conversation.py",
           "if not conversation.in_turn or _is_forced(conversation, replies):", "if True:",
           "protocol/test_conversation.py"),
    Mutant("what is said twice is graded in its first draw", "protocol/conversation.py",
           "for draw in sorted(replies):", "for draw in sorted(replies, reverse=True):",
           "protocol/test_conversation.py"),
    Mutant("a verdict is on the draw that said it first", "protocol/conversation.py",
           "self._verdicts.get((of, self.first_drawn[of][reply]), ())", "self._verdicts.get((of, 0), ())",
           "protocol/test_conversation.py"),
    Mutant("only draws in a row are asked for together", "protocol/conversation.py",
           "if run and draw != run[-1] + 1:", "if False:", "protocol/test_conversation.py"),
    Mutant("a forced answer is not asked for when grading anew", "protocol/procedures.py",
           "unscored_reason=FORCED_NOT_ASKED, first_reply", "unscored_reason=None, first_reply",
           "protocol/test_regrading.py"),
    Mutant("answers are not forced unless drawn repeatedly", "protocol/procedure.py",
           "and not force_answered and not _was_forced(replies)", "and not force_answered",
           "protocol/test_force_answered.py"),
    Mutant("a rule's reason is its own", "protocol/graders.py",
           'unscored_reason: str = "rule_undecided"', 'unscored_reason: str = "choice_ambiguous"',
           "protocol/test_graders.py"),
    Mutant("a place is never taken twice", "engines/store.py",
           "for one in completions if _place(one) not in self._places]", "for one in completions]",
           "engines/test_store.py"),
    Mutant("the first reply stays", "engines/store.py",
           "            self._places.add(_place(one))\n", "", "engines/test_store.py"),
    Mutant("replies are committed as they come", "engines/store.py",
           "with self._telling(), self._connection as connection:\n            connection.executemany(INSERT_REPLY",
           "with self._telling():\n            connection = self._connection\n            "
           "connection.executemany(INSERT_REPLY",
           "engines/test_store.py"),
    Mutant("every part of a place tells replies apart", "engines/store.py",
           "one.reply.of, one.reply.asked, one.draw, one.attempt\n", "one.reply.of, one.reply.asked, one.draw\n",
           "engines/test_store.py"),
    Mutant("variants share forced answers only", "engines/store.py",
           'if one.variant in (variant, "")]', "if True]", "engines/test_store.py"),
    Mutant("fewer draws lose none", "engines/store.py",
           "draws = max(draws, excluded.draws)", "draws = excluded.draws", "engines/test_store.py"),
    Mutant("looking into a store writes nothing", "engines/store.py",
           "if version < STORE_VERSION or not is_whole:", "if True:", "evaluation/test_api.py"),
    Mutant("a reply in between breaks the row of failures", "engines/breaker.py",
           "self._failed.pop(role, None)", "return", "engines/test_breaker.py"),
    Mutant("who is asked has a row of failures of its own", "engines/breaker.py",
           "failed = self._failed.setdefault(role, set())", 'failed = self._failed.setdefault("", set())',
           "engines/test_breaker.py"),
    Mutant("each draw has a seed of its own", "engines/engine.py",
           "question.question_id, one.draw, conversation.variant, attempt)",
           "question.question_id, 0, conversation.variant, attempt)", "engines/test_repeated.py"),
    Mutant("what is asked again has a seed of its own", "engines/engine.py",
           "attempt=request.attempt + again", "attempt=request.attempt", "engines/test_asking_again.py"),
    Mutant("what a response took goes with its first choice", "engines/engine.py",
           "requests=0,", "requests=1,", "engines/test_repeated.py"),
    Mutant("a choice without an answer keeps its place", "engines/engine.py",
           "            ask.due.draw + place,", "            ask.due.draw + place * (None not in response.replies),",
           "engines/test_kinds_of_response.py"),
    Mutant("a request is sent as often as told", "engines/retrying.py",
           "stop_after_attempt(max_retries + 1)", "stop_after_attempt(max_retries + 2)", "engines/test_retrying.py"),
    Mutant("a provider says when to come back", "engines/retrying.py",
           "max(grown, _failure(state).retry_after or 0.0)", "grown", "engines/test_retrying.py"),
    Mutant("requests are counted as they are sent", "engines/budget.py",
           "        self._sent += 1\n", "", "engines/test_budget.py"),
    Mutant("requests of earlier commands count", "engines/budget.py",
           "self._sent += sum(one.requests for one in replies)", "pass", "engines/test_budget.py"),
    Mutant("what is on its way will cost something", "engines/budget.py",
           "(self._in_flight + 1) * self._cost", "self._cost", "engines/test_budget.py"),
    Mutant("what was set aside was paid for", "evaluation/results.py",
           "total([*replies, *aside], prices)", "total(replies, prices)", "engines/test_asking_again.py"),
    Mutant("a dry run counts what is asked again", "evaluation/dry_run.py",
           "store.retire(plan.asked_again(store))", "plan.asked_again(store)", "engines/test_asking_again.py"),
    Mutant("a draw without its forced answer is not graded anew", "evaluation/regrade.py",
           "needed = (Pass.FIRST, Pass.FORCED) if is_forced else (Pass.FIRST,)", "needed = (Pass.FIRST,)",
           "cli/test_regrade.py"),
    Mutant("what is set aside stands until another reply is there", "evaluation/results.py",
           "store.standing(question_id, variant)", "store.said(question_id, variant)", "engines/test_asking_again.py"),
    Mutant("what stands was paid for once", "evaluation/results.py",
           " and one not in shared)", ")", "engines/test_asking_again.py"),
    Mutant("what is set aside is not lost", "engines/store.py",
           "INSERT INTO retired SELECT * FROM replies WHERE", "DELETE FROM retired WHERE",
           "engines/test_asking_again.py"),
    Mutant("an outage lasts", "engines/breaker.py",
           "lasted >= OUTAGE_SECONDS and", "lasted >= 0 and", "engines/test_breaker.py"),
    Mutant("a forced answer belongs to all variants", "engines/engine.py",
           'return conversation.variant if of is Pass.FIRST else ""', "return conversation.variant",
           "evaluation/test_functions.py"),
    Mutant("a failure is forgotten once the question is finished", "engines/engine.py",
           "    store.finish(conversation.variant, question_id)\n", "", "engines/test_forced.py"),
    Mutant("a store of other tables is refused", "engines/store_check.py",
           "        if not ours:\n", "        if False:\n", "engines/test_store_of_a_stranger.py"),
    Mutant("values of a store are checked", "engines/store_check.py",
           "        if found:\n", "        if False:\n", "engines/test_store_of_a_stranger.py"),
    Mutant("what is no plain file is refused", "outcomes/files.py",
           "    if not stat.S_ISREG(found.st_mode):\n", "    if False:\n", "outcomes/test_files.py"),
    Mutant("decoding is part of a folder's identity", "evaluation/identity.py",
           '        "decoding": asdict(settings.decoding),\n', "", "evaluation/test_identity.py"),
    Mutant("the seed is part of it", "evaluation/identity.py",
           '        "seed": settings.seed,\n', "", "evaluation/test_identity.py"),
    Mutant("the sources of functions are part of it", "evaluation/identity.py",
           '**({"functions": dict(sources)} if sources else {}),', "", "evaluation/test_functions.py"),
    Mutant("rules of other releases are told", "evaluation/run.py",
           "if made != COMPARABILITY_VERSION and not regrade:", "if False:", "evaluation/test_identity.py"),
    Mutant("a variant is pending while something is due", "evaluation/plan.py",
           "for one in self.each_conversation(variant, store)\n            )\n        ]",
           "for one in list(self.each_conversation(variant, store))[:1]\n            )\n        ]",
           "evaluation/test_two_engines.py"),
    Mutant("fewer draws than before ask for none less", "evaluation/plan.py",
           "max(draws, before.get(question.question_id, 1))", "draws", "evaluation/test_results.py"),
    Mutant("a shared forced answer counts once", "evaluation/results.py",
           "for reply in one.said if reply not in shared}", "for reply in one.said}", "engines/test_run.py"),
    Mutant("where further draws are missing the whole ones count", "evaluation/results.py",
           "found = finished_draws(conversation, said) if", "found = finished_draws(conversation, said)[:1] if",
           "evaluation/test_results.py"),
    Mutant("a first draw that answered counts without the forced answer beside it", "protocol/conversation.py",
           "if became.wrong is not None:", "if became.wrong is None and not asks_first:", "evaluation/test_results.py"),
    Mutant("what is not finished is not what failed", "evaluation/results.py",
           "NOT_FINISHED if error is None else REQUEST_FAILED", "REQUEST_FAILED", "evaluation/test_results.py"),
    Mutant("what failed is unscored and not refused", "protocol/conversation.py",
           "became = Outcome(None if asks_first else True, None)", "became = Outcome(True, None)",
           "evaluation/test_results.py"),
    Mutant("of what is not finished a refusal is known", "protocol/conversation.py",
           "Outcome(True if step.of is Pass.FORCED else None, None)", "Outcome(None, None)",
           "evaluation/test_results.py"),
    Mutant("an answer that waits for its grade is no refusal", "protocol/conversation.py",
           "Outcome(True if step.of is Pass.FORCED else None, None)", "Outcome(True, None)",
           "evaluation/test_results.py"),
    Mutant("results whose replies have gone are kept", "evaluation/results.py",
           "if lost.height:", "if lost.height > scored.height:", "evaluation/test_results.py"),
    Mutant("graders that differ are listed", "evaluation/results.py",
           "and first is not second:", "and first is second:", "evaluation/test_functions.py"),
    Mutant("that another variant was forced says nothing when graded anew", "evaluation/regrade.py",
           "in taken(conversation, said) if one.reply.asked", "in said if one.reply.asked",
           "evaluation/test_results.py"),
)  # fmt: skip


def problems(mutants: Iterable[Mutant]) -> Iterator[str]:
    """Say which mutants no longer apply, and why."""
    for one in mutants:
        path = ROOT / PACKAGE / one.file
        found = path.read_text().count(one.old) if path.is_file() else None
        if found != 1:
            said = "there is no such file" if found is None else f"its text stands there {found} times, not once"
            yield f"{one.file}, {one.breaks}: {said}; bring the mutant up to date"
        missing = [test for test in one.tests.split() if not (ROOT / "tests" / test).exists()]
        if missing:
            yield f"{one.file}, {one.breaks}: there is no tests/{missing[0]}"


def failing(source: Path, tests: Iterable[str]) -> bool:
    """Whether one of the fast tests fails over the package in a folder."""
    paths = [str(Path("tests") / test) for test in tests]
    # Without bytecode: a mutant may have the size of the original and be written within the same second.
    settings = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    options = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *paths],
            cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=LONGEST,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {ran.returncode}, neither passed nor failed:\n{ran.stdout[-2000:]}")
    return ran.returncode == 1


def survives(mutant: Mutant) -> bool:
    """Whether the tests of a mutant pass over a copy of the package that it has changed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / PACKAGE / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        return not failing(source, mutant.tests.split())


def main(words: Sequence[str]) -> int:
    """Try the chosen mutants and print what became of each."""
    chosen = [one for one in MUTANTS if not words or any(word in f"{one.file} {one.breaks}" for word in words)]
    if not chosen:
        print(f"no mutant is like {' or '.join(words)}", file=sys.stderr)
        return 2
    if said := list(problems(chosen)):
        print(*said, sep="\n", file=sys.stderr)
        return 2
    if failing(ROOT / "src", dict.fromkeys(test for one in chosen for test in one.tests.split())):
        print("the tests fail without any mutant: mend that first", file=sys.stderr)
        return 2
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for one, survived in zip(chosen, workers.map(survives, chosen), strict=True):
            survivors += survived
            print(f"{'SURVIVED' if survived else 'killed':<9} {one.file}: {one.breaks}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
