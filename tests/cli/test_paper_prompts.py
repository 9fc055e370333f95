"""`build paper-prompts`: from LaTeX to a prompt set and a grader's prompt. The small LaTeX file here is our own.

What is expected of the paper's own source is in tests that need it beside the repository; its text is not repeated.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Question
from refusal_index.data.published import published_results
from refusal_index.plugins.paper.latex import LatexSource, PaperError, plain_text
from refusal_index.plugins.paper.prompts import VARIANTS, numbers_in_words, paper_prompts, printed_prompt, toml_text
from refusal_index.protocol import FORCED, load_grader_prompt, load_prompt_set
from refusal_index.protocol.prompts import UNANSWERED

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper.tex"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason="needs the paper's source beside the repository")

OWN = r"""
\documentclass{article}
\begin{document}
% \begin{figure} \label{fig:second_pass_prompt} a comment, 50\% done \end{figure}
\begin{figure*}[t]
\begin{lstlisting}[language=none]
A Title

CASE 1
Q: Who won {x}, 5% of \it?
A: <answer>Ann</answer>

[left out]

CASE 4
Q: Where is "Oz"?
A: <answer>There</answer>

Think first. Then write <answer>...</answer>. Never write <answer>UNANSWERED</answer>.

Now: {question}
\end{lstlisting}
\caption{Forced}\label{fig:second_pass_prompt}
\end{figure*}
\begin{figure}
\begin{verbatim}
Another title

CASE 1
Q: Who won {x}, 5% of \it?
A: <answer>Ann</answer>

CASE 4
Q: Where is "Oz"?
A: <answer>UNANSWERED</answer>

Think first. Then write <answer>...</answer>. Be careful.

Now: {question}
\end{verbatim}
\label{fig:first_pass_prompt_highest}
\end{figure}
\begin{table}[h]
\begin{tabularx}{\textwidth}{>{\raggedright\arraybackslash}p{2cm} *{2}{>{\centering}X}} % columns
\toprule
\textbf{Kind} & \emph{Text} & Share \\ \midrule
Low level & Be bold \& quick, 100\% of the time. & 0 / 4 \\[2pt]
Normal level & Say $<$answer$>$UNANSWERED$<$/answer$>$ if ``unsure''. & 1/4 \\
High level & \texttt{NO\_GUESS}: use \verb|{%}|~now -- or never. & 2 / 4 \\
Highest level & (abridged) & 3 / 4 \\
\bottomrule
\end{tabularx}
\label{tab:first_pass_prompt_variants}
\end{table}
\begin{figure}
\begin{lstlisting}
Say A, B or C about {this}.
<Asked>{question}</Asked>
<Right>{answer}</Right>
<Said>{predicted_answer}</Said>
\end{lstlisting}
\label{fig:llm_grader_prompt}
\end{figure}
\end{document}
"""


@pytest.fixture
def own_paper(tmp_path: Path) -> Path:
    path = tmp_path / "own.tex"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_own_source_becomes_a_prompt_set(command, own_paper):
    result = command("build", "paper-prompts", str(own_paper), "--out", "made")
    assert result.exit_code == 0, result.output
    assert "2 of its 4 worked examples are not the paper's, which omits them: 2 and 3" in result.stdout
    prompts = load_prompt_set("made/paper-prompts.toml")
    assert tuple(prompts.variants) == VARIANTS
    assert prompts.name == "paper"
    assert [prompts.variant(name).instruction for name in (*VARIANTS, FORCED)] == [
        "Be bold & quick, 100% of the time.",
        "Say <answer>UNANSWERED</answer> if \u201cunsure\u201d.",
        "NO_GUESS: use {%} now \u2013 or never.",
        "Be careful.",
        "Never write <answer>UNANSWERED</answer>.",
    ]
    assert [prompts.variants[name].unanswered for name in VARIANTS] == [(), (4,), (2, 4), (2, 3, 4)]
    defaults = load_prompt_set("default").examples
    assert prompts.examples[1:3] == defaults[1:3]
    preamble, question = prompts.render("highest", "Who?")
    assert preamble == (
        "CASE 1\nQ: Who won {x}, 5% of \\it?\nA: <answer>Ann</answer>\n\n"
        f"CASE 2\nQ: {defaults[1].question}\nA: <answer>UNANSWERED</answer>\n\n"
        f"CASE 3\nQ: {defaults[2].question}\nA: <answer>UNANSWERED</answer>\n\n"
        'CASE 4\nQ: Where is "Oz"?\nA: <answer>UNANSWERED</answer>\n\n'
        "Think first. Then write <answer>...</answer>. Be careful."
    )
    assert question == "Now: Who?"
    assert "title" not in preamble.lower()


def test_own_source_becomes_a_prompt_of_a_grader(command, own_paper):
    assert command("build", "paper-prompts", str(own_paper), "--out", "made").exit_code == 0
    prompt = load_grader_prompt(Path("made/paper-grader.toml"))
    assert prompt.message(Question("q", "Who?", "Ann"), "Bob</said>") == (
        "Say A, B or C about {this}.\n<Asked>Who?</Asked>\n<Right>Ann</Right>\n<Said>Bob[/said]</Said>"
    )


def test_files_say_what_is_not_the_papers(command, own_paper):
    assert command("build", "paper-prompts", str(own_paper), "--out", "made").exit_code == 0
    text = Path("made/paper-prompts.toml").read_text()
    comment = " ".join(text.partition("\nname =")[0].replace("# ", "").split())
    assert "the worked examples 1 and 4." in comment
    assert "it omits the worked examples 2 and 3, in whose place stand those of the default prompt set" in comment
    assert text.count("[[examples]] # not the paper's") == 2
    assert "mind its licence" in Path("made/paper-grader.toml").read_text()


def test_source_that_omits_nothing_needs_nothing_of_ours(own_paper, command):
    more = "".join(f"CASE {number}\nQ: Which?\nA: <answer>This</answer>\n\n" for number in (2, 3))
    own_paper.write_text(OWN.replace("[left out]\n\n", more))
    result = command("build", "paper-prompts", str(own_paper), "--out", "made")
    assert "not the paper's" not in result.stdout
    assert {example.question for example in load_prompt_set("made/paper-prompts.toml").examples[1:3]} == {"Which?"}
    assert "in whose place" not in Path("made/paper-prompts.toml").read_text()


def test_source_may_be_a_folder_with_windows_line_ends(command, tmp_path):
    folder = tmp_path / "arxiv" / "sections"
    folder.mkdir(parents=True)
    head, tail = OWN.split("\\begin{table}")
    (folder / "a.tex").write_text(head.replace("\n", "\r\n"))
    (folder / "b.tex").write_text("\\begin{table}" + tail)
    assert command("build", "paper-prompts", str(tmp_path / "arxiv"), "--out", "made").exit_code == 0
    assert len(load_prompt_set("made/paper-prompts.toml").variants) == 4


def test_end_to_end_the_prompts_run_with_the_embedded_model(command, own_paper):
    assert command("build", "paper-prompts", str(own_paper), "--out", "made").exit_code == 0
    assert command("prompts", "made/paper-prompts.toml").exit_code == 0
    assert command("prompts", "made/paper-grader.toml", "--grader").exit_code == 0
    result = command("run", "--prompts", "made/paper-prompts.toml", "--limit", "4", "--out", "run")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fig:second_pass_prompt}\n\\end{figure*}", "fig:second_pass}\n\\end{figure*}", "fig:second_pass_prompt"),
        ("fig:llm_grader_prompt", "fig:grader", r"label fig:llm_grader_prompt \(the grader's prompt\), found none"),
        ("tabularx", "longtable", "expected a tabular"),
        ("lstlisting", "minted", "expected a listing"),
        ("Now: {question}", "Now:", "a paragraph with {question}, found 2 examples"),
        ("CASE 4\nQ:", "CASE 4\nB:", "worked examples of one form"),
        ("Think first. Then write <answer>...</answer>. Never", "Never", "instructions that begin alike"),
        ("Normal level", "Usual level", "found none for normal"),
        ("1/4", "1/5", "of one total"),
        ("CASE 4", "CASE 5", "worked examples 1 to 4"),
        (r"\texttt{NO", r"\mystery{NO", r"table tab:first_pass_prompt_variants: expected text, .* \\mystery"),
        ("<Said>{predicted_answer}</Said>", "{predicted_answer}", "between two marks"),
        ("{answer}", "{truth}", r"must have the fields .*\{gold\}"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_parts_that_cannot_be_found_are_named(command, tmp_path, old, new, message):
    assert old in OWN
    path = tmp_path / "other.tex"
    path.write_text(OWN.replace(old, new))
    result = command("build", "paper-prompts", str(path), "--out", "made")
    assert result.exit_code == 2, result.output
    assert re.search(message, " ".join(result.stderr.split())), result.stderr
    assert "other.tex" in result.stderr
    assert not Path("made").exists()


def test_what_is_no_source_or_no_place_is_named(command, own_paper, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.tex").write_bytes("é".encode("latin-1"))
    for path, message in (
        ("empty", "a folder without a .tex file"),
        ("none.tex", "No such file"),
        ("latin.tex", "expected LaTeX in UTF-8"),
    ):
        result = command("build", "paper-prompts", str(tmp_path / path), "--out", "made")
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    Path("made").mkdir()
    Path("made/paper-grader.toml").write_text("mine")
    result = command("build", "paper-prompts", str(own_paper), "--out", "made")
    assert (result.exit_code, "paper-grader.toml already exists" in result.stderr) == (2, True)
    assert Path("made/paper-grader.toml").read_text() == "mine"
    assert not Path("made/paper-prompts.toml").exists()


@given(st.text())
def test_every_text_is_read_back_from_toml_property(text):
    assert tomllib.loads(f"text = {toml_text(text)}")["text"] == text.replace("\r\n", "\r\n")


@given(st.lists(st.sampled_from(['"', "\\", "n", "\n", "\t", "'", "\x7f", "\x00"])).map("".join))
def test_quotes_and_backslashes_are_read_back_from_toml_property(text):
    assert tomllib.loads(f"text = {toml_text(text)}")["text"] == text


@pytest.mark.parametrize(
    ("numbers", "words"), [([], ""), ([4], "4"), ([1, 2], "1 and 2"), ([1, 3, 4, 5, 6, 8], "1, 3 to 6 and 8")]
)
def test_numbers_in_words(numbers, words):
    assert numbers_in_words(numbers) == words


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"a\_b \{c\} \#1 \$5", "a_b {c} #1 $5"),
        (r"\textbf{a \emph{b}} c", "a b c"),
        (r"\textless x\textgreater{} y", "<x> y"),
        (r"``a'' --- b\,c~d\ldots", "\u201ca\u201d \u2014 b c d..."),
        (r"\verb+\foo{%}+ end", r"\foo{%} end"),
        ("two\n  lines", "two lines"),
    ],
)
def test_latex_is_unescaped(latex, text):
    assert plain_text(latex, "here") == text


@needs_paper
def test_paper_source_gives_four_prompts_as_its_table_has_them():
    source = LatexSource(PAPER.read_text(encoding="utf-8"), "paper.tex")
    made = paper_prompts(source)
    assert made.added == (3, 4, 5, 6, 7, 8, 9)
    assert [len(made.prompts.variants[name].unanswered) for name in VARIANTS] == [0, 1, 4, 6]
    assert all(made.prompts.variants[name].instruction in _untexed(source.name) for name in ("low", "normal", "high"))


def _untexed(_: str) -> str:
    table = PAPER.read_text(encoding="utf-8").partition("Type} & \\textbf{Instruction}")[2].partition("\\bottomrule")[0]
    return re.sub(r"\\texttt\{(\w+)\}|[$]", r"\1", table)


@needs_paper
def test_paper_listings_are_reproduced_word_for_word():
    text = PAPER.read_text(encoding="utf-8")
    made = paper_prompts(LatexSource(text, "paper.tex"))
    for variant, label in ((FORCED, "fig:second_pass_prompt"), ("highest", "fig:first_pass_prompt_highest")):
        listing = LatexSource(text, "paper.tex").listing(label, "")
        shown = "\n\n".join(made.prompts.render(variant, "{question}"))
        printed = printed_prompt(LatexSource(text, "paper.tex"), label, "")
        for number, example in printed.examples.items():
            answer = UNANSWERED if number in made.prompts.variant(variant).unanswered else example.answer
            assert answer == example.answer
        assert all(paragraph in shown for paragraph in listing.split("\n\n")[1:] if "omitted" not in paragraph)
    grader = LatexSource(text, "paper.tex").listing("fig:llm_grader_prompt", "")
    ours = made.grader.gold.replace("{gold}", "{answer}").replace("{prediction}", "{predicted_answer}")
    assert ours.format(question="{question}", answer="{answer}", predicted_answer="{predicted_answer}") == grader


@needs_paper
def test_end_to_end_the_papers_prompts_pass_the_check_and_run(command):
    assert command("build", "paper-prompts", str(PAPER), "--out", "made").exit_code == 0
    assert command("prompts", "made/paper-prompts.toml").exit_code == 0
    result = command("run", "--prompts", "made/paper-prompts.toml", "--limit", "4", "--out", "run")
    assert result.exit_code == 0, result.output


@needs_paper
def test_runs_with_the_papers_wording_are_comparable_with_its_published_values():
    made = paper_prompts(LatexSource(PAPER.read_text(encoding="utf-8"), "paper.tex"))
    for published in published_results().values():
        assert (made.prompts.name, made.grader.hash) == (published.prompts, published.grader_prompt_sha256)


def test_missing_listing_is_an_error():
    with pytest.raises(PaperError, match="found none among 0 labels; name the LaTeX source"):
        LatexSource("", "x.tex").listing("fig:a", "a listing")
