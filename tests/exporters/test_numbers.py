from __future__ import annotations

import json
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.render.summary import name_part, numbers
from tests.exporters.conftest import leaves


@pytest.mark.parametrize("name", ["run", "drawn"])
def test_every_number_of_a_summary_has_a_name_of_its_own(name, request):
    document = json.loads(request.getfixturevalue(name).folder.summary.read_text())
    found = numbers(document)
    assert sorted(found.values()) == sorted(leaves(document))
    assert len(found) > 100


def test_metrics_are_named_by_variant_metric_and_end(drawn):
    document = json.loads(drawn.folder.summary.read_text())
    found = numbers(document)
    for variant in document["variants"]:
        for metric, value in variant["metrics"].items():
            for end, name in (("estimate", ""), ("low", "/low"), ("high", "/high")):
                assert found.get(f"{variant['variant']}/{metric}{name}") == value[end]
    assert found["pooled/refusal_index"] == document["pooled"][0]["refusal_index"]["estimate"]


def test_what_is_undefined_is_no_number(run, summary):
    assert summary["variants"][0]["metrics"]["corrected_refusal_index"]["estimate"] is None
    assert not [name for name in numbers(summary) if name.startswith("low/corrected_refusal_index")]


def test_variants_whose_names_come_out_alike_stay_apart():
    variants = [{"variant": name, "n": place} for place, name in enumerate(["a/b", "a\nb", "a_b", None])]
    assert numbers({"variants": variants}) == {"a_b/n": 0, "a_b/n_2": 1, "a_b/n_3": 2, "all/n": 3}


def test_numbers_that_no_float_holds_are_left_out():
    assert numbers({"a": 10**400, "b": True, "c": None, "d": "5", "e": float("nan"), "f": 2}) == {"f": 2.0}


@given(st.text())
def test_any_text_becomes_a_part_that_is_a_plain_name(text):
    part = name_part(text)
    assert posixpath.normpath(f"{part}/y") == f"{part}/y"
    assert not part.startswith(".")
    assert part.isascii()
    assert part.isprintable()
    assert 0 < len(part) <= 60
