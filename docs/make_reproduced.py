"""Write the page "The paper, reproduced": ``.venv/bin/python docs/make_reproduced.py``, a few seconds.

Its numbers are the claims that `tests/paper` holds. The page is committed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # for the claims, which are among the tests

from tests.paper.claims import (  # noqa: E402 - needs the path above
    GRID,
    RHOS,
    RIGHT,
    SECTIONS,
    Claim,
    Value,
    exact_curve,
    simulated_curve,
    value_of,
)
from tests.paper.items import ITEMS, TITLES, Item  # noqa: E402 - likewise

PAGE = DOCS / "paper-reproduced.md"
SIMULATED = 200_000
"""Number of questions that the propositions are simulated with."""
COLUMNS = ("claim", "printed or implied", "recomputed", "how", "why it differs, or what it shows")

HEAD = """\
# The paper, reproduced

<!-- Written by docs/make_reproduced.py from tests/paper; do not edit. -->

This page lists every table, figure, proposition and numerical claim of Pan et al., *Can LLMs Refuse Questions They Do
Not Know?*, with the command that makes it here, the printed value, the recomputed value, and the reason if they differ.
A test in `tests/paper` holds every recomputed value. Those that differ by more than rounding are **bold**.

Values are recomputed from the paper's printed numbers, from theory, or by simulation. No model of the paper was asked:
what needs its 16 models has a command and no recomputed value. One command asks them and makes every table and figure,
`refusal-index study --all --config paper/all-datasets` ([how](how-to/paper.md#tables-and-figures)). A nightly test does
this with a server that stands in for eight of the models, with known RI: 36 runs of 300 questions, grading over HTTP
and 11 samples for P(Answering) take about three minutes on two cores, and the 95% intervals of combined RI contain the
known value for all eight. The default prompts follow the paper's design and are worded differently; [the paper's
prompts](configurations.md#the-papers-wording) are made from its source. To see a model of your own among those
of the paper, use [`compare RUN --with paper`](how-to/paper.md#where-your-model-stands-among-those-of-the-paper).
The intervals of the paper are bootstrap intervals, whose coverage breaks down if a cell is small
([simulations](benchmarks.md)).

## Tables, figures and propositions

"""

FORMS = (
    (
        "Figure: metrics against the AUROC of P(Answering)",
        "Points are of one dataset and one temperature of sampling, those with the most points; the rest is named. "
        "Right means right under forced answering. The paper's own label counts "
        "a refusal as wrong, so refusing would be on both sides of the comparison.",
    ),
    (
        "Table: copula comparison",
        "The tables are those of all prompts on one dataset, that of the most runs. Log-likelihoods that differ by "
        "less than .0001 are equal and count one half in win rates: a table has the same likelihood under every family "
        "that can fit it, so smaller differences are rounding. The t copula has four degrees of freedom.",
    ),
    (
        "Table: score variability",
        "The most cautious prompt minus the least cautious one, divided by the mean with its sign in the table and in "
        "the figure, as four of the paper's five rows do, so a weighted score with a negative mean has the reverse "
        "sign. The CSV file also has the difference over the absolute mean, whose sign shows whether the metric rises.",
    ),
    (
        "Figure: curves of equal score",
        "Four panels with all models instead of one model, and their observed points.",
    ),
    (
        "Figure: RI against the correct answer rate",
        "Two more panels, C/A and the refusal rate, because the printed R squared fits C/A. Names are in a legend: at "
        "the points, sixteen of them cover each other. Colours are the families.",
    ),
    (
        "Table: ranking stability",
        "A dash means that nothing is left of a metric once rates are removed, so that every ranking would be an "
        "artefact of rounding; the paper prints numbers there.",
    ),
    (
        "Table: hallucination benchmarks",
        "SimpleQA counts among the datasets whose truth is available if it is among the runs; the paper has two pairs. "
        "RI within the sources of a mix comes from the questions with a gold answer, since all others are wrong, so it "
        "is the same for mixes with the same questions of PreciseWikiQA. An RI at the boundary is in no average. The "
        "paper's values stand in a block of their own (`--without-paper` leaves them out).",
    ),
    (
        "Figure: variation over subsets",
        "One panel for each model on one dataset. The coefficient of variation is relative to the estimate from all "
        "questions. In small subsets RI is often at "
        "its boundary, so the points leave the line.",
    ),
    (
        "Figure: agreement of prompts",
        "One matrix for each model, because models differ; of six models or more without intervals, which are in the "
        "table. Only refused questions are forced, so few questions have "
        "an answer under a cautious prompt and a forced one.",
    ),
    (
        "Table: calibration methods",
        "`calibrator_cost` gives the measured cost, with the paper's notation in a column; `cost_table` gives that of "
        "the runs.",
    ),
    (
        "Figure: calibration of Qwen3-32B",
        "P(IK) reads hidden states, so the model must load on this machine: `refusal-index confidence RUN --method "
        "p-ik --weights hf/NAME`. APRICOT fine-tunes DeBERTa, which takes hours without a GPU: `--method apricot`. The "
        "stand-in server cannot give either, so there the study has P(Answering) alone and names both as missing. "
        "For the embedded model, which loads anywhere (300 questions, 11 samples at temperature 1), AUROC of P(IK) is "
        "0.60 [0.54, 0.67] and of P(Answering) 0.62 [0.56, 0.68]; ECE 0.04 and 0.33.",
    ),
)
"""Parts whose form or definition differs from the paper's, and why."""

PROPOSITIONS = """\
## Propositions 1 and 2

Refusal and error are thresholds on two standard normal variables with correlation rho. Fix the share right under forced
answering, 1 - mu. The correct answer rate at refusal rate r is the probability of being right and not refused,
a(r; rho) = Phi2(h, k; rho), where h and k are the normal quantiles of 1 - r and 1 - mu, and Phi2 is the bivariate
normal distribution function.

**Proposition 1: all curves share their ends.** a(0; rho) = 1 - mu and a(1; rho) = 0, for every rho. At r = 0 the
threshold h is infinite, so Phi2 is the distribution function of the second variable alone, which is 1 - mu at k. At
r = 1 it is minus infinity, so Phi2 is 0.

**Proposition 2: a higher rho gives a higher curve.** At every r between 0 and 1, a(r; rho) increases strictly with rho.
The derivative of Phi2 with respect to rho is the bivariate normal density at (h, k), which is positive. RI is an
increasing function of rho, so of two models with the same ends, the one with the higher RI has more right answers at
every refusal rate between.

Both are tested at random rho, mu and r (`tests/stats/test_curves.py`), the second against the integral of the density.
The table has the exact curve for {right:.0%} right under forced answering and, in brackets, that of {n:,} simulated
questions of which the share r with the highest refusal score is refused.

{table}

```python
import numpy as np

from refusal_index.stats import correct_rate_at

refused = np.linspace(0, 1, 101)
curves = correct_rate_at(refused[:, np.newaxis], np.array([0, 0.3, 0.6, 0.9]), 1 - {right})
np.allclose(curves[0], {right}), np.allclose(curves[-1], 0)  # (True, True)
bool((np.diff(curves[1:-1], axis=1) > 0).all())  # True
```
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    parts.append(table(("part", "command", "recomputed value"), map(item_row, ITEMS)))
    parts.append("\n\n### Numbers that need models\n\n")
    parts.append("None of these has a recomputed value, since no model of the paper was asked.\n\n")
    needing = ((item.title, item.printed, f"`{item.command}`") for item in ITEMS if item.printed)
    parts.append(table(("part", "printed", "command"), needing))
    parts.append("\n\n### Where form or definition differs\n\n")
    parts.append(table(("part", "what differs, and why"), FORMS))
    parts.append(
        "\n\nThe models of the stand-in server answer alike each time. So against it, prompts agree in all answers, "
        "corrected RI equals RI, and P(Answering) has two values."
    )
    for title, claims in SECTIONS.items():
        parts.append(f"\n\n## {title}\n\n")
        parts.append(table(COLUMNS, map(row, claims)))
    parts.append("\n\n" + PROPOSITIONS.format(right=RIGHT, n=SIMULATED, table=curves()))
    return "".join(parts)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def item_row(item: Item) -> tuple[str, ...]:
    """Return the row of a part of the paper."""
    sections = [title for title, claims in SECTIONS.items() if any(claim.item == item.label for claim in claims)]
    below = f"[below](#{sections[0].lower().replace(' ', '-')})" if sections else ""
    if item.label.startswith("prop:"):
        found = "[shown](#propositions-1-and-2)"
    elif item.needs == "prompts":
        found = f"made from its source; the design is {below}" if below else "made from its source"
    elif item.needs == "nothing":
        found = below or "nothing to recompute"
    else:
        found = f"from the printed numbers {below}; from models none" if below else "none; needs models"
    return item.title, f"`{item.command}`", found


def row(claim: Claim) -> tuple[str, ...]:
    """Return the row of a claim."""
    printed = "-" if claim.printed is None else shown(claim.printed, lambda number: printed_number(number, claim))
    recomputed = shown(value_of(claim), lambda number: f"{number:,.{claim.digits}f}")
    mark = "" if claim.agrees else "**"
    return (
        f"*{TITLES[claim.item]}.* {claim.says}",
        printed,
        f"{mark}{recomputed}{mark}",
        claim.how,
        claim.reason or "-",
    )


def shown(value: Value, formatted: Callable[[float], str]) -> str:
    """Return a value as text."""
    values = value if isinstance(value, tuple) else (value,)
    texts = [one.replace("_", " ") if isinstance(one, str) else formatted(one) for one in values]
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{texts[0]} each"
    return ", ".join(texts) or "none"


def printed_number(number: float, claim: Claim) -> str:
    """Return a printed number with its decimals: none if it is whole, otherwise two or more."""
    if number == round(number):
        return f"{number:,.0f}"
    rounded = round(number, max(claim.digits, 2))
    decimals = next(digits for digits in range(2, 10) if round(rounded, digits) == rounded)
    return f"{number:,.{decimals}f}"


def curves() -> str:
    """Return the exact and the simulated curves as a table."""
    rows = []
    for rho in RHOS:
        pairs = zip(exact_curve(rho), simulated_curve(rho, SIMULATED), strict=True)
        rows.append((f"rho {rho:g}", *(f"{exact:.3f} ({simulated:.3f})" for exact, simulated in pairs)))
    return table(("", *(f"r = {r:g}" for r in GRID)), rows)


if __name__ == "__main__":
    main()
