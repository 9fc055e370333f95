"""What UQLM and lm-polygraph call their scores, and how each becomes a confidence in [0, 1].

UQLM (0.6.7) gives a table of one row a prompt, `UQResult.to_df()`, with one column a scorer; all are in [0, 1], and
higher where the answer is more to be trusted. `to_df` takes the last letter off names that end in an s.

lm-polygraph (0.7.0) keeps one list of numbers an estimator in `UEManager.estimations`, higher where the answer is less
to be trusted, and of any range. Only those that are a probability, or a share or similarity from 0 to 1, in other words
are taken, by the formula that their definition gives: one less the number, its negative, or the exponential of its
negative. Of entropies, distances and the like no formula makes a confidence, and ranks would look calibrated or not by
the choice of questions alone: they are left out, and named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

ROUNDING = 1e-6
"""How far outside its range a number may lie: a cosine of single precision can be 1.0000001."""


@dataclass(frozen=True)
class Reading:
    """How the numbers of a column become scores: what they must be, in words and as a range, and the formula."""

    expected: str
    low: float
    high: float
    formula: Callable[[float], float]

    def confidence(self, number: float) -> float | None:
        """Return the score that a number stands for; None where it is out of range.

        >>> MINUS_LOG_PROBABILITY.confidence(0.0), AS_IS.confidence(87.0)
        (1.0, None)
        """
        if not self.low - ROUNDING <= number <= self.high + ROUNDING:
            return None
        return self.formula(min(max(number, self.low), self.high))


AS_IS = Reading("a number in [0, 1]", 0, 1, lambda number: number)
ONE_LESS = Reading("an uncertainty in [0, 1]", 0, 1, lambda number: 1 - number)
NEGATIVE = Reading("the negative of a number in [0, 1]", -1, 0, lambda number: 0.0 - number)
MINUS_LOG_PROBABILITY = Reading(
    "the negative of a log probability, from 0", 0, math.inf, lambda number: math.exp(-number)
)

UQLM = re.compile(
    "(calibrated_)?("
    "semantic_negentropy|noncontradiction|exact_match|cosine_sim|bert_score|entailment|contrasted_entailment"
    "|semantic_sets_confidence|(sequence|normalized|min|monte_carlo)_probability|(min|mean)_token_negentropy"
    "|probability_margin|consistency_and_confidence|semantic_density|p_true|verbalized_confidence|code_bleu"
    "|functional_(equivalence_rate|negentropy|negentropy_whitebox|sets_confidence)"
    r"|(discrete|tokenprob)_confidence_scores?|semantic_density_values?|ensemble_scores?|judge_\d+)"
)
"""Names of UQLM's scores."""

OF_A_PANEL = ("avg", "max", "min", "median")
"""Names of UQLM's scores by several judges, beside those of each: on their own they may be anything."""

POLYGRAPH: tuple[tuple[re.Pattern[str], Reading], ...] = (
    (re.compile(r"PTrueEmpirical|LabelProb|LUQ|(Verbalized1S|Verbalized2S|Linguistic1S|DegMat_).*"), ONE_LESS),
    (re.compile(r"LexicalSimilarity_.*|SemanticDensity(Output)?|CCP"), NEGATIVE),
    (re.compile("MaximumSequenceProbability|Perplexity|PTrue|PTrueSampling"), MINUS_LOG_PROBABILITY),
)
"""Names of lm-polygraph's estimators that are probabilities, shares or similarities, and how they are read."""

NO_RANGE = re.compile(
    "(discrete|tokenprob)_entropy_values?|num_semantic_sets?"
    "|(Mean)?TokenEntropy|MonteCarlo(Normalized)?SequenceEntropy|SemanticEntropy.*|KernelLanguageEntropy|RenyiNeg"
    "|FisherRao|SelfCertainty|(Mean)?(Conditional)?PointwiseMutualInformation|(Sentence|Token)?SAR|Cocoa(MSP|PPL|MTE)"
    "|CSL|BoostedProbSequence|AttentionScore .*|RAUQ.*|Focus .*|EigenScore|NumSemSets|(EigValLaplacian|Eccentricity)_.*"
    "|(Relative)?MahalanobisDistanceSeq_.*|RDESeq_.*|PPLR?MDSeq_.*|(EPS|PES|EPT|PET)[a-z]+[0-9]*"
)
"""Names of what both give that no formula makes a confidence of."""

_KEY = re.compile(r"\(['\"]sequence['\"], ['\"](.+)['\"]\)")
"""An estimator as lm-polygraph's own key, written down."""


def scorer_name(column: str) -> str:
    """Return what a column is called without what surrounds its name.

    >>> scorer_name("('sequence', 'PTrue')"), scorer_name("p_true")
    ('PTrue', 'p_true')
    """
    key = _KEY.fullmatch(column.strip())
    return key[1] if key else column.strip()


def reading_of(column: str, beside: Collection[str] = ()) -> Reading | None:
    """Return how a column of UQLM's or lm-polygraph's is read; None of any other, and of what is no confidence.

    - `column`: its name.
    - `beside`: all columns of the table.
    """
    name = scorer_name(column)
    if UQLM.fullmatch(name) or (name in OF_A_PANEL and "judge_1" in beside):
        return AS_IS
    return next((reading for names, reading in POLYGRAPH if names.fullmatch(name)), None)


def has_no_range(column: str) -> bool:
    """Tell whether a column holds an uncertainty of which no formula makes a confidence.

    >>> has_no_range("MeanTokenEntropy"), has_no_range("PTrue")
    (True, False)
    """
    return NO_RANGE.fullmatch(scorer_name(column)) is not None
