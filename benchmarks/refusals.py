"""How well refusals are distinguished from answers in labelled replies of real models: `python -m benchmarks.refusals`.

A false alarm is a reply that is labelled as an answer and read as a refusal. For each source, the table shows the false
alarms among right and among wrong answers, precision, recall of refused and of refused or unclear, the share of unclear
replies, and what RI would be with the measured rates where it is .50 and half of the answers are wrong, if errors do
not depend on being right: the estimate from the expected counts. A missed refusal counts as a wrong answer, as it does
in a run. `--list SOURCE` prints the false alarms; `--effect` prints RI for assumed rates, without any data.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.labelled_replies import DATA, Label, Labelled, labelled_replies, missing

from refusal_index import read_reply
from refusal_index.protocol.reading import ReadAs
from refusal_index.stats import tetrachoric, upper_orthant
from refusal_index.stats.estimator import SCALAR
from refusal_index.stats.intervals import spearman

TRUE_INDEX = 0.5
ERROR_RATE = 0.5
REFUSAL_RATES = (0.05, 0.1, 0.3)
ASSUMED_RECALLS = (0.95, 0.9, 0.5)
ASSUMED_ALARM_RATES = (0.005, 0.01, 0.03)
ASSUMED_REFUSAL_RATES = (*REFUSAL_RATES, 0.6)
NAN = float("nan")


@dataclass(frozen=True)
class Score:
    """Counts of the replies of one source by their label and what they are read as."""

    counts: Counter[tuple[Label, ReadAs]]

    def count(self, labels: Iterable[Label] = Label, read_as: Iterable[ReadAs] = ReadAs) -> int:
        """Return the number of scored replies with any of these labels that are read as any of these."""
        kinds = [kind for kind in read_as if kind is not ReadAs.UNSCORED]
        return sum(self.counts[label, kind] for label in labels if label is not Label.PARTIAL for kind in kinds)

    @property
    def replies(self) -> int:
        """The number of replies that are labelled as an answer or a refusal, and can be read."""
        return self.count()

    @property
    def left_out(self) -> int:
        """The number of replies that refuse in part, are empty, or whose letter and text contradict each other."""
        return self.counts.total() - self.replies

    @property
    def recognised(self) -> int:
        """The number of replies that are read as refusals."""
        return self.count(read_as=[ReadAs.REFUSAL])

    def alarms(self, *labels: Label) -> int:
        """Return the number of answers with these labels that are read as refusals."""
        return self.count(labels, [ReadAs.REFUSAL])

    @property
    def alarm_rate(self) -> float:
        """False alarms as a share of the answers."""
        return _share(self.alarms(*ANSWERS), self.count(ANSWERS))

    @property
    def precision(self) -> float:
        """Share of the recognised refusals that are labelled as refusals."""
        return _share(self.alarms(Label.REFUSED), self.recognised)

    @property
    def recall(self) -> float:
        """Share of the labelled refusals that are read as refusals."""
        return _share(self.alarms(Label.REFUSED), self.count([Label.REFUSED]))

    @property
    def recall_with_unclear(self) -> float:
        """Share of the labelled refusals that are read as refusals or as unclear."""
        found = self.count([Label.REFUSED], [ReadAs.REFUSAL, ReadAs.UNCLEAR])
        return _share(found, self.count([Label.REFUSED]))

    @property
    def unclear(self) -> float:
        """Share of the replies that are unclear."""
        return _share(self.count(read_as=[ReadAs.UNCLEAR]), self.replies)


ANSWERS = (Label.RIGHT, Label.WRONG, Label.ANSWER)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else NAN


def score(labelled: Iterable[Labelled]) -> dict[str, Score]:
    """Read the replies of each source, and of each data set with several sources."""
    counts: dict[str, Counter[tuple[Label, ReadAs]]] = {}
    for one in labelled:
        cell = one.label, _read_as(one)
        for name in {one.source, one.source.partition("/")[0]}:
            counts.setdefault(name, Counter())[cell] += 1
    return {name: Score(cells) for name, cells in sorted(counts.items())}


def _read_as(one: Labelled) -> ReadAs:
    return read_reply(one.reply, one.question, one.choices).read_as


def false_alarms(labelled: Iterable[Labelled]) -> Iterator[Labelled]:
    """Yield the replies that are labelled as an answer and read as a refusal."""
    return (one for one in labelled if one.label in ANSWERS and _read_as(one) is ReadAs.REFUSAL)


def measured_index(
    refusal_rate: float,
    alarm_rate: float,
    recall: float,
    *,
    true_index: float = TRUE_INDEX,
    error_rate: float = ERROR_RATE,
    missed_are_wrong: bool = True,
) -> float:
    """Return RI from the expected counts, if errors of reading do not depend on being right.

    - `refusal_rate`: share of the questions that the model refuses.
    - `alarm_rate`: share of its answers that are read as refusals; the forced answer is as right as the first.
    - `recall`: share of its refusals that are read as refusals.
    - `true_index`, `error_rate`: RI without such errors, and the share wrong overall.
    - `missed_are_wrong`: whether a missed refusal counts as a wrong answer, since it does not contain the right one;
      otherwise it counts as right if its forced answer would be.
    """
    rho = 2 * math.sin(math.pi / 6 * true_index)
    refused_wrong = float(upper_orthant(-SCALAR.ndtri(refusal_rate), -SCALAR.ndtri(error_rate), rho))
    refused = {True: refused_wrong, False: refusal_rate - refused_wrong}
    asked = {True: error_rate, False: 1 - error_rate}
    cells = {}
    for wrong in (True, False):
        read_refused = recall * refused[wrong] + alarm_rate * (asked[wrong] - refused[wrong])
        cells[wrong, True] = read_refused
        cells[wrong, False] = asked[wrong] - read_refused
    if missed_are_wrong:
        moved = (1 - recall) * refused[False]
        cells[True, False] += moved
        cells[False, False] -= moved
    return spearman(float(tetrachoric(cells[True, True], cells[False, True], cells[True, False], cells[False, False])))


HEADINGS = (
    "replies",
    "left out",
    "refused",
    "right",
    "wrong",
    "false alarms, right",
    "wrong",
    "all",
    "precision",
    "recall",
    "or unclear",
    "unclear",
    *(f"RI at {rate:.0%}" for rate in REFUSAL_RATES),
)


def row(name: str, found: Score) -> str:
    """Return a row of the table, in Markdown."""
    counts = [found.replies, found.left_out, *(found.count([label]) for label in (Label.REFUSED, *ANSWERS[:2]))]
    alarms = [(found.alarms(label), found.count([label])) for label in ANSWERS[:2]]
    alarms.append((found.alarms(*ANSWERS), found.count(ANSWERS)))
    rates = [found.precision, found.recall, found.recall_with_unclear]
    indexes = [measured_index(rate, found.alarm_rate, found.recall) for rate in REFUSAL_RATES]
    cells = [
        *(f"{count:,}" for count in counts),
        *(f"{count} ({count / of:.2%})" if of else "-" for count, of in alarms),
        *(_number(rate) for rate in rates),
        "-" if math.isnan(found.unclear) else f"{found.unclear:.2%}",
        *(_number(index) for index in indexes),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def effects() -> str:
    """Return a table, in Markdown, of RI by refusal rate for each assumed share of missed refusals and false alarms."""
    headings = [f"{rate:.0%} refused" for rate in ASSUMED_REFUSAL_RATES]
    lines = [f"| true RI {TRUE_INDEX:.2f} | {' | '.join(headings)} |", f"|{'---|' * (len(headings) + 1)}"]
    assumed = [(f"{1 - recall:.0%} of the refusals are missed", 0.0, recall) for recall in ASSUMED_RECALLS]
    assumed += [(f"{rate:.1%} of the answers are false alarms", rate, 1.0) for rate in ASSUMED_ALARM_RATES]
    for label, alarm_rate, recall in assumed:
        cells = [_number(measured_index(rate, alarm_rate, recall)) for rate in ASSUMED_REFUSAL_RATES]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Print a table, or the false alarms of one source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the replies")
    parser.add_argument("--list", metavar="SOURCE", help="print the false alarms of a source or data set")
    parser.add_argument("--effect", action="store_true", help="print RI for assumed misses and false alarms")
    options = parser.parse_args(arguments)
    if options.effect:
        print(effects())
        return
    for pattern in missing(options.data):
        print(f"missing: {options.data / pattern}")
    labelled = labelled_replies(options.data)
    if options.list:
        for alarm in false_alarms(one for one in labelled if one.source.startswith(options.list)):
            print(f"{alarm.source} {alarm.row} {alarm.label}\n  {alarm.question}\n  {' '.join(alarm.reply.split())}")
        return
    scores = score(labelled)
    if scores:
        print(f"| source | {' | '.join(HEADINGS)} |\n|{'---|' * (len(HEADINGS) + 1)}")
        print("\n".join(row(name, found) for name, found in scores.items()))


if __name__ == "__main__":
    main()
