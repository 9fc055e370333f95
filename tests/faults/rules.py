"""The rules that the scenarios show, in the words of ``docs/what-happens-when.md``.

Each scenario shows at least one rule. A rule that no scenario can show names a test that does.
"""
# ruff: noqa: E501 - a cell or a pattern is one line, however long

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.faults.scenario import DONE, Scenario


@dataclass(frozen=True)
class Rule:
    """A line of a table of the page.

    Attributes
    ----------
    situation, cells
        What happens to a run, and the other cells of the line.
    rows
        A pattern for the scenarios that show it, by group and name, as ``benchmarks.faults --only`` takes it.
    tested
        The name of a test, if no scenario can show it.
    """

    situation: str
    cells: tuple[str, ...]
    rows: str = ""
    tested: str = ""

    def is_shown_by(self, scenario: Scenario) -> bool:
        """Whether a scenario shows it."""
        return bool(self.rows) and re.search(self.rows, f"{scenario.group}: {scenario.name}") is not None


@dataclass(frozen=True)
class Table:
    """A table of the page: what its columns are called, and its lines."""

    columns: tuple[str, ...]
    rules: tuple[Rule, ...]


def ends(situation: str, happens: str, status: str, rows: str = "", tested: str = "") -> Rule:
    """Return the rule that says what a run does, and how it ends."""
    return Rule(situation, (happens, status), rows, tested)


def replies(reply: str, outcome: str, rows: str = "", tested: str = "") -> Rule:
    """Return the rule that says what a reply is taken for."""
    return Rule(reply, (outcome,), rows, tested)


ENDS = ("situation", "what happens", "exit status")

RUN = Table(
    ENDS,
    (
        ends(
            "rate limit, server error, timeout (408, 409, 425, 429, 5xx); a response that is unreadable or has no answer",
            "retried; after 20 consecutive failed questions, or three minutes without a reply, the run ends",
            "0 or 1",
            "^The provider fails, and recovers: |a burst of 429|a fifth (of|with|without)|request that hangs|nothing but 500|ends in 500|an error as its body|streams end early|comes twice|an error (next to|in) the choice|some of several choices|is null whenever|five replies are|an error repeats the key .500|one request fails$|gives errors only",
        ),
        ends(
            "no connection; your function raises anything, exits, is cancelled or does not return",
            "retried; before the first reply, the run ends after 20 attempts, or when a call raises the same three times",
            "0 or 1",
            "the server (is down|goes)|slow answers|^A function fails: it ",
        ),
        ends(
            "wrong key, no credit, no such model (401 to 404), an exhausted quota, a requested wait of more than five minutes",
            "not retried; after 20 consecutive questions, the run ends",
            "1",
            r"\(40[1234]\)|quota (is gone$|goes)|the quota is gone \(|with few questions|it is out of quota|while the quota is gone, then again|the key is refused while a batch",
        ),
        ends(
            "any other 4xx, a response above 64 MiB, a redirect to another server (which receives nothing), a 200 that Inspect cannot parse; your function returns no text, or a confidence outside [0, 1]",
            "retried only when the run is resumed; before the first reply, the run ends after 20 questions",
            "1*",
            "ends in 400|every request is invalid|too large once|one reply is too large|redirected|malformed way",
        ),
        ends(
            "a reply is unusable, or the grader fails ([final replies](#final-replies))",
            "the question is unscored",
            "1*",
            "is filtered|is cut (off )?for|only reasoning|calls a tool|million characters|an error repeats the key .con|of no use: it (talks|says|gives)",
        ),
        ends(
            "the provider rejects temperature, top-p or the seed",
            "they are not sent; a line and [`run.json`](reference/files.md#what-was-sent) say so",
            "0",
            tested="test_theory_a_line_names_what_was_left_out_and_what_was_changed",
        ),
        ends(
            "the server names another model during a run",
            "the run continues; a caveat counts the replies of each",
            "0",
            "from the middle on$|which model gave it|dated version|the model's name in each",
        ),
        ends(
            "Ctrl-C, SIGTERM, SIGHUP; `evaluate_async` is cancelled",
            "requests in flight are completed and stored",
            "130; none if cancelled",
            r"(interrupted .SIGINT|terminated .SIGTERM|SIGHUP\)$|when interrupted)",
            tested="test_cancelling_keeps_received_replies",
        ),
        ends(
            "`--max-requests`, `--max-cost` or `--max-time` is reached",
            "the same; a larger budget resumes the run",
            "1",
            "--max-(requests|cost|time) is reached|does not end within --max-time|no end before --max-time",
        ),
        ends(
            "`--max-cost`, and a reply without usable token counts",
            "the run ends; use `--max-requests`",
            "1",
            "--max-cost is given",
        ),
        ends(
            "a second signal, or `kill -9`",
            "[requests in flight](#requests-in-flight) are lost and sent again later",
            "130 or the signal's",
            "(interrupted|terminated) twice|from outside: kill -9|kill -9 at a call|kill -9 when all",
        ),
        ends(
            "SIGHUP under `nohup`; nobody reads the output any more (`head -1`)",
            "the run continues",
            "0, 1 or 141",
            "under nohup|closed pipe",
        ),
        ends(
            "a run is repeated, also with another base URL of the same model, or another engine",
            "only missing replies are requested",
            "0",
            "a finished run once more|resumed or extended: (the same server under|resumed by another engine)",
        ),
        ends(
            "`score` after `kill -9`, or of an extended run without new replies",
            "it scores the replies that are there",
            "0, 1 or 2",
            "killed in the second of two variants|scored while a batch|while the quota is gone, then scored",
        ),
        ends(
            "the program of `--engine command` fails",
            "replies that it wrote are kept",
            "1 or the signal's",
            "^A program answers the requests: ",
        ),
        ends(
            "an internal error",
            "a traceback, and one line to report",
            "2",
            tested="test_internal_error_ends_with_2_and_a_traceback",
        ),
    ),
)
"""How a run goes on and ends; * stands for 0 if few questions are concerned."""

FOLDER = Table(
    ENDS,
    (
        ends(
            "`outcomes.parquet`, `summary.json` or `report.html` is damaged or missing",
            "`score FOLDER` recreates it; `report` stops if the first is damaged",
            "0 or 2",
            r"(outcomes.parquet|summary.json) is (empty|cut|scrambled|gone)$|all that is derived|summary.json is cut, before a report|outcomes.parquet is cut, before a report",
        ),
        ends(
            "`run.json` or `replies.sqlite` is damaged or missing",
            "the command stops and names the file; restore it",
            "2",
            "damaged: (run.json is|the store of replies is|one bit of)",
        ),
        ends(
            "`replies.sqlite-wal` is lost after `kill -9`",
            "replies in it are requested again",
            "0",
            "-wal file is lost",
        ),
        ends(
            "another process runs in the same folder",
            "one stops and states why; without file locks, requests in flight are paid for twice",
            "1 or 2 for that one, 0 for the other",
            r"a second run in the same folder( \(|$)|whose lock does not keep it out",
        ),
        ends(
            "a command is killed while it writes",
            "each file is the old or the new one; the same command completes it",
            "the signal's",
            "kill -9 while .* writes",
        ),
        ends(
            "the disk is full; the folder is read-only, a link to itself, or cannot have its name",
            "the run ends and states why; stored replies remain",
            "1 or 2",
            "^The disk is full: |the disk is full at a call|read-only|too long for any disk|a symbolic link to itself",
        ),
        ends(
            "the folder that the [GitHub Action](how-to/release-gate.md) uses was committed",
            "the Action deletes it and asks the model",
            "0, 1, 2 or 3",
            "^Somebody else wrote the folder: ",
        ),
        ends(
            "a run was read and graded by another version",
            "`show` shows it, `score --regrade` grades it again; `compare` and `gate` reject a mixture",
            "0 or 2",
            tested="test_folder_of_another_version_is_kept_unless_regraded",
        ),
        ends(
            "unreadable certificates; an input file too large once unpacked, or nested too deeply; a plugin that exits or takes a provider's name",
            "the command stops and names the cause",
            "2",
            "certificates|unpacks to|nested 20,000|plugin",
        ),
        ends(
            "100,000 questions; no terminal, no `HOME`, `COLUMNS=0`, `LANG=C`, `TERM=dumb`; a wrong clock; a half-written file; an unusual name of a folder, or a symbolic link to it",
            "no difference",
            "0",
            "^A run is large: |a width of 0|HOME|LANG=C|a terminal$|TERM=dumb|clock jumps|by a clock years|half-written file|somewhere unusual: (a name (with|beyond|of)|behind)",
        ),
    ),
)
"""What files, folders, the environment, the terminal, the clock and plugins do."""

BATCHES = Table(
    ENDS,
    (
        ends(
            "a batch is in flight when the run ends",
            "it continues; the same command collects its results",
            "1",
            "does not end within --max-time|nothing is heard of a batch|the server goes while a batch|the key is refused while a batch",
        ),
        ends(
            "a call of a batch API fails, or its answer is lost",
            "retried; a batch is never submitted twice",
            "0",
            "in flight: (a call of the API|the server is down for a moment at|a fifth of the requests expires|the connection is cut|results come in half.* once|.* for what else is in flight)",
        ),
        ends(
            "the provider refuses or forgets a batch, lets it expire each time, or gives incomplete or unreadable results",
            "what can be read is stored; the run ends and states why, and how to give up the batch",
            "1",
            "the file is refused|has no batches|can be (handed|submitted)|the batch is refused|refused for its model|all requests expire|cannot be fetched|each time$|results (have|are|in small)|no results and no counts|forgets the batch",
        ),
        ends(
            "unknown whether a batch was submitted",
            "if it is not in the provider's list, the command stops and says how to give it up",
            "0, 1, 2 or 130",
            "is not known|a submission is lost",
        ),
        ends(
            "`batches.jsonl` is damaged, is a link or names another batch; the provider's name for a file or a batch is not a plain id",
            "the run ends and states why",
            "1 or 2",
            "the journal (is scrambled|is none|is a symbolic|names)|the name of a (batch|file)",
        ),
        ends(
            "a batch is given up (`--engine-option forget=KEY`); `batches.jsonl` is empty, missing or torn",
            "requests in flight are paid for again (not if only the last line is torn)",
            "0",
            "given up|the journal (ends|is empty|is gone)",
        ),
        ends(
            "another base URL or engine while a batch is in flight",
            "the command stops and names the one that collects the batch",
            "2",
            "a batch in flight$|another base URL, and|another engine while",
        ),
    ),
)
"""What happens to batches in flight."""

REPLIES = Table(
    ("reply", "outcome"),
    (
        replies(
            "text, even if it addresses the grader",
            "it is read, and [graded](graders.md) if it answers",
            "stops for|of a megabyte|comes (in|as)|holds a byte|a count of tokens|a reply addresses it",
        ),
        replies(
            "a refusal by the API (a field, part or finish reason `refusal`), whatever its text says",
            "refused",
            "a refusal comes as",
        ),
        replies(
            "empty or only reasoning; cut at the token limit, even after a tag, or a prompt too long; filtered, also by an error 400; a tool call; an unknown finish reason, such as `error`; a verdict unreadable twice; two graders that disagree",
            "unscored, with a [reason](reference/files.md#reasons-for-unscored)",
            "only reasoning|cut for its length|cut off for '|context_length|17 million|filtered|SAFETY|content_filter|calls a tool|of no use: it (talks|says|gives)",
            tested="test_grader_disagreements_are_unscored_and_listed",
        ),
        replies(
            "no text in any choice: an error beside or in the choices, `content: null`, no choices",
            "retried like an error; where some choices have text, these count",
            "an error (next to|in) the choice|content null|is null whenever|are a number|without choices|some of several choices",
        ),
        replies(
            "a key of the run's clients in the text (a word in a variable such as `ANSWER_KEY` is none)",
            "replaced by `[key]`; a caveat counts such replies",
            "in variables that are named like keys",
            tested="test_key_of_a_client_is_removed_only_from_its_reply_which_is_marked",
        ),
    ),
)
"""What a reply is taken for."""

TABLES = {
    "run": RUN,
    "folder": FOLDER,
    "batches": BATCHES,
    "replies": REPLIES,
}
"""The tables of the page, by the names that mark their places there."""

PLACE = re.compile(r"(<!-- table: (\w+) -->\n\n).*?(\n<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """Return the page with its tables written again."""
    return PLACE.sub(lambda place: f"{place[1]}{_written(TABLES[place[2]])}{place[3]}", document)


def _written(table: Table) -> str:
    lines = [table.columns, tuple("---" for _ in table.columns)]
    lines += [(rule.situation, *rule.cells) for rule in table.rules]
    head, rule, *rest = (f"| {' | '.join(line)} |\n" for line in lines)
    return "".join([head, rule.replace(" ", ""), *rest])


def statuses(rule: Rule) -> set[int]:
    """Return the exit statuses that a rule about the end of a run names."""
    text = rule.cells[-1]
    numbers = {int(number) for number in re.findall(r"\d+", text)}
    return numbers | ({DONE} if "*" in text else set()) | ({-9} if "signal" in text else set())
