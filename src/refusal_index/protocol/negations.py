"""Words near an answer that take it back: negations, corrections and bounds of numbers, in twelve languages.

The texts searched here are those of `marked`: folded words, with "," "." and "?" for punctuation between them.
"""

from __future__ import annotations

import re

NEGATION = re.compile(
    "not|isnt|wasnt|arent|werent|never|nor|neither|nicht|kein|keine|keinen|statt|pas|non|ni|ne|neni|nebyl|nebyla|nebylo"
    "|nikoli|nikoliv|nie|не|niet|geen|nao"
)
FILLER = (  # words that may stand between a negation and what it negates
    "es|era|fue|e|foi|fu|be|been|to|it|was|jest|byl|byla|bylo|really|actually|necessarily|in|at|on|by|from|of|for|im|am"
    "|um|von|en|por|de|da|v|w|в|a|o|la|le|el|il|lo|der|die|das|den|在"
)
VERB = "is|was|are|were|its|ist|war|est|etait|es|era|fue|e|fu|foi|by"
WRONG = "wrong|incorrect|false|impossible|out|excluded|falsch|faux|fausse|incorrect[oa]|errad[oa]|sbagliat[oa]|spatne"
SMALL = "definitely|probably|clearly|certainly|obviously|also|simply|just|ruled"
BEFORE = re.compile(
    r"(?<!\S)(?:"
    rf"(?:{NEGATION.pattern}|cannot|cant|couldnt|wouldnt)(?: (?:{FILLER})){{0,2}}"
    r"|(?:dont|do not|didnt|doubt|doubtful)(?: (?:think|believe))?(?: (?:that|if|whether))?(?: (?:it|this))?"
    r"(?: (?:is|was|its))"
    r"|(?:ruled?|ruling) out|exclud(?:e|ed|es|ing)|instead of|rather than|(?<!none )(?<!nothing )(?<!no )other than"
    r"|anything but|except|unlike|opposed to|far from|no (?:es|era|fue|son)(?: (?:en|el|la|los))?"
    r"|(?:不|并 非|並 非|而 非)(?: 是)?(?: 在)?"
    r") \Z"
)
BEFORE_NAME = re.compile(r"(?<!\S)(?:no|than) \Z")  # before a number, these mean "number" and "more than"
NONE_OTHER = re.compile(r"(?<!\S)(?:none|nothing|nobody|no one|no) other than \Z")
NOT = r"(?:not|nicht|pas|neni|niet|nie|не)(?! (?:only|just|merely|nur|seulement)(?!\S))"
AFTER = re.compile(
    r" (?:"
    rf"(?:{VERB}|can|could|will|would)(?: (?:es|das|het|it))? {NOT}"
    r"|isnt|wasnt|arent|werent|cannot|cant|nest pas|netait pas|(?:to )?(?:neni|nebyl[aoy]?)"
    r"|(?:no|non|nao) (?:es|era|fue|e|fu|foi)"
    r"|(?:to )?nie (?:jest|byl[aoy]?)|это не"
    rf"|(?:{VERB}|would be|seems|looks|je)(?: (?:{SMALL}))*(?: an?)? (?:{WRONG})"
    r"|\?(?: [,.])? (?:no|nope|nein|non|ne|nie|nee|nao|нет|not)(?= [,.?]| (?:it|its|that|thats|he|she)(?!\S)|\s*\Z)"
    r"|, (?:no|nope|nein|non|нет)(?= [,.?])"
    r"|(?:并 )?(?:不 是|不 对|不 對|非)|て は (?:な|あ り ま せ ん)|し ゃ な"
    r")(?!\S)"
)
SIGNS_BEFORE = "<>≤≥√∛∜^"
USED_TO_BE = re.compile(r"(?<!\S)used to be \Z")
NOW = re.compile(r" (?:[,.] )?(?:but )?(?:it is |its |is )?(?:now|today)(?!\S)")
BOUND = re.compile(
    rf"[{SIGNS_BEFORE}] \Z|(?<!\S)(?:at (?:least|most)|(?:more|less|fewer|greater|larger|smaller) than|up to|minus|"
    r"mindestens|hochstens|"
    r"au moins|au plus|al menos|almeno|minimalne|nejmene|maximalne) \Z"
)
BEFORE_YEAR = re.compile(
    r"(?<!\S)(?:before|after|until|prior to|vor|nach|avant|apres|antes de|prima del|voor|przed|pred|до)"
    r"(?: (?:the year|year|lannee|rokem|roku))? \Z"
)
AFTER_YEAR = re.compile(r" (?:bc|bce|v chr|pr n ?l|av jc|a c)(?!\S)")


def takes_back(before: str, after: str, *, is_number: bool = False, is_long_number: bool = False) -> bool:
    """Whether the words near an answer negate it, correct it or, near a number, make it a bound.

    Examples
    --------
    >>> takes_back(" it is not ", " , its cuzco "), takes_back(" no , ", " ")
    (True, False)
    """
    if BEFORE.search(before) or AFTER.match(after) or (USED_TO_BE.search(before) and NOW.match(after)):
        return True
    if is_number:
        is_bound = BOUND.search(before) is not None
        return is_bound or (is_long_number and bool(BEFORE_YEAR.search(before) or AFTER_YEAR.match(after)))
    return BEFORE_NAME.search(before) is not None and NONE_OTHER.search(before) is None
