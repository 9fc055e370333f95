"""Dates in a text without case, accents and punctuation, with the names of months in eleven languages."""

from __future__ import annotations

import re

from refusal_index.data.text import folded

MONTHS = {
    1: "january jan januar janvier enero gennaio janeiro januari styczen stycznia styczniu leden ledna lednu "
    "январь января январе",
    2: "february feb februar fevrier febrero febbraio fevereiro februari luty lutego lutym unor unora unoru "
    "февраль февраля феврале",
    3: "march mar marz mars marzo marco maart marzec marca marcu brezen brezna breznu март марта марте",
    4: "april apr avril abril aprile kwiecien kwietnia kwietniu duben dubna dubnu апрель апреля апреле",
    5: "may mai mayo maggio maio mei maj maja maju kveten kvetna kvetnu май мая мае",
    6: "june jun juni juin junio giugno junho czerwiec czerwca czerwcu cerven cervna cervnu июнь июня июне",
    7: "july jul juli juillet julio luglio julho lipiec lipca lipcu cervenec cervence cervenci июль июля июле",
    8: "august aug aout agosto augustus sierpien sierpnia sierpniu srpen srpna srpnu август августа августе",
    9: "september sep sept septembre septiembre settembre setembro wrzesien wrzesnia wrzesniu zari "
    "сентябрь сентября сентябре",
    10: "october oct oktober octobre octubre ottobre outubro pazdziernik pazdziernika pazdzierniku rijen rijna rijnu "
    "октябрь октября октябре",
    11: "november nov novembre noviembre novembro listopad listopada listopadzie listopadu ноябрь ноября ноябре",
    12: "december dec dezember decembre diciembre dicembre dezembro grudzien grudnia grudniu prosinec prosince "
    "prosinci декабрь декабря декабре",
}
MONTH = {folded(name): number for number, names in MONTHS.items() for name in names.split()}
ANY_MONTH = "|".join(sorted(MONTH, reverse=True))
DATE = re.compile(
    rf"(?<!\S)(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of |de )?)?(?P<month>{ANY_MONTH})(?!\S)"
    r"(?: (?P<later_day>\d{1,2})(?:st|nd|rd|th)?(?!\S))?(?: (?:of |de |roku )?(?P<year>\d{4})(?!\S))?"
)


def with_plain_dates(words: str) -> str:
    """Return normalised text with its dates in one form: day, month as a number, year.

    A month without a day or a year is left as it is, because it may be another word, such as "may" and "mars".

    Examples
    --------
    >>> with_plain_dates("on july 4th 1776"), with_plain_dates("v cervenci 1776"), with_plain_dates("he may")
    ('on 4 month7 1776', 'v month7 1776', 'he may')
    """
    return DATE.sub(_plain_date, words)


def _plain_date(date: re.Match[str]) -> str:
    days = [day for day in (date["day"], date["later_day"]) if day]
    if len(days) > 1 or not (days or date["year"]):
        return date[0]
    return " ".join([*days, f"month{MONTH[date['month']]}", *filter(None, [date["year"]])])
