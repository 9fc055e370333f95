"""The grader that goes by a regular expression of the dataset's author."""

from __future__ import annotations

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.patterns import matches
from refusal_index.outcomes.question import Question
from refusal_index.protocol.exact import declines
from refusal_index.protocol.replies import DECORATION


def pattern_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by the question's regular expression, which must match it from end to end.

    Case is ignored, a dot matches line breaks, and punctuation around the prediction may go. Where nothing matches, a
    prediction that does nothing but decline is refused, and everything else is incorrect.

    A pattern that cannot be matched in time, as one whose repetitions are nested may, leaves the prediction unscored.

    Parameters
    ----------
    question
        The question with its pattern; without one nothing matches.
    prediction
        The answer to grade, as `Reading.answer` holds it.

    Examples
    --------
    >>> war = Question("q", "When did the war end?", "1945", pattern=r"(in )?(may )?1945")
    >>> pattern_grade(war, "In May 1945.")
    <Grade.CORRECT: 'correct'>
    >>> pattern_grade(war, "1945 or 1946")
    <Grade.INCORRECT: 'incorrect'>
    """
    if question.gold is not None and question.pattern is not None:
        try:
            if any(
                matches(question.pattern, text) for text in dict.fromkeys((prediction, prediction.strip(DECORATION)))
            ):
                return Grade.CORRECT
        except TimeoutError:
            return Grade.UNSCORED
    return Grade.REFUSED if declines(prediction) else Grade.INCORRECT
