"""The report as a file, and the questions that it holds."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.analysis import Analysis
from refusal_index.data.files import json_text
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import scores_of_outcomes, write_outcomes
from refusal_index.data.written_tables import write_table
from refusal_index.errors import RunFolderError
from refusal_index.findings.run_results import RunResults, find_runs, read_runs
from refusal_index.findings.summary import Usage, summarise
from refusal_index.render import run_view
from refusal_index.render.report import is_report, write_report
from refusal_index.render.report.page import _asset, metric_rows, plane, sensitivity_rows, tiles
from refusal_index.render.report.runs import Cut, embed_questions, payload, questions_of, safe_json
from refusal_index.render.summary import summary_document
from refusal_index.stats import CELL_NAMES, METRIC_NAMES, accuracy_refusal_curve
from tests.render.making import HOSTILE, VARIANTS, counts_table, report_run, rows, write_page

# --- The HTML file


class _Parsed(HTMLParser):
    """Elements with their attributes, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        name = self._open[-1] if self._open else ""
        self.text[name] = self.text.get(name, "") + data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


def _page(tmp_path: Path, *tables: pl.DataFrame) -> str:
    runs = [report_run(table, label=str(table["model"][0])) for table in tables]
    return write_page(runs, tmp_path / "report.html").path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page_of_one_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _page(tmp_path_factory.mktemp("one"), rows(200, draws=2))


def test_page_has_no_external_links_or_inline_code(page_of_one_run: str) -> None:
    for tag, attributes in _Parsed(page_of_one_run).elements:
        for name, value in attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value is not None
                assert value.startswith(("#", "data:,")), (tag, value)
    assert "url(" not in page_of_one_run.split("<script", maxsplit=1)[0]


def test_content_security_policy_lists_style_and_script_hashes(page_of_one_run: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page_of_one_run)
    assert policy is not None
    rules = policy[1].replace("&#39;", "'")
    assert rules.startswith("default-src 'none'")
    style, script = (page_of_one_run.split(f"<{name}>")[1].partition(f"</{name}>")[0] for name in ("style", "script"))
    for name, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in rules


def test_ids_are_unique_and_references_resolve(tmp_path: Path) -> None:
    page = _page(tmp_path, rows(100, model="a"), rows(100, model="b", seed=1), rows(100, model="c", seed=2))
    elements = _Parsed(page).elements
    ids = Counter(attributes["id"] for _, attributes in elements if "id" in attributes)
    assert max(ids.values()) == 1
    for tag, attributes in elements:
        href = attributes.get("href") or ""
        if tag == "a" and href.startswith("#"):
            assert href[1:].partition("?")[0] in ids
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids or name == "detail-title"


def test_every_svg_has_a_label_or_is_aria_hidden(page_of_one_run: str) -> None:
    for tag, attributes in _Parsed(page_of_one_run).elements:
        if tag == "svg" and attributes.get("viewbox") is None:
            assert attributes.get("aria-hidden") == "true" or (
                attributes.get("aria-label") and attributes["role"] == "img"
            )


def test_page_has_landmarks_language_and_one_h1(page_of_one_run: str) -> None:
    tags = Counter(tag for tag, _ in _Parsed(page_of_one_run).elements)
    assert tags["main"] == tags["nav"] == tags["footer"] == tags["h1"] == 1
    assert ("html", {"lang": "en"}) in _Parsed(page_of_one_run).elements


@pytest.mark.parametrize("column", ["model", "dataset", "variant", "topic", "unscored_reason"])
def test_hostile_names_add_no_element(tmp_path: Path, column: str) -> None:
    text, table = " ".join(HOSTILE), rows(20, variants=("normal",))
    gone = [pl.when(pl.int_range(pl.len()) > 2).then(pl.col(name)).alias(name) for name in ("refused", "wrong")]
    table = table.with_columns(unscored_reason=pl.when(pl.int_range(pl.len()) <= 2).then(pl.lit("r"))).with_columns(
        gone
    )
    harmless = _Parsed(_page(tmp_path, table))
    hostile = _page(tmp_path, table.with_columns((pl.lit(text) + pl.col(column)).alias(column)))
    without_marks = [tag for tag, attributes in _Parsed(hostile).elements if attributes.get("class") != "control"]
    assert without_marks == [tag for tag, _ in harmless.elements]
    body = hostile.split("<body>")[1].split('id="data"')[0]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u2028\u2029]", body)


@pytest.mark.parametrize(
    "counts", [(0, 0, 5, 5), (5, 5, 0, 0), (10, 0, 5, 0), (0, 5, 0, 5), (1, 0, 0, 0), (5, 0, 0, 5)]
)
def test_degenerate_tables_make_a_page_that_says_undefined_or_boundary(
    tmp_path: Path, counts: tuple[int, int, int, int]
) -> None:
    page = _page(tmp_path, counts_table(*counts))
    assert "undefined" in page or "at the boundary" in page
    assert (
        "The correlation between its refusals and its errors is undefined" in page
        or "No conclusion about its refusals can be drawn from this number" in page
    )
    assert "nan" not in page.split('id="data"')[0].split("<body>")[1].lower()


def test_page_is_written_without_any_scored_question(tmp_path: Path) -> None:
    nothing = counts_table(3, 0, 0, 0).with_columns(
        refused=pl.lit(None, pl.Boolean), wrong=pl.lit(None, pl.Boolean), unscored_reason=pl.lit("error")
    )
    page = _page(tmp_path, nothing)
    assert "3 of 3 questions" in page


def test_metric_rows_match_the_summary() -> None:
    run = report_run(rows(300))
    held = tuple(metric_rows(run))
    assert len(held) == len(METRIC_NAMES)
    names = ("refusal_index", *(name for name in METRIC_NAMES if name != "refusal_index"))
    for row, name in zip(held, names, strict=True):
        for cell, variant in zip(row.cells, run.variants, strict=True):
            metric = variant.metric(name)
            assert cell is not None
            assert (cell.estimate, cell.low, cell.high) == (metric.estimate, metric.low, metric.high)


def test_tile_areas_equal_their_shares_and_sum_to_1() -> None:
    for variant in report_run(rows(300)).variants:
        picture = list(tiles(variant.table))
        assert sum(tile.width * tile.height for tile in picture) == pytest.approx(1)
        for tile in picture:
            assert tile.count == getattr(variant.table, tile.cell)
            assert tile.width * tile.height == pytest.approx(tile.count / 300)


def test_plane_curves_pass_through_their_points() -> None:
    run = report_run(rows(2_000))
    found = plane(run)
    assert found is not None
    for point, variant in zip(found.points, run.variants, strict=True):
        curve = [tuple(map(float, pair.split(","))) for pair in point.curve.split()]
        at = accuracy_refusal_curve(variant.table, [point.refusal.estimate]).correct_rate[0]
        assert point.correct.estimate == pytest.approx(at, abs=1e-9)
        nearest = min(curve, key=lambda place: abs(place[0] - 1000 * found.x.share(point.refusal.estimate)))
        assert nearest[1] == pytest.approx(1000 * (1 - found.y.share(at)), abs=12)
        assert curve[-1] == pytest.approx((1000, 1000), abs=0.1)


def test_sensitivity_rows_include_rules_topics_and_draws() -> None:
    run = report_run(rows(200, draws=2))
    held = {row.name: row for row in sensitivity_rows(run)}
    assert list(held) == ["RI", "Corrected RI", "forced for all", "scoring rules", "within topics"]
    for place, variant in enumerate(run.variants):
        index, corrected, forced = (held[name].cells[place] for name in ("RI", "Corrected RI", "forced for all"))
        assert variant.draws is not None
        assert index is not None
        assert corrected is not None
        assert forced is not None
        assert index.estimate == variant.index.estimate
        assert corrected.estimate == variant.draws.corrected_refusal_index.estimate
        assert forced.estimate == variant.draws.forced_for_all


def test_report_colours_match_the_figures() -> None:
    from refusal_index.plugins.studies.style import CELL_COLOURS

    style = _asset("report.css")
    for cell, colour in CELL_COLOURS.items():
        assert f"--{cell.replace('_', '-')}: {colour};" in style


def _luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_contrast_against_wcag(theme: str) -> None:
    block = _asset("report.css").split('[data-theme="dark"] {' if theme == "dark" else ":root {")[1].split("}")[0]
    colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))
    for text in ("ink", "muted", "accent", "serious"):
        for ground in ("paper", "sheet", "wash"):
            one, other = sorted((_luminance(colours[text]), _luminance(colours[ground])))
            assert (other + 0.05) / (one + 0.05) >= 4.5, (text, ground)


def _folder(path: Path, table: pl.DataFrame) -> RunFolder:
    folder = RunFolder(path)
    with folder.lock():
        settings = {"model": "m", "prompts": {"name": "default", "sha256": "0" * 64}, "seed": 3}
        folder.create_or_resume(settings, about={"weighted_score_p": 0.2, "prompt_set": {"low": "Say <b>it</b>."}})
        write_outcomes(table, folder.outcomes)
    return folder


def test_report_of_a_folder_shows_settings_prompt_hashes_and_cost(tmp_path: Path) -> None:
    table = rows(50)
    folder = _folder(tmp_path / "run", table)
    usage = {name: Usage(1000, 20, 50, 0.5) for name in VARIANTS}
    folder.write_summary(json_text(summary_document(summarise(table, usage=usage))))
    found = read_runs([folder.path])
    assert found[0].summary.analysis.payoffs.weighted_score_p == 0.2
    page = write_report(found, folder.report).path.read_text(encoding="utf-8")
    assert hashlib.sha256(b"Say <b>it</b>.").hexdigest() in page
    assert "Say &lt;b&gt;it&lt;/b&gt;." in page
    assert "0" * 64 in page
    for cell in ("<td>200</td>", "<td>4,000</td>", "<td>$2.00</td>"):
        assert cell in page


def test_run_in_memory_gives_the_same_page_as_its_folder(tmp_path: Path) -> None:
    table = rows(50)
    folder = _folder(tmp_path / "run", table)
    summary = summarise(table, Analysis(weighted_score_p=0.2))
    folder.write_summary(json_text(summary_document(summary)))
    (in_folder,) = read_runs([folder.path])
    in_memory = replace(in_folder, computed=in_folder.summary)
    at_hand = write_report([in_memory], tmp_path / "a.html").path.read_bytes()
    read = write_report([in_folder], tmp_path / "b.html").path.read_bytes()
    assert at_hand == read


def test_page_with_sampled_questions_says_so_and_uses_all_for_numbers(tmp_path: Path, monkeypatch) -> None:
    table = rows(80)
    folder = _folder(tmp_path / "run", table)
    scored = table.with_columns(confidence=pl.int_range(table.height) / table.height)
    write_table(scores_of_outcomes(scored), folder.confidence)
    (whole,) = read_runs([folder.path])
    text = "a random sample of 80"
    assert text not in write_report([whole], tmp_path / "a.html").path.read_text()
    monkeypatch.setattr(run_view, "MAX_ROWS", 40)
    written = RunResults("m", folder.path, "m", "d", None, whole.settings, about=whole.about, computed=whole.summary)
    for some in (read_runs([folder.path])[0], written):
        assert some.summary == whole.summary
        assert some.confidence.equals(whole.confidence)
        page = write_report([some], tmp_path / "b.html").path.read_text()
        assert f"These are 10 questions, {text}" in page
        assert "80 questions" in page


def test_unreadable_runs_among_several_are_left_out_with_a_reason(tmp_path: Path) -> None:
    sound = _folder(tmp_path / "sound", rows(30)).path
    unfinished = _folder(tmp_path / "unfinished", rows(30))
    unfinished.outcomes.unlink()
    (tmp_path / "empty.csv").touch()
    found = find_runs([sound, unfinished.path, tmp_path / "empty.csv"])
    assert [run.source for run in found.runs] == [sound]
    assert len(found.left_out) == 2
    assert "holds no outcomes yet" in found.left_out[0]
    with pytest.raises(RunFolderError):
        find_runs([unfinished.path])


def test_runs_of_different_datasets_are_not_compared(tmp_path: Path) -> None:
    page = _page(tmp_path, rows(60, model="a"), rows(60, model="b", dataset="e"))
    assert "The runs have different questions" in page


def test_report_states_difference_of_two_runs_and_leader_of_three(tmp_path: Path) -> None:
    good, bad = rows(600, model="good", rho=0.9), rows(600, model="bad", rho=0.0, seed=5)
    other = rows(600, model="also-bad", rho=0.0, seed=6)
    marks = re.compile("</?bdi[^>]*>")
    assert "The refusals of good are more strongly correlated with its errors than those of bad" in marks.sub(
        "", _page(tmp_path, bad, good)
    )
    assert (
        "The refusals of good are more strongly correlated with its errors than those of any other run."
        in marks.sub("", _page(tmp_path, bad, good, other))
    )


def test_is_report_recognises_only_reports(tmp_path: Path, page_of_one_run: str) -> None:
    (tmp_path / "report.html").write_text(page_of_one_run, encoding="utf-8")
    write_outcomes(rows(5), tmp_path / "outcomes.csv")
    assert is_report(tmp_path / "report.html")
    assert not is_report(tmp_path / "outcomes.csv")


# --- Questions in the report


def _cell(row: dict[str, Any]) -> str:
    if row["refused"] is None or row["wrong"] is None:
        return "unscored"
    return f"{'refused' if row['refused'] else 'answered'}_{'wrong' if row['wrong'] else 'right'}"


def _with_gaps(table: pl.DataFrame) -> pl.DataFrame:
    gap = pl.Series(np.random.default_rng(3).random(table.height) < 0.05)
    gone = [pl.when(~gap).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "first_grade")]
    return table.with_columns(gone).with_columns(unscored_reason=pl.when(gap).then(pl.lit("first_truncated")))


@pytest.mark.parametrize("draws", [1, 3])
def test_flags_order_and_rows_match_recomputation(draws: int) -> None:
    table = _with_gaps(rows(60, draws=draws))
    run = report_run(table)
    page = payload(questions_of([run]), Cut(4000))
    by_question: dict[str, list[dict[str, Any]]] = {}
    for row in table.rows(named=True):
        by_question.setdefault(row["question_id"], []).append(row)
    rates = [v.metric("refusal_rate").estimate or 0 for v in run.variants]
    cautious = VARIANTS[rates.index(max(rates))]

    expected = []
    for number, (question_id, found) in enumerate(by_question.items()):
        cells = [_cell(row) for row in found]
        confident = all(_cell(row) == "answered_wrong" for row in found if row["variant"] == cautious)
        firsts = {_cell(row) for row in found if row["draw"] == 0}
        flags = ("refused_right" in cells) + 2 * confident + 4 * ("unscored" in cells) + 8 * (len(firsts) > 1)
        shares = [cells.count("refused_right") / len(cells), confident * cells.count("answered_wrong") / len(cells)]
        expected.append((-max(shares), "unscored" not in cells, number, question_id, flags))
    expected.sort()
    assert page["questions"]["id"] == [question_id for *_, question_id, _ in expected]
    assert page["questions"]["flags"] == [flags for *_, flags in expected]

    starts, texts, held = page["questions"]["start"], page["texts"], page["rows"]
    assert starts[-1] == table.height
    for place, question_id in enumerate(page["questions"]["id"]):
        found = sorted(by_question[question_id], key=lambda row: (VARIANTS.index(row["variant"]), row["draw"]))
        for r, row in zip(range(starts[place], starts[place + 1]), found, strict=True):
            assert VARIANTS[held["variant"][r]] == row["variant"]
            assert (*CELL_NAMES, "unscored")[held["cell"][r]] == _cell(row)
            assert texts[held["firstReply"][r]] == row["first_reply"]
            assert texts[held["forcedReply"][r]] == row["forced_reply"]
        assert texts[page["questions"]["text"][place]] == found[0]["question"]


def test_grades_are_derived_from_two_columns() -> None:
    page = payload(questions_of([report_run(counts_table(2, 1, 1, 3))]), Cut(4000))
    grades = [("correct", "incorrect", "refused", "unscored", "not asked")[code] for code in page["rows"]["first"]]
    assert sorted(grades) == ["correct"] * 3 + ["incorrect"] + ["refused"] * 3
    assert set(page["rows"]["forced"]) == {4}
    assert page["questions"]["text"] == [-1] * 7


def test_texts_are_stored_once_and_long_ones_cut_in_the_middle() -> None:
    table = rows(4, variants=("low", "high")).with_columns(
        first_reply=pl.lit("a" * 700 + "b" * 9_000 + "c" * 300), forced_reply=pl.lit("short")
    )
    page = payload(questions_of([report_run(table)]), Cut(1000))
    assert len(page["texts"]) == len(set(page["texts"])) == 4 + 4 + 2
    (number,) = page["cuts"]
    assert page["texts"][int(number)] == "a" * 700 + "c" * 300
    assert page["cuts"][number] == [10_000, 700]


def _unpacked(text: str, packed: bool) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)) if packed else text)


@pytest.mark.parametrize("length", [10, 3_000])
def test_plain_and_packed_data_are_equal(length: int) -> None:
    found = questions_of([report_run(rows(200, length=length))])
    embedded = embed_questions(found)
    assert embedded.packed == (length > 1_000)
    assert _unpacked(embedded.text, embedded.packed) == json.loads(json.dumps(payload(found, embedded.cut)))


def test_replies_are_shortened_step_by_step_if_space_is_limited() -> None:
    found = questions_of([report_run(rows(60, length=1_500, draws=2))])
    sizes = []
    for room in (12_000_000, 400_000, 180_000, 100_000, 1):
        embedded = embed_questions(found, room)
        sizes.append((embedded.cut.limit, embedded.cut.all_draws))
        assert len(embedded.text) <= room or embedded.cut.limit == 0
        assert len(_unpacked(embedded.text, embedded.packed)["questions"]["id"]) == 60
    assert sizes == sorted(sizes, key=lambda cut: (not cut[1], -cut[0]))
    assert sizes[0] == (4000, True)
    assert sizes[-1] == (0, False)


def test_the_same_table_gives_the_same_bytes() -> None:
    found = questions_of([report_run(rows(200, length=2_000))])
    assert embed_questions(found) == embed_questions(found)


@given(st.lists(st.one_of(st.text(), st.sampled_from(HOSTILE))))
def test_property_json_in_the_page_cannot_end_its_element(texts: list[str]) -> None:
    text = str(safe_json(json.dumps(texts, ensure_ascii=False)))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == texts


def test_page_shows_a_random_sample_if_there_are_too_many_outcomes() -> None:
    table = rows(300, draws=2)
    part, left_out = run_view.sampled(table.lazy(), 10 * 4 * 2)
    ids = part["question_id"].unique()
    assert (len(ids), left_out) == (10, 290)
    assert part.equals(table.filter(pl.col("question_id").is_in(ids.implode())))
    assert run_view.sampled(table.lazy(), 80)[0].equals(part)
    assert ids.str.slice(1).cast(pl.Int64).max() > 150
    everything, none = run_view.sampled(table.lazy(), table.height)
    assert everything.equals(table)
    assert none == 0
    assert run_view.sampled(table.lazy(), 3)[1] == 299


def test_each_model_of_a_run_has_the_scores_of_its_own_answers(tmp_path: Path) -> None:
    both = pl.concat([rows(40, dataset="a"), rows(60, dataset="b")])
    scored = both.with_columns(confidence=pl.int_range(both.height) / both.height)
    run = RunResults("m", tmp_path / "t.csv", "m", None, scored.lazy())
    first, second = run_view.views_of([run])
    assert [view.summary.variants[0].dataset for view in (first, second)] == ["a", "b"]
    for view, dataset, count in ((first, "a", 40), (second, "b", 60)):
        scores = view.summary.sections["confidence"]
        assert {(method.dataset, method.asked) for method in scores} == {(dataset, count)}
