"""What the paper prints or says, each with the number that follows from its own tables or from theory.

`test_claims.py` holds every claim, and ``docs/make_reproduced.py`` writes them into a page, so the page says nothing
that the tests do not hold. A claim agrees if the recomputed value is the printed one within its rounding; otherwise it
has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import stats as scipy_stats
from scipy.optimize import minimize_scalar

from refusal_index.data.published import PublishedModel, hallucination_rows, paper_rows, published_results
from refusal_index.findings.published import implied_questions
from refusal_index.plugins.studies.stability import expected_winner_entropy, kendall_w, winner_entropy
from refusal_index.protocol import load_prompt_set
from refusal_index.stats import (
    ContingencyTable,
    PlanningScenario,
    attenuated_refusal_index,
    correct_given_attempted,
    correct_rate_at,
    f_score,
    questions_for_cv,
    refusal_index,
    tetrachoric,
    upper_orthant,
    weighted_score,
)
from refusal_index.stats.copulas import COPULA_NAMES, copula_upper_orthant, fit_copula
from tests.paper import printed

Value = float | str | tuple[float, ...] | tuple[str, ...]
ROUNDING = 0.005
"""Half of the last decimal of the paper's numbers."""

ROWS = paper_rows()
MODELS = published_results()["simpleqa"].models


@dataclass(frozen=True)
class Claim:
    """One thing that the paper prints or says."""

    item: str  # label of the table, figure, equation or section in the paper's source
    says: str  # what is claimed, in our words
    printed: Value | None  # None if the paper gives no number
    recompute: Callable[[], Value]
    expected: Value  # what `recompute` returns, from theory or by hand
    how: str  # how it is recomputed
    reason: str = ""  # why the recomputed value is another one; empty if it agrees
    digits: int = 3  # that the page shows
    tolerance: float = ROUNDING  # within which it agrees with the printed one

    @property
    def agrees(self) -> bool:
        """Whether the recomputed value is the printed one."""
        return self.printed is None or is_close(self.expected, self.printed, self.tolerance)


@cache
def value_of(claim: Claim) -> Value:
    """Return the recomputed value of a claim."""
    return claim.recompute()


def is_close(value: Value, other: Value, tolerance: float) -> bool:
    """Whether two values are equal: numbers within a tolerance, texts exactly."""
    first = value if isinstance(value, tuple) else (value,)
    second = other if isinstance(other, tuple) else (other,)
    if len(first) != len(second):
        return False
    return all(
        one == two if isinstance(one, str) or isinstance(two, str) else abs(one - two) <= tolerance + 1e-9
        for one, two in zip(first, second, strict=True)
    )


# --- The estimator


def spearman_of_gaussians(rho: float) -> float:
    """Return the rank correlation of a sample of pairs with Pearson correlation `rho`."""
    pairs = np.random.default_rng(1).multivariate_normal((0, 0), ((1, rho), (rho, 1)), 400_000, method="cholesky")
    return float(scipy_stats.spearmanr(pairs).statistic)


def likeliest_index(refusal_rate: float, error_rate: float, counts: Sequence[float]) -> float:
    """Return the index of the correlation that maximises the multinomial likelihood, as the paper defines it."""
    r = refusal_rate
    mu = error_rate
    thresholds = scipy_stats.norm.isf([r, mu])

    def loss(rho: float) -> float:
        both = float(upper_orthant(*thresholds, rho))
        cells = np.clip([both, r - both, mu - both, 1 - r - mu + both], 1e-12, 1)
        return -float(np.dot(counts, np.log(cells)))

    found = minimize_scalar(loss, bounds=(-0.999, 0.999), method="bounded", options={"xatol": 1e-12})
    return 6 / math.pi * math.asin(found.x / 2)


def index_of_cells(both: float, refusal_rate: float, error_rate: float) -> float:
    """Return the index of a table of shares."""
    r = refusal_rate
    mu = error_rate
    rho = float(tetrachoric(both, r - both, mu - both, 1 - r - mu + both))
    return 6 / math.pi * math.asin(rho / 2)


def index_under_a_t_copula(refusal_rate: float) -> float:
    """Return RI at a refusal rate if dependence is that of a t copula with 4 degrees of freedom, 90% wrong."""
    return index_of_cells(float(copula_upper_orthant(refusal_rate, 0.9, 0.52, "t")), refusal_rate, 0.9)


def index_of_two_sources() -> float:
    """Return RI of two sources mixed 1:1, within each of which refusals are independent of errors.

    One has 30% refused and 60% wrong, the other 70% refused and all wrong.
    """
    sources = ((0.3, 0.6), (0.7, 1.0))
    both = sum(r * mu for r, mu in sources) / 2
    refused = sum(r for r, _ in sources) / 2
    wrong = sum(mu for _, mu in sources) / 2
    return index_of_cells(both, refused, wrong)


EXAMPLE = ContingencyTable(710, 30, 210, 50)
SNIPPET = ContingencyTable(1200, 100, 500, 200)
"""2,000 questions: 10% right in the first pass, 65% refused, 15% right under forced answering."""

DEFINITION = (
    Claim(
        "eq:copula",
        "The rank correlation is 6/pi asin(rho/2); for rho = 0.5:",
        6 / math.pi * math.asin(0.25),
        lambda: spearman_of_gaussians(0.5),
        6 / math.pi * math.asin(0.25),
        "Spearman's correlation of 400,000 simulated pairs",
        digits=2,
    ),
    Claim(
        "eq:ri-estimation",
        "RI maximises the multinomial likelihood; for the table (710, 30, 210, 50):",
        None,
        lambda: (
            likeliest_index(0.74, 0.92, EXAMPLE.counts),
            refusal_index(EXAMPLE).estimate or math.nan,
        ),
        (0.48217, 0.48217),
        "the likelihood maximised by SciPy, and `refusal_index`, which solves P(refused and wrong) = n11/n",
        digits=5,
    ),
    Claim(
        "def:refusal_index",
        "The two-pass estimate is unbiased for the rank correlation of the probabilities: where that is 0.582,",
        (0.582,) * 6,
        lambda: tuple(map(float, attenuated_refusal_index(0.582, *[[0.5, 1, 2, 3, 5, 20]] * 2))),
        (0.1147, 0.2876, 0.4629, 0.5222, 0.5589, 0.5805),
        "`attenuated_refusal_index`: standard deviations of the probits over the questions of 0.5, 1, 2, 3, 5 and 20",
        "A single response per question is a noisy sign of its probability, which pulls RI towards 0 unless the model "
        "is nearly deterministic. Corrected RI removes this with repeated samples.",
    ),
    Claim(
        "fig:ri_implementation_code",
        "The program's first argument, `acc1`, is the accuracy on attempted questions; for 2,000 questions with 1,200 "
        "refused and wrong, 100 refused and right, 500 answered and wrong, 200 answered and right:",
        0.996,
        lambda: refusal_index(SNIPPET).estimate or math.nan,
        0.4798,
        "`refusal_index`",
        "The program divides `acc1` by 1 - r, so it must be the share right of all questions. With the accuracy on "
        "attempted questions (0.286) it maximises a likelihood of impossible counts, at 0.996.",
        digits=4,
    ),
    Claim(
        "fig:ri_implementation_code",
        "... with the accuracy on attempted questions as the text says:",
        None,
        lambda: likeliest_index(0.65, 0.85, (1300, 0, 129, 571)),
        0.9960,
        "the likelihood of the counts that the program makes of it, maximised by SciPy",
        digits=4,
    ),
    Claim(
        "fig:ri_implementation_code",
        "If nobody refused, RI is",
        0.0,
        lambda: refusal_index(ContingencyTable(0, 0, 300, 700)).reason or "",
        "nobody_refused",
        "`refusal_index` of (0, 0, 300, 700)",
        "Without refusals nothing is known about the correlation: RI is undefined and says why.",
    ),
    Claim(
        "fig:ri_implementation_code",
        "If everything is wrong under forced answering, RI is",
        6 / math.pi * math.asin(0.999 / 2),
        lambda: refusal_index(ContingencyTable(300, 0, 700, 0)).reason or "",
        "all_wrong",
        "`refusal_index` of (300, 0, 700, 0)",
        "The same: the program returns the end of its search interval.",
    ),
    Claim(
        "tab:calibration_comparison",
        "RI takes 2N responses; responses per question over the 16 models:",
        (2.0, 2.0),
        lambda: (1 + ROWS["refusal_rate"].min(), 1 + ROWS["refusal_rate"].max()),
        (1.06, 1.93),
        "1 + r, smallest and largest, from the table on SimpleQA",
        "Only refused questions are asked again, so 2N is an upper bound.",
        digits=2,
    ),
)

# --- The table on SimpleQA


def rounding_misfits(name: str, metric: Callable[[float, float], float]) -> tuple[str, ...]:
    """Return the models whose printed metric does not follow from any rates that round to the printed ones.

    The metrics are monotone in both rates, so the ends of the rounding intervals suffice.
    """
    half = ROUNDING + 1e-9
    found = []
    for model, correct, refused, value in ROWS.select("model", "correct_rate", "refusal_rate", name).iter_rows():
        ends = [metric(correct + dc, refused + dr) for dc in (-half, half) for dr in (-half, half)]
        if not min(ends) - half <= value <= max(ends) + half:
            found.append(model)
    return tuple(found)


def largest_error_of_weighted_scores(p: float) -> float:
    """Return the largest distance of a printed weighted score from c - p (1 - r)."""
    return max(
        abs(weighted - float(weighted_score(correct, refused, p=p)))
        for correct, refused, weighted in ROWS.select("correct_rate", "refusal_rate", "weighted_score").iter_rows()
    )


def models_with(condition: Callable[[PublishedModel], bool]) -> tuple[str, ...]:
    return tuple(model.name for model in MODELS if condition(model))


def with_width_changed(model: PublishedModel, by: float) -> PublishedModel:
    """Return a model whose interval of RI is wider at each end."""
    index = model.index
    changed = replace(index, low=(index.low or 0.0) - by, high=(index.high or 0.0) + by)
    return replace(model, metrics={**model.metrics, "refusal_index": changed})


def implied_range(*, narrow: bool) -> tuple[float, float, float]:
    """Return how many intervals imply more (or fewer) than 4,326 questions, and the fewest and most that they imply.

    The ends of an interval are rounded, so that its half width may be off by half of the last decimal.
    """
    chosen = [model for model in MODELS if (implied_questions(model) > 4326) == narrow]
    fewest = min(implied_questions(with_width_changed(model, ROUNDING)) for model in chosen)
    most = max(implied_questions(with_width_changed(model, -ROUNDING)) for model in chosen)
    return len(chosen), fewest, most


SIMPLEQA = (
    Claim(
        "tab:simpleqa_model_comparison",
        "Models in the table:",
        16.0,
        lambda: float(ROWS.height),
        16.0,
        "rows of the table",
        digits=0,
    ),
    Claim(
        "tab:baseline_metrics",
        "Weighted scores are c - p(1 - r) with p = 0.2; largest error of the 16 rows:",
        0.0,
        lambda: largest_error_of_weighted_scores(0.2),
        0.752,
        "`weighted_score` of the printed rates",
        "With p = 1 the largest error is 0.010, which is rounding; p = 0.2 fits none of the rows.",
    ),
    Claim(
        "tab:baseline_metrics",
        "... with p = 1:",
        None,
        lambda: largest_error_of_weighted_scores(1),
        0.010,
        "`weighted_score` of the printed rates",
    ),
    Claim(
        "tab:baseline_metrics",
        "Rows whose weighted score does not follow from the printed rates with p = 0.2:",
        (),
        lambda: float(len(rounding_misfits("weighted_score", lambda c, r: float(weighted_score(c, r, p=0.2))))),
        16.0,
        "rates that round to the printed ones",
        "The printed scores have p = 1.",
        digits=0,
    ),
    Claim(
        "tab:baseline_metrics",
        "F = 2c/(2 - r); rows that do not follow:",
        (),
        lambda: rounding_misfits("f_score", lambda c, r: float(f_score(c, r))),
        ("Qwen3-235B",),
        "rates that round to the printed ones",
        "Its rates give 0.456 to 0.471 and the table has 0.45: the mean over prompts of F is not F of the mean rates, "
        "or an error.",
    ),
    Claim(
        "tab:baseline_metrics",
        "C/A = c/(1 - r); rows that do not follow:",
        (),
        lambda: rounding_misfits("correct_given_attempted", lambda c, r: float(correct_given_attempted(c, r))),
        ("Qwen3-32B",),
        "rates that round to the printed ones",
        "Its rates give 0.077 to 0.111 and the table has 0.12; likewise.",
    ),
    Claim(
        "tab:simpleqa_model_comparison",
        "Intervals contain their estimate; exceptions among RI:",
        (),
        lambda: models_with(lambda model: model.misses_estimate),
        ("Gemma-3-12B",),
        "the printed intervals",
        "It is printed as 0.25 [-0.07, 0.19].",
    ),
    Claim(
        "tab:simpleqa_model_comparison",
        "Intervals of RI come from the evaluated questions, at most 4,326. Models whose interval implies fewer, and "
        "the fewest and the most that rounding allows:",
        None,
        lambda: implied_range(narrow=False),
        (11.0, 1412.0, 3358.0),
        "the number of questions at which the standard error of RI gives the printed width",
        digits=0,
    ),
    Claim(
        "tab:simpleqa_model_comparison",
        "... and those whose interval implies more (Qwen2.5-72B, both Qwen3-32B, Qwen3-235B and Mistral-123B):",
        None,
        lambda: implied_range(narrow=True),
        (5.0, 4895.0, 11077.0),
        "likewise",
        "More than there are. Four prompts on 2,000 questions, pooled as if these were 8,000 questions, would do this.",
        digits=0,
    ),
    Claim(
        "app:external-calibration",
        "RI of Qwen3-32B is about",
        0.34,
        lambda: float(ROWS.filter(model="Qwen3-32B")["refusal_index"][0]),
        0.34,
        "the table on SimpleQA",
        digits=2,
    ),
    Claim(
        "sec:discussion",
        "Families with the highest RI:",
        ("Claude",),
        lambda: tuple(sorted(set(ROWS.filter(ROWS["refusal_index"] == ROWS["refusal_index"].max())["family"]))),
        ("Claude",),
        "the table on SimpleQA",
    ),
)

# --- What predicts RI


def r_squared(name: str) -> float:
    """Return R squared of RI on another column over the 16 models."""
    return float(scipy_stats.linregress(ROWS[name], ROWS["refusal_index"]).rvalue ** 2)


def r_squared_of_size() -> float:
    """Return R squared of RI on the logarithm of the number of parameters."""
    known = ROWS.drop_nulls("parameters_billion")
    return float(scipy_stats.linregress(known["parameters_billion"].log(), known["refusal_index"]).rvalue ** 2)


def families_by_side(name: str) -> tuple[str, ...]:
    """Return the families that the paper names, each with the models of it above the line of RI on another column."""
    line = scipy_stats.linregress(ROWS[name], ROWS["refusal_index"])
    residuals = ROWS["refusal_index"] - (line.intercept + line.slope * ROWS[name])
    above = set(ROWS.filter(residuals > 0)["model"])
    shown = []
    for family in ("Claude", "Qwen", "Gemini", "GPT", "GLM"):
        members = ROWS.filter(family=family)["model"]
        shown.append(f"{family} {sum(member in above for member in members)}/{len(members)}")
    return tuple(shown)


def share_of_families() -> float:
    """Return the share of the variance of RI between families."""
    by_family = dict(ROWS.select("family", "refusal_index").group_by("family").mean().rows())
    means = ROWS["family"].replace_strict(by_family)
    return float(means.var(ddof=0) / ROWS["refusal_index"].var(ddof=0))


PREDICTORS = (
    Claim(
        "fig:simpleqa_refusal_vs_accuracy_scatter",
        "R squared of RI on the correct answer rate (0.235 in the text):",
        0.242,
        lambda: r_squared("correct_rate"),
        0.010,
        "regression over the 16 rows",
        "The printed number fits RI on C/A, the next line; the slope on the correct answer rate is negative.",
    ),
    Claim(
        "fig:simpleqa_refusal_vs_accuracy_scatter",
        "... on C/A:",
        0.235,
        lambda: r_squared("correct_given_attempted"),
        0.232,
        "regression over the 16 rows",
    ),
    Claim(
        "fig:simpleqa_refusal_vs_accuracy_scatter",
        "Models above the line of RI on the correct answer rate, by family: Claude and Qwen but Qwen 235B, no Gemini, "
        "GPT-4.1 or GLM.",
        ("Claude 2/2", "Qwen 3/4", "Gemini 0/2", "GPT 0/2", "GLM 0/2"),
        lambda: families_by_side("correct_rate"),
        ("Claude 2/2", "Qwen 2/4", "Gemini 0/2", "GPT 0/2", "GLM 0/2"),
        "regression over the 16 rows",
        "On the correct answer rate, Qwen3-235B is above and both Qwen3-32B are below. The sentence describes the line "
        "on C/A, the next line.",
    ),
    Claim(
        "fig:simpleqa_refusal_vs_accuracy_scatter",
        "... of RI on C/A:",
        ("Claude 2/2", "Qwen 3/4", "Gemini 0/2", "GPT 0/2", "GLM 0/2"),
        lambda: families_by_side("correct_given_attempted"),
        ("Claude 2/2", "Qwen 3/4", "Gemini 0/2", "GPT 0/2", "GLM 0/2"),
        "regression over the 16 rows",
    ),
    Claim(
        "sec:discussion",
        "RI is not strongly correlated with the refusal rate; R squared:",
        None,
        lambda: r_squared("refusal_rate"),
        0.261,
        "regression over the 16 rows",
    ),
    Claim(
        "sec:discussion",
        "... nor with the number of parameters; R squared on its logarithm, for the ten models where it is public:",
        None,
        r_squared_of_size,
        0.046,
        "regression over ten rows",
    ),
    Claim(
        "sec:discussion",
        "The model family is the strongest predictor; share of the variance between families:",
        None,
        share_of_families,
        0.776,
        "variance of the families' means over the variance of RI",
        "Nine families explain 8/15 = 0.533 of the variance of 16 numbers by chance alone, so the evidence is weak.",
    ),
)

# --- Stability over prompts


def column_means(part: int) -> tuple[float, ...]:
    """Return the means over the models of the normalized differences (0) or the coefficients of variation (1)."""
    table = np.array([rows[part] for rows in printed.VARIABILITY.values()])
    return tuple(table.mean(axis=0).tolist())


def weighted_difference(model: str) -> float:
    """Return the difference of weighted scores over their signed mean, from the differences and means of c and r."""
    row = ROWS.filter(model=printed.ROW_OF_SIMPLEQA.get(model, model)).row(0, named=True)
    accuracy, refusal, *_ = printed.VARIABILITY[model][0]
    mean = row["correct_rate"] - 1 + row["refusal_rate"]
    return (accuracy * row["correct_rate"] + refusal * row["refusal_rate"]) / mean


def implied_refusal_rate_of_gemma() -> float:
    """Return the mean refusal rate at which Gemma's printed differences fit its printed correct answer rate."""
    correct = float(ROWS.filter(model="Gemma-3-12B")["correct_rate"][0])
    accuracy, refusal, *_ = printed.VARIABILITY["Gemma-3-12B"][0]
    weighted = printed.VARIABILITY["Gemma-3-12B"][0][4]
    # weighted (1 - r - c) = accuracy c + refusal r, for a difference over the absolute mean
    return (weighted * (1 - correct) - accuracy * correct) / (refusal + weighted)


def smallest_ratio_of_variability() -> float:
    """Return the smallest ratio, within rounding, of a refusal rate's coefficient of variation to its difference."""
    pairs = [(cvs[1], deltas[1]) for deltas, cvs in printed.VARIABILITY.values()]
    return min((cv + ROUNDING) / (delta - ROUNDING) for cv, delta in pairs)


FOUR_ROWS = ("Mistral-123B", "Qwen2-35B", "Qwen2.5-72B", "Qwen3-32B")

STABILITY = (
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "Averages of the normalized differences:",
        printed.VARIABILITY_AVERAGES[0],
        lambda: column_means(0),
        (-0.796, 0.978, 0.486, -0.542, -0.480, 0.072),
        "means of the printed rows",
    ),
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "Averages of the coefficients of variation:",
        printed.VARIABILITY_AVERAGES[1],
        lambda: column_means(1),
        (0.314, 0.388, 0.190, 0.220, 0.466, 0.092),
        "means of the printed rows",
    ),
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "The normalized difference is (max - min) / |mean|, which is never negative; negative ones in the table:",
        0.0,
        lambda: float(sum(value < 0 for deltas, _ in printed.VARIABILITY.values() for value in deltas)),
        16.0,
        "count over five rows and six columns",
        "The table has the most cautious prompt minus the least cautious one, with its sign, as its caption says.",
        digits=0,
    ),
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "Differences of the weighted score of Mistral-123B, Qwen3-235B, Qwen2.5-72B and Qwen3-32B:",
        tuple(printed.VARIABILITY[model][0][4] for model in FOUR_ROWS),
        lambda: tuple(map(weighted_difference, FOUR_ROWS)),
        (-0.852, -0.628, -1.315, -1.380),
        "with p = 1, from the differences and means of c and r, over the signed mean; Qwen3-32B with the row of "
        "Qwen3-32B-Think, since its own gives -1.17",
        digits=2,
        tolerance=0.05,
    ),
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "That of Gemma-3-12B is +1.79: mean refusal rate that this needs, where the table on SimpleQA has",
        0.16,
        implied_refusal_rate_of_gemma,
        0.461,
        "likewise, over the absolute mean",
        "Its sign follows the other convention, and its row of the table on SimpleQA is not the mean over the prompts.",
    ),
    Claim(
        "tab:qwen25_simpleqa_prompt_strategies",
        "The coefficient of variation has the population standard deviation. With that of a sample, four prompts would "
        "give a ratio to the difference of at least 1/sqrt(6) = 0.408; smallest in the table:",
        None,
        smallest_ratio_of_variability,
        0.3645,
        "refusal rates, whose extremes define the difference; rounding included",
    ),
    Claim(
        "sec:refusal_index_validation",
        "RI varies about 70% less than the heuristic metrics:",
        0.7,
        lambda: 1 - column_means(1)[5] / float(np.mean(column_means(1)[2:5])),
        0.685,
        "1 - CV of RI over the mean CV of C/A, F and the weighted score",
        tolerance=0.02,
    ),
    Claim(
        "sec:bg",
        "The F-score varies by up to 70%:",
        0.70,
        lambda: max(abs(deltas[3]) for deltas, _ in printed.VARIABILITY.values()),
        0.93,
        "largest normalized difference in the table",
        "0.71 without Gemma-3-12B, which was added later.",
        digits=2,
    ),
    Claim(
        "sec:refusal_index_validation",
        "RI does not depend on the refusal rate, at 97%, 50% and 3% refused:",
        None,
        lambda: tuple(map(index_under_a_t_copula, (0.97, 0.5, 0.03))),
        (0.608, 0.453, 0.177),
        "a t copula with 4 degrees of freedom, 90% wrong",
        "True only as far as the copula is Gaussian, which a single table cannot show.",
    ),
)

# --- Ranking stability


def partitions(total: int, parts: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a sum of at most so many numbers, the largest first."""
    if total == 0:
        yield ()
        return
    if parts == 0:
        return
    for first in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - first, parts - 1, first):
            yield (first, *rest)


def possible_entropies(settings: int, models: int) -> set[float]:
    """Return every winner entropy that so many settings and models can have."""
    return {
        -sum(wins / settings * math.log(wins / settings) for wins in counts) / math.log(models)
        for counts in partitions(settings, min(settings, models))
    }


def impossible_entropies(settings: int, models: int) -> tuple[float, ...]:
    """Return the printed winner entropies that so many settings and models cannot have."""
    possible = possible_entropies(settings, models)
    return tuple(value for value in printed.ENTROPIES if min(abs(value - one) for one in possible) > ROUNDING + 1e-9)


def sizes_that_fit_all_entropies() -> tuple[str, ...]:
    """Return the numbers of settings (to 9) and models (to 19) that can have all printed winner entropies."""
    return tuple(
        f"{settings} x {models}"
        for settings in range(2, 10)
        for models in range(2, 20)
        if not impossible_entropies(settings, models)
    )


HALLUCINATION = hallucination_rows().drop("model").to_numpy().T  # a row for each dataset


def wiki_differences() -> tuple[float, ...]:
    """Return how much higher RI is on PreciseWikiQA than on SimpleQA, for each model of the table."""
    on_simpleqa = dict(ROWS.select("model", "refusal_index").rows())
    pairs = hallucination_rows().select("model", "precise_wiki").rows()
    return tuple(index - on_simpleqa[printed.NAMES_ON_SIMPLEQA.get(model, model)] for model, index in pairs)


def truth_contrast() -> tuple[float, float, float]:
    """Return the mean over the models of RI with the truth available minus without, and its 95% interval."""
    contrasts = HALLUCINATION[:2].mean(axis=0) - HALLUCINATION[2:].mean(axis=0)
    n = len(contrasts)
    reach = scipy_stats.t.ppf(0.975, n - 1) * contrasts.std(ddof=1) / math.sqrt(n)
    mean = float(contrasts.mean())
    return mean, mean - reach, mean + reach


RANKING = (
    Claim(
        "tab:ranking_stability",
        "Kendall's W of random rankings over 8 settings:",
        printed.RANDOM_W,
        lambda: 1 / 8,
        0.125,
        "its expectation is 1/m",
        "The printed value is that of 4 settings.",
    ),
    Claim(
        "tab:ranking_stability",
        "Winner entropy of random rankings over 8 settings and the 5 models that all of them have:",
        printed.RANDOM_ENTROPY,
        lambda: expected_winner_entropy(8, 5),
        0.813,
        "`expected_winner_entropy`",
        "The printed value is nearest to 4 settings and 5 models (0.624).",
    ),
    Claim(
        "tab:ranking_stability",
        "Printed winner entropies that 8 settings and 5 models cannot have:",
        (),
        lambda: impossible_entropies(8, 5),
        (0.18, 0.33, 0.37, 0.47, 0.48, 0.52, 1.0),
        "all ways to distribute 8 first places over 5 models",
        "Only 0.00 and 0.61 are possible. 0.18 and 0.33 are with 8 settings and 8 models.",
        digits=2,
    ),
    Claim(
        "tab:ranking_stability",
        "Numbers of settings (to 9) and models (to 19) that can have all printed winner entropies:",
        None,
        sizes_that_fit_all_entropies,
        (),
        "all ways to distribute the first places",
        "None: the columns of the table must have different numbers of settings or models.",
    ),
    Claim(
        "tab:hallu_model_comparison",
        "Averages over the models, in the order of the table:",
        printed.HALLUCINATION_AVERAGES,
        lambda: tuple(HALLUCINATION.mean(axis=1).tolist()),
        (0.480, 0.560, 0.244, 0.318),
        "means of the printed columns",
    ),
    Claim(
        "sec:discussion",
        "RI on PreciseWikiQA is close to RI on SimpleQA; differences for the five models:",
        None,
        wiki_differences,
        (0.11, 0.14, 0.05, 0.14, 0.11),
        "PreciseWikiQA minus SimpleQA",
        "Each of the five is higher on PreciseWikiQA.",
        digits=2,
    ),
    Claim(
        "tab:hallu_model_comparison",
        "16 models were evaluated on 5 datasets; pairs of a model and a dataset in the tables:",
        80.0,
        lambda: float(ROWS.height + HALLUCINATION.size),
        36.0,
        "rows of the table on SimpleQA, and cells of that on hallucination benchmarks",
        "Five models were evaluated on the four other datasets.",
        digits=0,
    ),
    Claim(
        "tab:hallu_model_comparison",
        "Agreement of the four datasets' rankings: W, W with the correction for ties, and winner entropy.",
        None,
        lambda: tuple(
            result.estimate or math.nan
            for result in (
                kendall_w(HALLUCINATION),
                kendall_w(HALLUCINATION, correct_ties=True),
                winner_entropy(HALLUCINATION),
            )
        ),
        (0.2125, 0.2179, 0.6460),
        "`kendall_w` and `winner_entropy`",
        "The paper gives no number for the four datasets alone. W is below the 0.25 of random rankings.",
        digits=4,
    ),
    Claim(
        "sec:discussion",
        "RI is lower where the truth is not available: mean difference over the models, with its interval:",
        None,
        truth_contrast,
        (0.239, 0.070, 0.408),
        "means of the two pairs of columns, Student's t over five models",
        "Mistral-Large differs by 0.01 only. Part of the difference may be the mix with PreciseWikiQA, the next line.",
    ),
    Claim(
        "tab:hallu_model_comparison",
        "RI of questions without a gold answer, mixed 1:1 with PreciseWikiQA, measures knowledge-aware refusal; RI if "
        "refusals were independent of errors within each of the two:",
        None,
        index_of_two_sources,
        0.342,
        "30% refused and 60% wrong in one source, 70% refused and all wrong in the other",
        "Telling the two sources apart is enough for a high RI, since every answer to a question without a gold answer "
        "is wrong. `hallucination_table` gives RI within the sources beside it.",
    ),
)

# --- Copulas


def criteria_errors() -> tuple[float, float]:
    """Return the largest distances of the printed AIC and BIC from 2k - 2 log L and k log 2000 - 2 log L."""
    rows = list(printed.COPULAS.values())
    aic = max(abs(2 * k - 2 * likelihood - value) for k, likelihood, value, _ in rows)
    bic = max(abs(k * math.log(2000) - 2 * likelihood - value) for k, likelihood, _, value in rows)
    return aic, bic


def implied_sample_size() -> float:
    """Return n from BIC - AIC = k (log n - 2), for the Gaussian copula."""
    _, _, aic, bic = printed.COPULAS["Gaussian"]
    return math.exp(bic - aic + 2)


def whole_shares(cases: int) -> float:
    """Return how many of the printed win rates can be shares of so many cases without ties."""
    return float(sum(abs(rate * cases - round(rate * cases)) <= 0.0005 * cases for rate in printed.WIN_RATES))


def spread_over_copulas() -> float:
    """Return the spread of the maximised log-likelihoods of all families over one table."""
    likelihoods = [fit_copula(EXAMPLE, family).log_likelihood for family in COPULA_NAMES]
    return max(likelihoods) - min(likelihoods)


COPULAS = (
    Claim(
        "tab:copula_comparison",
        "AIC = 2k - 2 log L and BIC = k log n - 2 log L; largest errors of the four rows, with n = 2,000:",
        (0.0, 0.0),
        criteria_errors,
        (0.010, 0.002),
        "the printed log-likelihoods",
        tolerance=0.02,
    ),
    Claim(
        "tab:copula_comparison",
        "Number of questions:",
        4326.0,
        implied_sample_size,
        1998.2,
        "BIC - AIC = k (log n - 2)",
        "2,000 questions, where the text says SimpleQA, which has 4,326.",
        digits=0,
        tolerance=1,
    ),
    Claim(
        "tab:copula_comparison",
        "Win rates are shares of 16 models x 4 prompts = 64 cases; how many of the five printed rates can be:",
        5.0,
        lambda: whole_shares(64),
        1.0,
        "whole numbers of cases within rounding",
        "All five are shares of 68 cases (the next line): 17 models, or one with further prompts.",
        digits=0,
        tolerance=0,
    ),
    Claim(
        "tab:copula_comparison",
        "... of 68 cases:",
        5.0,
        lambda: whole_shares(68),
        5.0,
        "likewise",
        digits=0,
        tolerance=0,
    ),
    Claim(
        "app:copula_validation",
        "Log-likelihoods over single tables tell the Gaussian copula from others: the means of the Gaussian and the "
        "Clayton copula are this far apart. Spread over seven families for the table (710, 30, 210, 50):",
        368.05,
        spread_over_copulas,
        0.0,
        "`fit_copula`",
        "With fixed margins one parameter fits a table exactly, so every family that reaches it has the same "
        "likelihood. An inexact distribution function would explain the deficit of the t copula; a family that cannot "
        "be negative loses on negative tables only. Several prompts on the same questions can tell: "
        "`copula_comparison`.",
        digits=6,
    ),
)

# --- Number of questions


def ratios_of_questions(metric: str) -> np.ndarray:
    """Return for each model how many times as many questions RI needs as another metric for a CV of 0.1."""
    ratios = []
    for row in ROWS.select("correct_rate", "refusal_rate", "refusal_index").iter_rows():
        scenario = PlanningScenario.from_published(*row)
        needed = [questions_for_cv(scenario, 0.1, metric=name).n for name in ("refusal_index", metric)]
        ratios.append(needed[0] / needed[1])
    return np.array(ratios)


def typical_ratio(metric: str) -> tuple[float, float, float]:
    """Return the smallest ratio, its geometric mean and the largest."""
    ratios = ratios_of_questions(metric)
    return float(ratios.min()), float(np.exp(np.log(ratios).mean())), float(ratios.max())


QUESTIONS = (
    Claim(
        "sec:impact_of_number_of_questions",
        "For a coefficient of variation of 0.1, RI needs 25% more questions than C/A; smallest, mean, largest ratio:",
        (1.25, 1.25, 1.25),
        lambda: typical_ratio("correct_given_attempted"),
        (0.575, 4.341, 42.851),
        "`questions_for_cv` at the rates of the 16 rows; the mean is geometric",
        "It holds only for models that refuse nearly everything.",
        digits=1,
    ),
    Claim(
        "sec:impact_of_number_of_questions",
        "... than the F-score, geometric mean:",
        1.25,
        lambda: typical_ratio("f_score")[1],
        3.810,
        "likewise",
        "Likewise.",
        digits=1,
    ),
)

# --- Prompts


def unanswered_examples() -> tuple[float, ...]:
    """Return how many of the ten worked examples of each default prompt are unanswered."""
    variants = load_prompt_set("default").variants
    return tuple(float(len(variants[name].unanswered)) for name in ("low", "normal", "high", "highest"))


PROMPTS = (
    Claim(
        "tab:first_pass_prompt_variants",
        "Worked examples with UNANSWERED, of ten, from the least to the most cautious prompt:",
        (0.0, 1.0, 4.0, 6.0),
        unanswered_examples,
        (0.0, 1.0, 4.0, 6.0),
        "the default prompt set, which follows the design and is worded differently",
        digits=0,
        tolerance=0,
    ),
)

# --- Propositions

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
RHOS = (0.0, 0.3, 0.6, 0.9)
RIGHT = 0.4
"""Share right under forced answering, with which the propositions are shown."""


def exact_curve(rho: float) -> tuple[float, ...]:
    """Return the correct answer rate at the refusal rates of `GRID`: P(not refused and right)."""
    return tuple(correct_rate_at(GRID, rho, 1 - RIGHT).tolist())


def simulated_curve(rho: float, n: int = 200_000, seed: int = 0) -> tuple[float, ...]:
    """Return the same from simulated questions, the refused ones being those with the highest refusal score."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    difficulty = rho * score + math.sqrt(1 - rho * rho) * rng.normal(size=n)
    right = difficulty <= scipy_stats.norm.ppf(RIGHT)
    order = np.argsort(score)
    return tuple(float(right[order[: round(n * (1 - r))]].sum() / n) for r in GRID)


SECTIONS = {
    "The definition and the estimator": DEFINITION,
    "Results on SimpleQA": SIMPLEQA,
    "What predicts RI": PREDICTORS,
    "Stability over prompts": STABILITY,
    "Rankings and hallucination benchmarks": RANKING,
    "Copulas": COPULAS,
    "Number of questions": QUESTIONS,
    "Prompts": PROMPTS,
}
"""The claims by section of the page."""

CLAIMS = tuple(claim for claims in SECTIONS.values() for claim in claims)
