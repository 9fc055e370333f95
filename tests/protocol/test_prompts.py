"""Prompt sets: the default follows the paper's design, its wording is fixed, and bad files are explained."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from refusal_index.protocol.comparison import normalise
from refusal_index.protocol.prompts import FORCED, UNANSWERED, PromptSet, PromptSetError, load_prompt_set

QUESTION_WORDS = {"did", "in", "is", "of", "the", "was", "what", "which", "who", "year"}
VARIANTS = ("low", "normal", "high", "highest")
DEFAULT = load_prompt_set("default")

OWN = '''
name = "own"
preamble = """
{instruction}
{examples}"""
question = "Q: {question}"
example = "{number}. {question} -> {answer}"

[variants.bold]
instruction = "Guess."
unanswered = []

[variants.shy]
instruction = "Braces {here} and 100 % are plain text."
unanswered = [2]

[forced]
instruction = "Answer."
unanswered = []

[[examples]]
question = "1 + 1?"
answer = "2"

[[examples]]
question = "2 + 2?"
answer = "4"
'''


@pytest.fixture
def own_file(tmp_path) -> Callable[..., Path]:
    """Write the set above with some of its text replaced."""

    def write(old: str = "", new: str = "") -> Path:
        assert old in OWN
        path = tmp_path / "own.toml"
        path.write_text(OWN.replace(old, new, 1), encoding="utf-8")
        return path

    return write


# The default set against the paper's design


def answers_shown(prompts: PromptSet, variant: str) -> list[str]:
    preamble, _ = prompts.render(variant, "Who wrote Emma?")
    before_instruction = preamble.partition(prompts.variant(variant).instruction)[0]
    return re.findall(r"Reply: <answer>(.*)</answer>", before_instruction)


def test_default_has_four_first_pass_variants_from_low_to_highest():
    assert tuple(DEFAULT.variants) == VARIANTS


@pytest.mark.parametrize(("variant", "refused"), [("low", 0), ("normal", 1), ("high", 4), ("highest", 6), (FORCED, 0)])
def test_unanswered_worked_examples_match_the_paper(variant, refused):
    answers = answers_shown(DEFAULT, variant)
    assert len(answers) == 10
    assert answers.count(UNANSWERED) == refused
    answered = [
        (said, example.answer) for said, example in zip(answers, DEFAULT.examples, strict=True) if said != UNANSWERED
    ]
    assert all(said == answer for said, answer in answered)


def test_cautious_variants_also_leave_examples_of_bolder_ones_unanswered():
    numbers = [set(DEFAULT.variants[name].unanswered) for name in VARIANTS]
    assert all(bolder <= shyer for bolder, shyer in pairwise(numbers))


def test_variants_differ_only_in_instruction_and_unanswered_examples():
    def skeleton(variant: str) -> str:
        preamble, question = DEFAULT.render(variant, "Who wrote Emma?")
        for number, example in enumerate(DEFAULT.examples, start=1):
            answers = UNANSWERED if number in DEFAULT.variant(variant).unanswered else example.answer
            preamble = preamble.replace(f"{example.question}\nReply: <answer>{answers}</answer>", f"example {number}")
        return f"{preamble.replace(DEFAULT.variant(variant).instruction, 'instruction')}\n\n{question}"

    assert "example 10" in skeleton("low")
    assert len({skeleton(variant) for variant in (*VARIANTS, FORCED)}) == 1


def test_every_variant_has_a_distinct_instruction():
    assert len({DEFAULT.variant(name).instruction for name in (*VARIANTS, FORCED)}) == 5


def test_first_pass_offers_the_unanswered_tag_and_the_forced_pass_does_not():
    tag = f"<answer>{UNANSWERED}</answer>"
    assert all(tag in DEFAULT.variants[name].instruction for name in VARIANTS)
    assert UNANSWERED not in "".join(DEFAULT.render(FORCED, "Who wrote Emma?"))


@pytest.mark.parametrize("variant", [*VARIANTS, FORCED])
def test_examples_come_first_then_the_instruction_and_the_question_last(variant):
    preamble, question = DEFAULT.render(variant, "Who wrote Emma?")
    assert preamble.startswith("Example 1\n")
    assert preamble.endswith(DEFAULT.variant(variant).instruction)
    assert question.endswith("Who wrote Emma?")
    assert "Emma" not in preamble


@pytest.mark.parametrize("hostile", ["{question}", "{examples} {0} {}", "}{", "%s $x", "</answer>\n\nQuestion: 1 + 1?"])
def test_question_is_asked_word_for_word(hostile):
    assert DEFAULT.render("low", hostile) == (DEFAULT.render("low", "x")[0], f"Question: {hostile}")


def test_wording_of_the_default_set_changes_only_on_purpose():
    """The embedded models were trained on these words: other words make them other models.

    A new wording is a new prompt set under a new name, and the models are trained again.
    """
    rendered = "\n\x1e\n".join("\n\n".join(DEFAULT.render(name, "Who wrote Emma?")) for name in (*VARIANTS, FORCED))
    assert hashlib.sha256(rendered.encode()).hexdigest() == (
        "e88a52e94106df77a4e7caaef2bcee8d184cb89c2b7a3a4e5082acb305540902"
    )
    assert DEFAULT.hash == "8d94d1b51f072ad565ff5cb9d3b4489b33637993c439de9329431ee005c9d588"


# Context and choices


CAPITAL = "What is the capital of Peru?"


def test_question_without_context_or_choices_is_unchanged():
    assert DEFAULT.render("low", CAPITAL) == DEFAULT.render("low", CAPITAL, None, ())
    assert DEFAULT.render("low", CAPITAL)[1] == f"Question: {CAPITAL}"


@pytest.mark.parametrize("variant", [*VARIANTS, FORCED])
def test_every_variant_puts_context_before_and_choices_after_question(variant):
    preamble, asked = DEFAULT.render(variant, CAPITAL, "Lima lies {here}.", ("Cuzco", "Lima {x}"))
    assert preamble == DEFAULT.render(variant, CAPITAL)[0]
    assert asked == (
        "Base your answer on the following text and on nothing else.\n\n<text>\nLima lies {here}.\n</text>\n\n"
        f"Question: {CAPITAL}\n\n"
        "Choose one of these answers and give its letter:\nA) Cuzco\nB) Lima {x}"
    )


def test_hash_includes_templates_only_if_the_set_defines_them(own_file):
    shipped = load_prompt_set(own_file()).hash
    shown_anew = OWN_TEMPLATES["context"].replace("Read", "Look at")
    own = {load_prompt_set(own_file('name = "own"', f'name = "own"\n{line}')).hash for line in OWN_TEMPLATES.values()}
    other = load_prompt_set(own_file('name = "own"', f'name = "own"\n{shown_anew}')).hash
    assert len({shipped, other, *own}) == 2 + len(OWN_TEMPLATES)


OWN_TEMPLATES = {
    "context": 'context = "Read: {context}"',
    "choices": 'choices = "Pick: {choices}"',
    "choice": 'choice = "[{letter}] {choice}"',
}


def test_set_may_define_context_and_choice_templates(own_file):
    lines = "\n".join(OWN_TEMPLATES.values())
    prompts = load_prompt_set(own_file('name = "own"', f'name = "own"\n{lines}'))
    _, asked = prompts.render("bold", "Which?", "It is red.", ("red", "blue"))
    assert asked == "Read: It is red.\n\nQ: Which?\n\nPick: [A] red\n[B] blue"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('context = "Read this"', "template 'context' must have the fields {context}, found none"),
        ('choice = "{letter}"', "template 'choice' must have the fields {choice}, {letter}, found {letter}"),
        ("choices = 3", "'choices' must be a string, found 3"),
        ('contex = "{context}"', "unknown field 'contex' (did you mean 'context'?)"),
    ],
)
def test_invalid_template_is_explained(own_file, line, message):
    with pytest.raises(PromptSetError, match=re.escape(message)):
        load_prompt_set(own_file('name = "own"', f'name = "own"\n{line}'))


# Paraphrases

TARGETS = load_prompt_set("confidence-targets")


def test_confidence_targets_differ_only_in_the_stated_rule():
    assert TARGETS.targets == {"t0": 0.0, "t50": 0.5, "t75": 0.75, "t90": 0.9}
    assert (TARGETS.examples, TARGETS.forced, TARGETS.preamble) == (DEFAULT.examples, DEFAULT.forced, DEFAULT.preamble)
    assert {variant.unanswered for variant in TARGETS.variants.values()} == {(8,)}
    for name, target in TARGETS.targets.items():
        stated = TARGETS.variants[name].instruction
        price = round(target / (1 - target))
        assert f"more than {target * 100:g}% confident" in stated
        assert f"a wrong answer loses {f'{price} point' if price else 'nothing'}" in stated
        assert "<answer>UNANSWERED</answer> earns 0 points" in stated


def test_target_must_be_a_confidence_and_does_not_change_the_hash(own_file):
    plain = load_prompt_set(own_file())
    stating = load_prompt_set(own_file("[variants.shy]", "[variants.shy]\ntarget = 0.75"))
    assert (plain.targets, stating.targets) == ({}, {"shy": 0.75})
    assert stating.hash == plain.hash
    for bad in ("1.0", "-0.1", '"high"', "true", "nan"):
        with pytest.raises(PromptSetError, match="'target' must be a confidence from 0 to below 1, found"):
            load_prompt_set(own_file("[variants.shy]", f"[variants.shy]\ntarget = {bad}"))
    with pytest.raises(PromptSetError, match="the forced pass does not allow refusals; remove 'target'"):
        load_prompt_set(own_file("[forced]", "[forced]\ntarget = 0.5"))


PARAPHRASES = load_prompt_set("paraphrases")
FAMILY = ("normal", "normal-2", "normal-3", "normal-4")


def test_shipped_paraphrases_are_the_default_set_plus_three_of_normal():
    own = {name: PARAPHRASES.variants[name] for name in FAMILY[1:]}
    rest = {name: variant for name, variant in PARAPHRASES.variants.items() if name not in own}
    assert replace(PARAPHRASES, name="default", variants=rest) == DEFAULT
    assert PARAPHRASES.family("normal") == FAMILY
    assert all(PARAPHRASES.render(name, CAPITAL) == DEFAULT.render(name, CAPITAL) for name in (*VARIANTS, FORCED))


def test_paraphrases_differ_only_in_the_instruction_and_offer_the_tag():
    instructions = {PARAPHRASES.variants[name].instruction for name in FAMILY}
    assert len(instructions) == len(FAMILY)
    assert all(f"<answer>{UNANSWERED}</answer>" in instruction for instruction in instructions)
    skeletons = {
        PARAPHRASES.render(name, CAPITAL)[0].replace(PARAPHRASES.variants[name].instruction, "") for name in FAMILY
    }
    assert len(skeletons) == 1


SHY_AGAIN = """
[variants.shyer]
paraphrase_of = "shy"
instruction = "Speak up only if you are sure."
unanswered = [2]

[forced]"""


def test_custom_set_may_mark_paraphrases_without_changing_its_hash(own_file):
    prompts = load_prompt_set(own_file("[forced]", SHY_AGAIN))
    assert prompts.family("shy") == ("shy", "shyer")
    unmarked = load_prompt_set(own_file("[forced]", SHY_AGAIN.replace('paraphrase_of = "shy"', "")))
    assert unmarked.hash == prompts.hash
    for name in ("bold", "shyer"):
        with pytest.raises(PromptSetError, match=f"'own' has no paraphrases of '{name}'"):
            prompts.family(name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"shy"', '"shi"', "variants.shyer: 'paraphrase_of' names no prompt: 'shi' (did you mean 'shy'?)"),
        ('"shy"', '"shyer"', "'paraphrase_of' must name a prompt that is not a paraphrase, found 'shyer'"),
        ('"shy"', "3", "variants.shyer: 'paraphrase_of' must be a string, found 3"),
        ("[2]", "[1]", "variants.shyer: 'unanswered' must be that of 'shy', which it paraphrases, found [1] and [2]"),
        ("paraphrase_of", "paraphrases_of", "unknown field 'paraphrases_of' (did you mean 'paraphrase_of'?)"),
    ],
)
def test_invalid_paraphrase_is_explained(own_file, old, new, message):
    with pytest.raises(PromptSetError, match=re.escape(message)):
        load_prompt_set(own_file("[forced]", SHY_AGAIN.replace(old, new, 1)))


def test_forced_pass_cannot_be_a_paraphrase(own_file):
    with pytest.raises(PromptSetError, match="the forced pass cannot be a paraphrase"):
        load_prompt_set(own_file("[forced]", '[forced]\nparaphrase_of = "shy"'))


# The worked examples against the datasets


def simpleqa(shared_file: Callable[[str], Path]) -> list[tuple[str, str]]:
    return _simpleqa(shared_file("simpleqa/simple_qa_test_set.csv"))


def simpleqa_verified(shared_file: Callable[[str], Path]) -> list[tuple[str, str]]:
    return _simpleqa(shared_file("simpleqa/simpleqa_verified.csv"))


def _simpleqa(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["problem"], row["answer"]) for row in csv.DictReader(file)]


def precise_wiki(shared_file: Callable[[str], Path]) -> list[tuple[str, str]]:
    pairs = json.loads(shared_file("precise_wiki/precisewiki_negative_answers.json").read_text(encoding="utf-8"))
    return [(question, pair["correct_answer"]) for question, pair in pairs.items()]


def almanac(_: Callable[[str], Path]) -> list[tuple[str, str]]:
    path = files("refusal_index.plugins.almanac") / "data" / "almanac.jsonl"
    if not path.is_file():
        pytest.skip("the almanac's questions are not in this checkout")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row["question"], row["answer"]) for row in rows]


@pytest.mark.parametrize("dataset", [simpleqa, simpleqa_verified, precise_wiki, almanac])
def test_no_dataset_overlaps_the_worked_examples(dataset, shared_file):
    """Neither in the same words, nor with the same answer and half of the words that matter."""
    asked = [(set(normalise(question).split()), normalise(gold)) for question, gold in dataset(shared_file)]
    assert asked
    for example in DEFAULT.examples:
        words = set(normalise(example.question).split()) - QUESTION_WORDS
        answer = normalise(example.answer)
        assert not any(words <= other for other, _ in asked), example.question
        assert not any(gold == answer and len(words & other) >= len(words) / 2 for other, gold in asked), (
            example.question
        )


# The hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{instruction}\n{examples}", "{examples}\n{instruction}"),
        ("Q: {question}", "Question: {question}"),
        ("{number}. ", "{number}: "),
        ("1 + 1?", "1 + 2?"),
        ('answer = "2"', 'answer = "3"'),
        ("Guess.", "Guess!"),
        ("unanswered = [2]", "unanswered = [1]"),
        ("variants.shy", "variants.coy"),
        ('instruction = "Answer."', 'instruction = "Answer!"'),
    ],
)
def test_any_change_of_wording_changes_the_hash(own_file, old, new):
    before = load_prompt_set(own_file()).hash
    assert load_prompt_set(own_file(old, new)).hash != before


def test_hash_is_stable_and_does_not_depend_on_name_or_file(own_file, tmp_path):
    prompts = load_prompt_set(own_file())
    assert prompts.hash == "84fe0092b7fa8378aa534528f9f8cf8a058e1f11449dc2ce10c1796bd1c84b9c"
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text("# a remark\n" + OWN.replace('"own"', '"renamed"'), encoding="utf-8")
    assert load_prompt_set(elsewhere).hash == prompts.hash


# A custom file


def test_own_set_is_loaded_from_its_file(own_file):
    prompts = load_prompt_set(own_file())
    assert prompts.name == "own"
    assert list(prompts.variants) == ["bold", "shy"]
    assert prompts.render("shy", "3 + 3?") == (
        "Braces {here} and 100 % are plain text.\n1. 1 + 1? -> 2\n\n2. 2 + 2? -> UNANSWERED",
        "Q: 3 + 3?",
    )
    assert prompts.render(FORCED, "3 + 3?") == ("Answer.\n1. 1 + 1? -> 2\n\n2. 2 + 2? -> 4", "Q: 3 + 3?")
    assert load_prompt_set(str(own_file())) == prompts


def test_literal_braces_are_written_twice(own_file):
    prompts = load_prompt_set(own_file("Q: {question}", "Q: {{{question}}}"))
    assert prompts.render("bold", "why?")[1] == "Q: {why?}"


def test_order_of_the_file_is_the_order_of_the_variants(own_file):
    assert list(load_prompt_set(own_file("variants.bold", "variants.zealous")).variants) == ["zealous", "shy"]


BAD_FILES = {
    "not TOML": ("[forced]", "[forced", "not valid TOML: "),
    "no name": ('name = "own"\n', "", "'name' must be a string, found nothing"),
    "a name that is a number": ('name = "own"', "name = 7", "'name' must be a string, found 7"),
    "no preamble": ("preamble =", "preface =", "'preamble' must be a string, found nothing"),
    "a question that is an array": ('question = "Q: {question}"', "question = []", "must be a string, found an array"),
    "no forced pass": ("[forced]", "[compelled]", "'forced' must be a table, found nothing"),
    "a forced pass that refuses": ('Answer."\nunanswered = []', 'Answer."\nunanswered = [1]', "must be empty"),
    "a variant called forced": ("variants.shy", "variants.forced", "'forced' names the forced pass"),
    "a variant of confidence": ("variants.shy", 'variants."confidence/shy"', "'confidence/shy' cannot be a first-pass"),
    "a variant that is text": (
        '[variants.shy]\ninstruction = "Braces {here} and 100 % are plain text."\nunanswered = [2]',
        '[variants]\nshy = "Do not guess."',
        "variants.shy: must be a table with 'instruction' and 'unanswered'",
    ),
    "a variant without instruction": (
        'instruction = "Guess."\n',
        "",
        "variants.bold: 'instruction' must be a string, found nothing",
    ),
    "an example number too high": ("[2]", "[3]", "variants.shy: 'unanswered' must contain example numbers from 1 to 2"),
    "an example number too low": ("[2]", "[0]", "example numbers from 1 to 2"),
    "an example number with a fraction": ("[2]", "[1.5]", "example numbers from 1 to 2"),
    "an example number that is a truth value": ("[2]", "[true]", "example numbers from 1 to 2"),
    "an example number that is text": ("[2]", '["2"]', "example numbers from 1 to 2"),
    "a single example number": ("[2]", "2", "variants.shy: 'unanswered' must be an array, found 2"),
    "an example without answer": ('answer = "4"\n', "", "example 2: 'answer' must be a string, found nothing"),
    "an unknown template field": (
        "Q: {question}",
        "Q: {query}",
        "template 'question' must have the fields {question}, found {query}",
    ),
    "a field too many": ("Q: {question}", "{number} {question}", "the fields {question}, found {number}, {question}"),
    "a field missing": ("{instruction}\n", "", "the fields {examples}, {instruction}, found {examples}"),
    "no fields": ("Q: {question}", "Q:", "the fields {question}, found none"),
    "a field without a name": ("Q: {question}", "Q: {}", "found {}"),
    "a field of a field": ("Q: {question}", "Q: {question.text}", "found {question.text}"),
    "a field with a format": ("Q: {question}", "Q: {question:{width}}", "found {question:{width}}"),
    "a field with a conversion": ("Q: {question}", "Q: {question!r}", "found {question!r}"),
    "an unbalanced brace": ("Q: {question}", "Q: {question", "write a literal brace twice"),
    "a closing brace alone": ("Q: {question}", "Q: question}", "write a literal brace twice"),
}


@pytest.mark.parametrize(("old", "new", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file_is_explained_with_file_and_field(own_file, old, new, message):
    path = own_file(old, new)
    with pytest.raises(PromptSetError, match=re.escape(message)) as caught:
        load_prompt_set(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[examples]]", "[[worked]]", "'examples' must be an array, found nothing"),
        ("[variants.", "[choices.", "'variants' must be a table, found nothing"),
    ],
)
def test_missing_part_is_named(own_file, old, new, message):
    path = own_file()
    path.write_text(OWN.replace(old, new), encoding="utf-8")
    with pytest.raises(PromptSetError, match=re.escape(message)):
        load_prompt_set(path)


def test_set_without_variants_is_explained(tmp_path):
    path = tmp_path / "none.toml"
    path.write_text("examples = []\n[variants]\n", encoding="utf-8")
    with pytest.raises(PromptSetError, match="'variants' is empty; expected at least one first-pass prompt"):
        load_prompt_set(path)


def test_example_that_is_not_a_table_is_explained(tmp_path):
    path = tmp_path / "flat.toml"
    path.write_text('examples = ["1 + 1 = 2"]\n', encoding="utf-8")
    with pytest.raises(PromptSetError, match="example 1: must be a table with 'question' and 'answer'"):
        load_prompt_set(path)


def test_binary_prompt_file_is_explained(tmp_path):
    path = tmp_path / "picture.toml"
    path.write_bytes(b"\x89PNG\xff")
    with pytest.raises(PromptSetError, match="not valid TOML"):
        load_prompt_set(path)


def test_unknown_prompt_set_error_suggests_the_nearest_name(tmp_path):
    with pytest.raises(
        PromptSetError,
        match=r"no prompt set 'defalt' \(did you mean 'default'\?\); choose one of confidence-targets, default",
    ):
        load_prompt_set("defalt")
    with pytest.raises(
        PromptSetError,
        match="no prompt set 'zzz'; choose one of confidence-targets, default, instructions, instructions-de, "
        "paraphrases, or give the path",
    ):
        load_prompt_set("zzz")
    with pytest.raises(PromptSetError, match="no prompt set"):
        load_prompt_set(tmp_path)


def test_unknown_variant_error_suggests_the_nearest_name():
    with pytest.raises(PromptSetError, match=r"no prompt 'hihg' \(did you mean 'high'\?\); choose one of low, normal"):
        DEFAULT.render("hihg", "Who wrote Emma?")


@pytest.mark.parametrize("name", ["instructions", "instructions-de"])
def test_instructions_have_no_examples_and_only_the_first_pass_offers_to_refuse(name):
    prompts = load_prompt_set(name)
    assert (prompts.examples, prompts.example) == ((), "")
    assert tuple(prompts.variants) == VARIANTS
    assert all(UNANSWERED in prompts.preambles[variant] for variant in VARIANTS)
    assert UNANSWERED not in prompts.preambles[FORCED]
    assert prompts.preambles == {
        **{variant: prompts.variants[variant].instruction for variant in VARIANTS},
        FORCED: prompts.forced.instruction,
    }


def test_a_set_without_examples_that_mentions_them_is_an_error(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\npreamble = "{instruction} {examples}"\nquestion = "{question}"\n'
    path.write_text(f'{text}[variants.a]\ninstruction = "A"\n[forced]\ninstruction = "B"\n')
    with pytest.raises(PromptSetError, match="'examples' must be an array, found nothing"):
        load_prompt_set(path)
    path.write_text(path.read_text().replace(" {examples}", ""))
    assert load_prompt_set(path).preambles == {"a": "A", "forced": "B"}
