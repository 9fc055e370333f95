"""The page in a real browser. After every test it must have logged nothing and fetched nothing (`new_page`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.render.chromium import Browser, Page
from tests.render.making import HOSTILE, VARIANTS, report_run, rows, write_page

NewPage = Callable[..., Page]


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return rows(300)


@pytest.fixture(scope="module")
def report(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page([report_run(table)], tmp_path_factory.mktemp("report") / "report.html").path


def _text(page: Page, selector: str) -> str:
    return str(page.run(f"document.querySelector({json.dumps(selector)}).textContent"))


def _choose(page: Page, field: str, value: str) -> None:
    page.run(
        f"(() => {{ const field = document.getElementById('{field}'); field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    page.settle()


def _row_count(page: Page) -> int:
    return int(_text(page, "#count").split(" ")[0].replace(",", ""))


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.slow
def test_opens_at_any_width_without_scrolling_sideways(
    new_page: NewPage, report: Path, width: int, height: int, dark: bool
) -> None:
    page = new_page(report, width=width, height=height, dark=dark)
    assert page.run("document.documentElement.scrollWidth") == width
    assert _row_count(page) == 300


@pytest.mark.slow
def test_first_screen_shows_index_verdict_caveats_cells_and_rates(new_page: NewPage, report: Path) -> None:
    page = new_page(report)
    bottoms = page.run(
        "[...document.querySelectorAll('.large, .headline small, .verdict, .forest, .caveats, .rates, .observed td a')]"
        ".map((part) => part.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 10
    assert max(bottoms) < 800


@pytest.mark.slow
def test_filters_match_the_outcome_table(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    page = new_page(report)
    refused_right = pl.col("refused") & ~pl.col("wrong")
    _choose(page, "cell", "1")
    assert _row_count(page) == table.filter(refused_right)["question_id"].n_unique()
    _choose(page, "variant", "1")
    under_normal = table.filter(refused_right, variant="normal")
    assert _row_count(page) == under_normal.height
    topic = sorted(under_normal["topic"].unique())[2]
    _choose(page, "topic", "2")
    assert _row_count(page) == under_normal.filter(topic=topic).height
    _choose(page, "cell", "-1")
    _choose(page, "first", "0")
    assert _row_count(page) == table.filter(variant="normal", topic=topic, first_grade="correct").height
    page.click("#filters button[type=reset]")
    page.settle()
    assert _row_count(page) == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table_of_run", "words"),
    [
        (rows(60, variants=("normal",)), "Wrong"),
        (rows(60, variants=("normal",), draws=2), "Confidently wrong"),
        (rows(60), "Confidently wrong"),
    ],
    ids=["one answer", "two samples", "several prompts"],
)
def test_one_answer_under_one_prompt_is_not_called_confident(
    new_page: NewPage, tmp_path: Path, table_of_run: pl.DataFrame, words: str
) -> None:
    page = new_page(write_page([report_run(table_of_run)], tmp_path / "report.html").path)
    assert str(page.run("document.querySelector(\"[data-lens='2']\").firstChild.textContent")) == words


def _address(page: Page) -> str:
    return str(page.run("location.hash"))


def _back(page: Page) -> None:
    page.run(
        "new Promise((done) => { addEventListener('popstate', done, { once: true }); history.back(); }).then(() => 1)"
    )
    page.settle()


@pytest.mark.slow
def test_2x2_table_cells_link_to_their_questions(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    page = new_page(report)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    links = page.run(
        "[...document.querySelectorAll('.mosaics .counts a')].map((a) => [a.getAttribute('href'), a.textContent])"
    )
    assert len(links) == 16
    for href, count in links:
        page.click(f'.counts a[href="{href}"]')
        page.settle()
        assert _row_count(page) == int(count.replace(",", "")), href
    high = table.filter(pl.col("refused") & ~pl.col("wrong"), variant="high")
    page.click(".counts a[href*='variant=high&cell=refused_right']")
    page.settle()
    assert _row_count(page) == high.height
    assert _address(page) == "#questions?variant=high&cell=refused_right"
    assert page.run("document.activeElement.id") == "list"
    assert -1 <= page.run("document.getElementById('questions').getBoundingClientRect().top") < 100


@pytest.mark.slow
def test_view_is_restored_from_its_link_and_by_the_back_button(
    new_page: NewPage, report: Path, table: pl.DataFrame
) -> None:
    page = new_page(report)
    topic = sorted(table["topic"].unique())[1]
    _choose(page, "cell", "2")
    _choose(page, "topic", "1")
    page.click("[data-lens='2']")
    page.run("document.getElementById('search').focus()")
    for letter in "numb":
        page.type(letter)
        page.settle()
    address, found = _address(page), _row_count(page)
    chosen = f"cell=answered_wrong&topic={topic.replace(' ', '+')}"
    assert address == f"#questions?look=confidently_wrong&search=numb&{chosen}"
    seen = []
    for _ in range(4):
        _back(page)
        seen.append((_address(page), _row_count(page)))
    wrong = table.filter(pl.col("refused") == False, wrong=True)  # noqa: E712  a column
    assert [address.partition("?")[2].partition("&topic")[0] for address, _ in seen] == [
        "look=confidently_wrong&cell=answered_wrong", "cell=answered_wrong", "cell=answered_wrong", "",
    ]  # fmt: skip
    assert seen[1][1] == wrong.filter(topic=topic)["question_id"].n_unique()
    assert seen[2][1] == wrong["question_id"].n_unique()
    assert seen[3][1] == 300
    sent = new_page(report, address)
    assert _row_count(sent) == found
    assert sent.run("document.getElementById('search').value") == "numb"
    assert sent.run("document.querySelector(\"[data-lens='2']\").getAttribute('aria-pressed')") == "true"


@pytest.mark.slow
def test_navigation_keeps_filters_and_clearing_them_adds_history(new_page: NewPage, report: Path) -> None:
    page = new_page(report)
    _choose(page, "cell", "1")
    found = _row_count(page)
    page.click(".bar a[href='#run-1-plane']")
    page.settle()
    assert _row_count(page) == found
    page.click(".bar .to-questions")
    page.settle()
    assert (_row_count(page), _address(page)) == (found, "#questions?cell=refused_right")
    page.click("#filters button[type=reset]")
    page.settle()
    assert (_row_count(page), _address(page)) == (300, "#questions")
    _back(page)
    assert (_row_count(page), _address(page)) == (found, "#questions?cell=refused_right")


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        "#questions?cell=__proto__&variant=nobody&topic=%00&look=toString&run=0&draw=first",
        "#questions?%E0%A4%A&cell=%ff",
        "#%E0",
        "#constructor",
    ],
)
def test_unknown_address_shows_all_questions(new_page: NewPage, report: Path, address: str) -> None:
    assert _row_count(new_page(report, address)) == 300


def _left_out(page: Page) -> str:
    found = "document.getElementById('left-out')"
    return str(page.run(f"{found}.checkVisibility() ? {found}.textContent : ''"))


@pytest.mark.slow
def test_unknown_link_parameters_are_reported_and_removed(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    """Earlier, all questions were listed without a notice, as if the filters had been applied."""
    known = "cell=refused_right&search=numb&look=all&draw=first"
    page = new_page(report, f"#questions?run=9&variant=xyz&{known}&varient=low")
    assert (
        _left_out(page) == "Ignored in the link because this report does not have it: run=9, variant=xyz, varient=low."
    )
    assert _address(page) == "#questions?search=numb&cell=refused_right"
    assert page.run("document.getElementById('cell').value") == "1"
    page.click("#filters button[type=reset]")
    page.settle()
    assert (_left_out(page), _row_count(page)) == ("", 300)
    _back(page)
    assert (_left_out(page), _address(page)) == ("", "#questions?search=numb&cell=refused_right")
    page.run("location.hash = '#questions?topic=<img src=x>\u202e'")
    page.settle()
    assert "topic=<img src=x>\u27e8U+202E\u27e9" in _left_out(page)
    assert (_row_count(page), _address(page), page.run("document.images.length")) == (300, "#questions", 0)
    variant = table["variant"][0]
    assert _left_out(new_page(report, f"#questions?run=1&variant={variant}&order=file")) == ""


@pytest.mark.slow
def test_address_is_treated_as_plain_text(new_page: NewPage, report: Path) -> None:
    text = "<img src=x onerror=alert(1)>'\"&cell=1#+%"
    page = new_page(report)
    _choose(page, "search", text)
    sent = new_page(report, _address(page))
    assert sent.run("document.getElementById('search').value") == text
    assert sent.run("document.querySelectorAll('img').length") == 0
    assert _row_count(sent) == 0


@pytest.mark.slow
def test_cell_and_its_link_count_first_draws_only(new_page: NewPage, tmp_path: Path) -> None:
    first = rows(80, variants=("normal",), seed=1).with_columns(pl.lit(0, pl.Int64).alias("draw"))
    again = rows(80, variants=("normal",), seed=2).with_columns(pl.lit(1, pl.Int64).alias("draw"))
    page = new_page(write_page([report_run(pl.concat([first, again]))], tmp_path / "report.html").path)
    page.click(".counts a[href*='cell=answered_right']")
    page.settle()
    expected = first.filter(refused=False, wrong=False).height
    assert _row_count(page) == expected
    assert _address(page) == "#questions?cell=answered_right&draw=first"
    _choose(page, "draw", "-1")
    assert _row_count(page) > expected


@pytest.mark.slow
def test_lenses_count_and_filter(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    page = new_page(report)
    wrong = table.filter(~pl.col("refused"), pl.col("wrong"), variant="highest").height
    assert _text(page, "[data-lens='2'] b") == str(wrong)
    page.click("[data-lens='2']")
    page.settle()
    assert _row_count(page) == wrong
    assert page.run("document.querySelector(\"[data-lens='2']\").getAttribute('aria-pressed')") == "true"


@pytest.mark.slow
def test_search_covers_questions_answers_replies_and_ids(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    page = new_page(report)
    page.click("#search")
    for words in ("number 17?", "THING 29", table["forced_reply"][123][5:25], "q77", "nothing like that"):
        page.run("document.getElementById('search').value = ''")
        page.type(words)
        page.settle()
        columns = ("question", "gold", "first_reply", "forced_reply", "question_id", "topic")
        held = [pl.col(name).str.to_lowercase().str.contains(words.lower(), literal=True) for name in columns]
        assert _row_count(page) == table.filter(pl.any_horizontal(held))["question_id"].n_unique(), words
    assert _text(page, "#rows") == "No questions match."


@pytest.mark.slow
def test_list_renders_only_visible_rows(new_page: NewPage, report: Path) -> None:
    page = new_page(report)
    assert page.run("document.querySelectorAll('.row').length") < 30
    page.run("document.getElementById('list').scrollTop = 8000")
    page.settle()
    assert page.run("document.querySelectorAll('.row').length") < 30
    places = page.run("[...document.querySelectorAll('.row')].map((row) => Number(row.ariaPosInSet))")
    assert min(places) <= 8000 // 56 + 1 <= max(places)


@pytest.mark.slow
def test_a_click_opens_both_replies_of_every_prompt(new_page: NewPage, report: Path, table: pl.DataFrame) -> None:
    page = new_page(report)
    _choose(page, "search", "number 42?")
    page.click(".row")
    page.settle()
    replies = page.run("[...document.querySelectorAll('#detail .reply')].map((reply) => reply.textContent)")
    asked = table.filter(question_id="q42").sort(pl.col("variant").replace_strict(list(VARIANTS), [0, 1, 2, 3]))
    assert replies == [reply for row in asked.rows(named=True) for reply in (row["first_reply"], row["forced_reply"])]
    assert _text(page, "#detail-title") == "What is the name of thing number 42?"
    grades = page.run("[...document.querySelectorAll('#detail .what span:last-child')].map((span) => span.textContent)")
    assert grades == [grade for row in asked.rows(named=True) for grade in (row["first_grade"], row["forced_grade"])]


@pytest.mark.slow
def test_keyboard_alone_searches_opens_navigates_and_closes(new_page: NewPage, report: Path) -> None:
    page = new_page(report)
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.run("document.getElementById('list').focus()")
    for _ in range(3):
        page.press("ArrowDown")
    assert page.run("document.getElementById('list').getAttribute('aria-activedescendant')") == "row-3"
    fourth = _text(page, "#row-3 .text")
    page.press("Enter")
    assert _text(page, "#detail-title") == fourth
    assert page.run("document.activeElement.id") == "list"
    page.press("ArrowUp")
    page.press("Enter")
    assert _text(page, "#detail-title") == _text(page, "#row-2 .text")
    page.press("Escape")
    assert page.run("document.getElementById('detail').open") is False
    page.press("End")
    assert _text(page, ".row.active").startswith(_text(page, "#row-299 .text"))


@pytest.mark.slow
def test_on_a_phone_a_question_covers_the_page_and_escape_returns_to_the_list(new_page: NewPage, report: Path) -> None:
    page = new_page(report, width=390, height=844)
    page.click(".row:nth-child(2)")
    page.settle()
    assert page.run("document.getElementById('detail').matches(':modal')") is True
    assert page.run("document.getElementById('detail').getBoundingClientRect().height") == 844
    page.press("Escape")
    page.settle()
    assert page.run("document.activeElement.id") == "list"


@pytest.mark.slow
def test_theme_follows_the_system_and_the_switch(new_page: NewPage, report: Path) -> None:
    page = new_page(report, dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.run(paper)
    page.click("#theme")
    light = page.run(paper)
    assert _text(page, "#theme") == "Theme: light"
    assert light != dark
    page.click("#theme")
    assert page.run(paper) == dark
    page.open(report)
    assert _text(page, "#theme") == "Theme: dark"


@pytest.mark.slow
def test_prints_the_numbers_and_not_the_list(new_page: NewPage, report: Path) -> None:
    page = new_page(report, dark=True)
    page.send("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.getElementById('browser')).display") == "none"
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("document.querySelector('.mosaic').getBoundingClientRect().height") > 50


@pytest.mark.slow
def test_hostile_text_is_shown_as_text(new_page: NewPage, tmp_path: Path) -> None:
    table = rows(len(HOSTILE))
    numbers = pl.int_range(pl.len()) % len(HOSTILE)
    hostile = numbers.replace_strict(list(range(len(HOSTILE))), list(HOSTILE), return_dtype=pl.String)
    names = {"low": HOSTILE[0], "normal": HOSTILE[1], "high": HOSTILE[4], "highest": HOSTILE[6]}
    table = table.with_columns(
        *(hostile.alias(name) for name in ("question", "gold", "first_reply", "forced_reply", "topic")),
        (hostile + pl.col("question_id")).alias("question_id"),
        pl.col("variant").replace_strict(names),
        pl.lit(HOSTILE[1]).alias("model"),
        pl.lit(HOSTILE[0]).alias("dataset"),
    )
    page = new_page(write_page([report_run(table, label=HOSTILE[1])], tmp_path / "report.html").path)
    assert page.run("document.documentElement.dataset.owned ?? ''") == ""
    assert page.run("document.querySelectorAll('img, iframe, main script').length") == 0
    for number in range(len(HOSTILE)):
        page.click(f".row:nth-child({number + 1})")
        page.settle()
        title, reply = _text(page, "#detail-title"), _text(page, "#detail .reply")
        assert title == reply
        assert title in {_made_visible(text) for text in HOSTILE}
    assert page.run("document.documentElement.dataset.owned ?? ''") == ""
    assert page.run("getComputedStyle(document.querySelector('#detail .reply')).unicodeBidi") in (
        "isolate",
        "plaintext",
    )


def _made_visible(text: str) -> str:
    """Return what a reader sees: control characters are replaced by their code points."""
    for character in "\x1b\x07\u202e\u2066\u2069\u2028\u2029\x00":
        text = text.replace(character, f"U+{ord(character):04X}")
    return text


@pytest.mark.slow
def test_long_replies_are_cut_in_the_middle_and_say_so(new_page: NewPage, tmp_path: Path) -> None:
    long = "\U0001f600 beginning " + "x" * 9_000 + " end <answer>A</answer>"
    table = rows(5, variants=("normal",)).with_columns(first_reply=pl.lit(long))
    page = new_page(write_page([report_run(table)], tmp_path / "report.html").path)
    page.click(".row")
    page.settle()
    reply = _text(page, "#detail .reply")
    assert reply.startswith("\U0001f600 beginning x")
    assert reply.endswith("x end <answer>A</answer>")
    assert f"{len(long) - 4000:,} of {len(long):,} characters left out" in reply
    assert reply.count("x") == 4000 - (len(long) - 9_000)
    assert "longer than 4,000 characters" in _text(page, "#browser > .note:last-child")


@pytest.mark.slow
def test_browser_without_decompression_shows_a_notice_and_the_rest(chromium: Browser, tmp_path: Path) -> None:
    written = write_page([report_run(rows(400, length=200))], tmp_path / "report.html")
    assert 'type="application/gzip"' in written.path.read_text(encoding="utf-8")
    page = Page(chromium)
    page.send("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")
    page.open(written.path)
    assert "requires a browser from 2023 or later" in _text(page, "#reading")
    assert page.run("document.querySelectorAll('.mosaic').length") == 4
    assert page.complaints() == []
    page.close()


@pytest.mark.slow
def test_identical_draws_are_shown_once_with_their_count(new_page: NewPage, tmp_path: Path) -> None:
    draws = [rows(1, variants=("normal",)).with_columns(pl.lit(draw, pl.Int64).alias("draw")) for draw in range(5)]
    same = pl.concat(draws).with_columns(
        first_reply=pl.when(pl.col("draw") == 4).then(pl.lit("b")).otherwise(pl.lit("a"))
    )
    page = new_page(write_page([report_run(same)], tmp_path / "report.html").path)
    page.click(".row")
    page.settle()
    texts = page.run("[...document.querySelectorAll('#detail .draws')].map((one) => one.textContent)")
    assert texts == ["4 of 5 samples", "sample 5 of 5"]


@pytest.mark.slow
def test_several_runs_are_listed_and_filtered(new_page: NewPage, tmp_path: Path) -> None:
    tables = [
        rows(120, model=name, rho=rho, seed=seed) for seed, (name, rho) in enumerate([("one", 0.8), ("two", 0.1)])
    ]
    runs = [report_run(table, label=table["model"][0]) for table in tables]
    page = new_page(write_page(runs, tmp_path / "report.html").path)
    names = page.run("[...document.querySelectorAll('#overview .forest th[scope=row]')].map((one) => one.textContent)")
    assert names == ["one", "two"]
    assert _row_count(page) == 240
    _choose(page, "run", "1")
    assert _row_count(page) == 120
    assert page.run("document.getElementById('run-2').open") is False
    page.click(".bar a[href='#run-2']")
    page.settle()
    assert page.run("document.getElementById('run-2').open") is True


@pytest.mark.slow
def test_4326_questions_under_4_prompts_stay_small_and_quick(
    new_page: NewPage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = report_run(rows(4326, length=200))
    started = time.perf_counter()
    written = write_page([run], tmp_path / "report.html")
    made = time.perf_counter()
    page = new_page(written.path)
    opened = time.perf_counter()
    waits = page.run(
        "(async () => { const waits = []; const field = document.getElementById('search');"
        " const count = document.getElementById('count');"
        " for (const words of ['thing 12', 'zz', 'ab', '']) { field.value = words; const start = performance.now();"
        " const changed = new Promise((done) => new MutationObserver((_, one) => { one.disconnect(); done(); })"
        ".observe(count, { childList: true }));"
        " document.getElementById('filters').dispatchEvent(new Event('input')); await changed;"
        " waits.push(Math.round(performance.now() - start)); } return waits; })()"
    )
    with capsys.disabled():
        print(
            f"\n4,326 x 4, replies of 200 random letters: {written.size / 1e6:.1f} MB, made in {made - started:.1f} s, "
            f"opened in {opened - made:.1f} s, filtered in {waits} ms (including a 60 ms wait for further keys)"
        )
    assert written.size < 15_000_000
    assert written.n_cut == 0
    assert page.run("document.querySelectorAll('.row').length") < 40
    assert page.run("document.querySelectorAll('*').length") < 2_000
