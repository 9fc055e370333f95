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


def responds(response: str, action: str, rows: str) -> Rule:
    """Return the rule that says what is done about a failed request."""
    return Rule(response, (action,), rows)


def replies(reply: str, outcome: str, again: str, rows: str = "", tested: str = "") -> Rule:
    """Return the rule that says what a reply is taken for, and whether it is requested again."""
    return Rule(reply, (outcome, again), rows, tested)


ENDS = ("situation", "what happens", "exit status")

RUN = Table(
    ENDS,
    (
        ends("a run asks 100,000 questions", "no difference", "0", "^A run is large: "),
        ends(
            "rate limit, server error, timeout, dropped connection, unreadable body",
            "retried, up to `--max-retries` times",
            "0 if the retries succeed",
            "^The provider fails, and recovers: |streams end early|comes twice|an error (next to|in) the choice|some of several choices",
        ),
        ends(
            "the requests for one question keep failing",
            "the run continues without it, and asks again when resumed",
            "1*",
            "one question always ends|one reply is too large|is null whenever|five replies are|malformed way|an error repeats the key .500|one request fails$",
        ),
        ends(
            "wrong key, no credit, unknown model, server down",
            "the run ends and states the reason",
            "1",
            "^The provider fails for good: |it is out of quota|while the quota is gone, then again|gives errors only|the key is refused while a batch|the server goes while a batch",
        ),
        ends(
            "a reply is empty, truncated, filtered or a tool call",
            "the question is unscored ([final replies](#final-replies))",
            "1*",
            "is filtered|is cut (off )?for|only reasoning|calls a tool|million characters|an error repeats the key .con",
        ),
        ends(
            "the provider does not accept temperature, top-p or the seed",
            "they are not sent; a line names them, and `run.json` [records it](reference/files.md#what-was-sent)",
            "0",
            tested="test_theory_a_line_names_what_was_left_out_and_what_was_changed",
        ),
        ends(
            "the server names another model during a run",
            "the run continues; a caveat gives the number of replies of each",
            "0",
            "from the middle on$|which model gave it|dated version|the model's name in each",
        ),
        ends(
            "Ctrl-C, SIGTERM, SIGHUP",
            "requests in flight are completed and stored",
            "130",
            r"(interrupted .SIGINT|terminated .SIGTERM|SIGHUP\)$|when interrupted)",
        ),
        ends("SIGHUP under `nohup`", "the run continues", "0", "under nohup"),
        ends(
            "a second signal, or `kill -9`",
            "requests in flight are lost and sent again later",
            "130, or that of the signal",
            "(interrupted|terminated) twice|from outside: kill -9|kill -9 at a call|kill -9 when all",
        ),
        ends(
            "`score` after `kill -9`",
            "it scores what is complete",
            "1 or 2",
            "killed in the second of two variants|scored while a batch",
        ),
        ends(
            "`evaluate_async` is cancelled",
            "requests in flight are completed and stored",
            "none",
            tested="test_cancelling_keeps_received_replies",
        ),
        ends(
            "`--max-requests`, `--max-cost` or `--max-time` is reached",
            "requests in flight are completed and stored; a larger budget resumes the run",
            "1",
            "--max-(requests|cost|time) is reached|does not end within --max-time|no end before --max-time",
        ),
        ends(
            "`--max-cost` is given, and a reply has no usable token counts",
            "the run ends; use `--max-requests` instead",
            "1",
            "--max-cost is given",
        ),
        ends(
            "a function exits, raises anything, is cancelled or does not return",
            "its question fails like a request",
            "1*",
            "^A function fails: it ",
        ),
        ends(
            "a redirect to another host, port or protocol",
            "the other server receives nothing; the run ends and states the reason",
            "1",
            "redirected to another server",
        ),
        ends(
            "an internal error",
            "a traceback and one line to report",
            "2",
            tested="test_internal_error_ends_with_2_and_a_traceback",
        ),
        ends(
            "`--half-width` is reached",
            "the run is complete and says after how many questions",
            "0",
            tested="test_run_stops_at_the_first_look_with_a_narrow_interval",
        ),
        ends("a finished run is repeated", "no request is sent", "0", "a finished run once more"),
        ends(
            "resumed with another base URL of the same model, or another engine",
            "it continues",
            "0",
            "resumed or extended: (the same server under|resumed by another engine)",
        ),
        ends(
            "`score` of an extended run without new replies",
            "it scores the replies that are there",
            "0 or 1",
            "while the quota is gone, then scored",
        ),
        ends(
            "the grader's verdict is unreadable twice, or two graders disagree",
            "the question is unscored",
            "1*",
            "of no use: it (talks|says|gives)",
        ),
        ends(
            "a reply addresses the grader",
            "tags in it are rewritten; it remains the text to be graded",
            "0",
            "a reply addresses it",
        ),
        ends(
            "`regrade` with another grader, `--refusal` or `--reasoning`",
            "stored replies are read and graded again, into a new folder; a question that is now refused without a forced answer is unscored (`forced_not_asked`)",
            "1*",
            tested="test_answer_regraded_as_refusal_is_unscored_and_reported",
        ),
        ends(
            "a program (`--engine command`) fails",
            "replies that it wrote are kept",
            "1, or that of the signal",
            "^A program answers the requests: ",
        ),
    ),
)
"""How a run goes on and ends; * stands for 0 if few questions are concerned."""

FOLDER = Table(
    ENDS,
    (
        ends(
            "the disk is full",
            "the run ends; stored replies remain",
            "1 or 2",
            "^The disk is full: |the disk is full at a call",
        ),
        ends(
            "`outcomes.parquet`, `summary.json` or `report.html` is damaged or missing",
            "`refusal-index score FOLDER` recreates it",
            "0",
            r"(outcomes.parquet|summary.json) is (empty|cut|scrambled|gone)$|all that is derived|summary.json is cut, before a report",
        ),
        ends(
            "`outcomes.parquet` is damaged, and `report` is run",
            "the command stops and names the file",
            "2",
            "outcomes.parquet is cut, before a report",
        ),
        ends(
            "`run.json` or `replies.sqlite` is damaged or missing",
            "the command stops and names the file; restore it",
            "2",
            "damaged: (run.json is|the store of replies is|one bit of)",
        ),
        ends(
            "the file `replies.sqlite-wal` is lost after `kill -9`",
            "its replies are requested again",
            "0",
            "-wal file is lost",
        ),
        ends("a half-written file was left behind", "it does no harm", "0", "half-written file"),
        ends(
            "the folder is in use by another run",
            "one of the two stops and states why",
            "0 for the one, 1 or 2 for the other",
            r"a second run in the same folder( \(|$)",
        ),
        ends(
            "another process runs in the same folder, and its file system has no locks",
            "one stops; only requests in flight are paid for twice",
            "0 for the one, 1 or 2 for the other",
            "whose lock does not keep it out",
        ),
        ends(
            "any command is killed while it writes",
            "each file is the old or the new one; the same command completes it",
            "that of the signal",
            "kill -9 while .* writes",
        ),
        ends(
            "the folder is read-only, has an impossible name, or is a link to itself",
            "the command stops and states why",
            "1 or 2",
            "read-only|too long for any disk|a symbolic link to itself",
        ),
        ends(
            "the folder has an unusual name, or lies behind a symbolic link",
            "no difference",
            "0",
            "somewhere unusual: (a name (with|beyond|of)|behind)",
        ),
        ends(
            "a folder was committed in which the [GitHub Action](how-to/release-gate.md) asks",
            "the Action deletes it and asks the model",
            "0, 1, 2 or 3, as that of `gate`",
            "^Somebody else wrote the folder: ",
        ),
        ends(
            "a run was read and graded by another version",
            "`show` shows it; `score --regrade` grades its replies again; `compare` and `gate` reject a mixture",
            "0 or 2",
            tested="test_folder_of_another_version_is_kept_unless_regraded",
        ),
    ),
)
"""What a damaged or unusual folder does."""

AROUND = Table(
    ENDS,
    (
        ends(
            "a variable in the environment is named like a key and holds a word (`ANSWER_KEY=answer`)",
            "replies are stored as they came; only the keys of the run's clients are removed",
            "0",
            "in variables that are named like keys",
        ),
        ends("certificates that cannot be read", "the command stops before it sends anything", "2", "certificates"),
        ends(
            "no terminal, no `HOME`, `COLUMNS=0`, `LANG=C`, `TERM=dumb`",
            "no difference",
            "0",
            "a width of 0|HOME|LANG=C|a terminal$|TERM=dumb",
        ),
        ends(
            "nobody reads the output any more, as after `head -1`",
            "the run continues without output",
            "0, 1 or 141",
            "closed pipe",
        ),
        ends(
            "the clock jumps during a run, or differs from the provider's",
            "no wait depends on it",
            "0",
            "clock jumps|by a clock years",
        ),
        ends(
            "an input file is too large once it is unpacked, or nested too deeply",
            "the command stops and names the file or the limit",
            "2",
            "unpacks to|nested 20,000",
        ),
        ends(
            "a plugin exits, or takes the name of a provider", "the command stops and names the plugin", "2", "plugin"
        ),
    ),
)
"""What the environment, the terminal, the clock, input files and plugins do."""

BATCHES = Table(
    ENDS,
    (
        ends(
            "a batch is in flight when the run ends",
            "it continues at the provider; the same command collects its results",
            "1",
            "does not end within --max-time|nothing is heard of a batch|the server goes while a batch|the key is refused while a batch",
        ),
        ends(
            "a call of a batch API fails, or its answer is lost",
            "retried; a batch is never submitted twice",
            "0 if the retries succeed",
            "in flight: (a call of the API|the server is down for a moment at|a fifth of the requests expires|the connection is cut|results come in half.* once|.* for what else is in flight)",
        ),
        ends(
            "the provider refuses a file or a batch, or the batch expires each time",
            "the run ends and states the reason",
            "1",
            "the file is refused|has no batches|can be (handed|submitted)|the batch is refused|refused for its model|all requests expire",
        ),
        ends(
            "the results of a batch are incomplete or cannot be read, or the provider forgot the batch",
            "what can be read is stored; the run ends and says how to give up the batch",
            "1",
            "cannot be fetched|each time$|results (have|are|in small)|no results and no counts|forgets the batch",
        ),
        ends("`--engine-option forget=KEY`: a batch is given up", "what is missing is paid for again", "0", "given up"),
        ends(
            "unknown whether a batch was submitted",
            "it is looked for in the provider's list; if it is not there, the command stops and says how to give it up",
            "0, 1, 2 or 130",
            "is not known|a submission is lost",
        ),
        ends(
            "the provider names a file or a batch by something else than a plain id",
            "nothing of that name is fetched; the run ends",
            "1 or 2",
            "the name of a (batch|file)",
        ),
        ends(
            "`batches.jsonl` is damaged, is a link or names another batch",
            "the command stops and names the file, or says that the batch cannot be polled",
            "1 or 2",
            "the journal (is scrambled|is none|is a symbolic|names)",
        ),
        ends(
            "`batches.jsonl` is empty or missing, or its last line is torn",
            "requests in flight are paid for again, unless only a line is torn",
            "0",
            "the journal (ends|is empty|is gone)",
        ),
        ends(
            "another base URL or engine while a batch is in flight",
            "the command stops and names the command that collects the batch",
            "2",
            "a batch in flight$|another base URL, and|another engine while",
        ),
    ),
)
"""What happens to batches in flight."""

RETRIES = Table(
    ("response", "action"),
    (
        responds(
            "408, 409, 425, 429, any 5xx, no response within `--attempt-timeout` seconds, a truncated or unreadable body, a malformed header, a body without an answer",
            "retry; the run ends after 20 consecutive failed questions, or three minutes without a reply",
            "a burst of 429|a fifth (of|with|without)|request that hangs|nothing but 500|streams end early|comes twice|one reply is null|five replies are",
        ),
        responds(
            "no connection; a function raises anything",
            "retry; if no reply has arrived yet, the run ends after 20 attempts",
            "the server (is down|goes and does not)|slow answers|it hangs once|it exits",
        ),
        responds(
            "401, 402, 403, 404, an exhausted quota, a requested wait of more than five minutes",
            "no retry; the run ends after 20 consecutive questions",
            r"\(40[1234]\)|quota (is gone|goes)|with few questions",
        ),
        responds(
            "400 and any other 4xx, a response above 64 MiB, a redirect to another server, a 200 that Inspect cannot parse; "
            "a function returns no text or a confidence outside [0, 1]",
            "no retry until the run is resumed; if no reply has arrived yet, the run ends after 20 questions",
            "ends in 400|too large once|redirected|malformed way",
        ),
    ),
)
"""What is done about a failed request."""

REPLIES = Table(
    ("reply", "outcome", "requested again"),
    (
        replies(
            "text",
            "it is read, and graded if it answers ([graders](graders.md))",
            "no",
            "stops for|of a megabyte|comes (in|as)|holds a byte|in variables that are named|a count of tokens",
        ),
        replies(
            "a refusal by the API (a field or part `refusal`, or `refusal` as the finish reason), whatever its text says",
            "refused",
            "no",
            "a refusal comes as",
        ),
        replies("only white space, or only reasoning", "unscored, `empty`", "with `--retry`", "only reasoning"),
        replies(
            "cut at the token limit (`length`, `max_tokens`, ...), or a prompt reported as too long",
            "unscored, `truncated`, even if it has a tag",
            "with `--retry`",
            "cut for its length|cut off for '(max|MAX|model)|context_length|17 million",
        ),
        replies(
            "an unknown finish reason, such as `error` or `abort`",
            "unscored, `unknown_stop`; without text, retried like an error",
            "with `--retry`",
            "cut off for '(error|abort|insufficient)",
        ),
        replies(
            "filtered by the provider, as a reply or as an error 400",
            "unscored, `content_filter`",
            "with `--retry`",
            "filtered|SAFETY|content_filter",
        ),
        replies("a tool call", "unscored, `tool_call`", "with `--retry`", "calls a tool"),
        replies(
            "an error next to the choices, or inside each of them",
            "retried like an error",
            "when the run resumes",
            "an error (next to|in) the choice",
        ),
        replies(
            "it contains a key of the run",
            "the key is replaced by `[key]`, and a caveat counts such replies",
            "no",
            tested="test_key_of_a_client_is_removed_only_from_its_reply_which_is_marked",
        ),
        replies(
            "`content: null`, content without text, a response without choices",
            "no answer: retried like an error",
            "when the run resumes",
            "content null|is null whenever|are a number|without choices",
        ),
        replies(
            "several choices, some of them null",
            "those with text count",
            "the others, immediately",
            "some of several choices",
        ),
        replies(
            "a verdict unreadable on both attempts",
            "unscored, `grade_unreadable`",
            "with `--retry`",
            "of no use: it (talks|says|gives)",
        ),
        replies(
            "two graders that disagree",
            "unscored, `graders_disagree`",
            "with `--retry`",
            tested="test_grader_disagreements_are_unscored_and_listed",
        ),
    ),
)
"""What a reply is taken for."""

TABLES = {
    "run": RUN,
    "folder": FOLDER,
    "around": AROUND,
    "batches": BATCHES,
    "retries": RETRIES,
    "replies": REPLIES,
}
"""The tables of the page, by the names that mark their places there."""

PLACE = re.compile(r"(<!-- table: (\w+) -->\n\n).*?(\n<!-- end of table -->)", re.DOTALL)


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
