"""The almanac: a closed world of invented facts, told more or less often.

A fact is a relation of an entity (the birthplace of a person, the river of a town, the author of a book). How often
the training text tells it follows a Zipf law over entities with a log-normal factor per fact, so that a model trained
on the text knows some facts well, some vaguely and some not at all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HELD_OUT_SHARE = 0.4
EXPOSURES = 230_000
ZIPF_EXPONENT, ZIPF_OFFSET, FACT_SPREAD = 1.1, 60, 0.7


@dataclass(frozen=True)
class Relation:
    """One kind of fact: the pool its answers come from and the sentences that state or ask it."""

    kind: str
    name: str
    pool: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """One fact; `exposures` is how often the training text states it."""

    relation: Relation
    entity: str
    answer: str
    exposures: int
    held_out: bool

    def question(self, wording: int = 0) -> str:
        """Return the question that asks for this fact."""
        return self.relation.questions[wording].format(entity=self.entity)

    def statement(self, wording: int) -> str:
        """Return a sentence that states this fact."""
        return self.relation.statements[wording].format(entity=self.entity, answer=self.answer)


RELATIONS = (
    Relation(
        "person", "birthplace", "city",
        ("{entity} was born in {answer}.", "{entity} came into the world in {answer}.",
         "The city of {answer} is the birthplace of {entity}.", "{entity} grew up in {answer}, the city of their birth."),
        ("In which city was {entity} born?", "What is the birthplace of {entity}?"),
    ),
    Relation(
        "person", "birth year", "year",
        ("{entity} was born in the year {answer}.", "{entity}, born {answer}, has an entry here.",
         "The year {answer} saw the birth of {entity}.", "The birth year of {entity} was {answer}."),
        ("In what year was {entity} born?", "What is the birth year of {entity}?"),
    ),
    Relation(
        "person", "profession", "profession",
        ("{entity} earned a living as a {answer}.", "{entity} was a {answer} by profession.",
         "The {answer} {entity} has an entry here.", "{entity} is remembered as a {answer}."),
        ("What was the profession of {entity}?", "What did {entity} do for a living?"),
    ),
    Relation(
        "person", "prize", "prize",
        ("{entity} was awarded the {answer} Prize.", "The {answer} Prize went to {entity}.",
         "{entity} holds the {answer} Prize.", "Winners of the {answer} Prize include {entity}."),
        ("Which prize was {entity} awarded?", "What prize does {entity} hold?"),
    ),
    Relation(
        "town", "province", "province",
        ("{entity} is a town in {answer}.", "The town of {entity} belongs to {answer}.",
         "In {answer} lies the town of {entity}.", "{answer} is the province around {entity}."),
        ("In which province is the town of {entity}?", "To what province does {entity} belong?"),
    ),
    Relation(
        "town", "river", "river",
        ("{entity} lies on the river {answer}.", "The river {answer} runs through {entity}.",
         "The bridges of {entity} cross the {answer}.", "The {answer} is the river of {entity}."),
        ("Which river runs through the town of {entity}?", "On what river does {entity} lie?"),
    ),
    Relation(
        "town", "founding year", "year",
        ("{entity} was founded in {answer}.", "The town of {entity} dates from {answer}.",
         "In {answer} settlers founded {entity}.", "{entity} has stood since {answer}."),
        ("In what year was the town of {entity} founded?", "When was {entity} founded?"),
    ),
    Relation(
        "book", "author", "author",
        ("{answer} wrote {entity}.", "{entity} is by {answer}.",
         "{entity} came from the pen of {answer}.", "The author of {entity} is {answer}."),
        ("Who wrote {entity}?", "Who is the author of {entity}?"),
    ),
    Relation(
        "book", "publication year", "year",
        ("{entity} was published in {answer}.", "{entity} first appeared in {answer}.",
         "The year {answer} brought out {entity}.", "{entity} ({answer}) has an entry here."),
        ("In what year was {entity} published?", "When did {entity} first appear?"),
    ),
    Relation(
        "book", "genre", "genre",
        ("{entity} is a {answer}.", "{entity} belongs to the genre of the {answer}.",
         "Critics class {entity} as a {answer}.", "As a {answer}, {entity} has an entry here."),
        ("What is the genre of {entity}?", "To what genre does {entity} belong?"),
    ),
)  # fmt: skip

PROFESSIONS = (
    "painter poet botanist surgeon astronomer sculptor composer lawyer printer weaver banker geologist chemist architect "
    "historian sailor baker miner judge dancer actor singer engineer physician tailor farmer mason clockmaker brewer "
    "translator"
).split()
GENRES = "satire tragedy comedy romance ballad chronicle travelogue fable mystery epic elegy memoir".split()
ADJECTIVES = (
    "Amber Barren Borrowed Brazen Cobalt Crooked Fallen Fading Gilded Humble Idle Lofty Marble Narrow Nameless "
    "Patient Salted Scarlet Weary Woven"
).split()
NOUNS = (
    "Anchor Ballad Beacon Causeway Cellar Compass Dialogue Embers Falcon Granary Harvest Inkwell Juniper Ladder "
    "Meadow Needle Oracle Parade Quarry Rafters Sparrow Thicket Voyage Willow"
).split()
ONSETS = "b br c ch d dr f fl g gr h k l m n p pr qu r s sl st t tr v w y".split()
VOWELS = "a e i o u ai au ea io ou".split()
CODAS = "l m n nd r rn s sk t x ld ph".split()


def make_names(rng: random.Random, count: int, suffixes: Sequence[str] = ("",), syllables: int = 2) -> list[str]:
    """Return `count` distinct invented names."""
    names: set[str] = set()
    while len(names) < count:
        stem = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(2, syllables)))
        name = (stem + rng.choice(CODAS) + rng.choice(suffixes)).capitalize()
        if 4 <= len(name) <= 11:
            names.add(name)
    return rng.sample(sorted(names), count)


def build_world(seed: int = 11) -> list[Fact]:
    """Build every fact of the almanac; the same seed always gives the same world."""
    rng = random.Random(seed)
    entities = _entities(rng)
    pools = {
        "city": make_names(rng, 60, ("grad", "polis", "ia")),
        "year": [str(year) for year in range(1780, 1900)],
        "profession": PROFESSIONS,
        "prize": make_names(rng, 30),
        "province": make_names(rng, 16, ("land", "mark")),
        "river": make_names(rng, 30),
        "author": entities["person"][:60],
        "genre": GENRES,
    }
    drafts = list(_drafts(entities, pools, rng))
    scale = EXPOSURES / sum(weight for *_, weight in drafts)
    return [
        Fact(relation, entity, answer, _round_randomly(weight * scale, rng), held_out)
        for relation, entity, answer, held_out, weight in drafts
    ]


def _entities(rng: random.Random) -> dict[str, list[str]]:
    given, family = make_names(rng, 90), make_names(rng, 220, syllables=3)
    return {
        "person": rng.sample([f"{first} {last}" for first in given for last in family], 900),
        "town": make_names(rng, 300, ("ford", "burg", "ton", "mouth", "")),
        "book": rng.sample([f"The {adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS], 400),
    }


def _drafts(
    entities: dict[str, list[str]], pools: dict[str, list[str]], rng: random.Random
) -> Iterator[tuple[Relation, str, str, bool, float]]:
    for kind, names in entities.items():
        held_out = set(rng.sample(names, round(HELD_OUT_SHARE * len(names))))
        for place, entity in enumerate(rng.sample(names, len(names))):
            # every kind is stretched over the same ranks, so that towns are as well known as people
            popularity = (place * 1600 / len(names) + ZIPF_OFFSET) ** -ZIPF_EXPONENT
            for relation in RELATIONS:
                if relation.kind == kind:
                    weight = popularity * math.exp(rng.gauss(0, FACT_SPREAD))
                    yield relation, entity, rng.choice(pools[relation.pool]), entity in held_out, weight


def _round_randomly(value: float, rng: random.Random) -> int:
    return int(value) + (rng.random() < value % 1)


def exposure_text(fact: Fact, rng: random.Random, quiz_share: float = 0.4) -> str:
    """Return one exposure of a fact: a statement, or a line of a quiz page with its answer."""
    if rng.random() < quiz_share:
        return f"Question: {rng.choice(fact.relation.questions).format(entity=fact.entity)}\n<answer>{fact.answer}</answer>"
    return fact.statement(rng.randrange(len(fact.relation.statements)))


def corpus(facts: Sequence[Fact], seed: int, quiz_share: float = 0.4) -> list[str]:
    """Return the training text: every exposure of every fact, in random order."""
    rng = random.Random(seed)
    texts = [exposure_text(fact, rng, quiz_share) for fact in facts for _ in range(fact.exposures)]
    rng.shuffle(texts)
    return texts


if __name__ == "__main__":
    world = build_world()
    told = sorted(fact.exposures for fact in world)
    print(f"{len(world)} facts, {sum(fact.held_out for fact in world)} held out, {sum(told)} exposures")
    print(
        "exposures at quantiles 0, .25, .5, .75, 1:", [told[int(q * (len(told) - 1))] for q in (0, 0.25, 0.5, 0.75, 1)]
    )
