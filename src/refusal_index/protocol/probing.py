"""A question of its own, beside the two passes: about an answer that was given, or for an answer with a confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol.graders import GraderKind
from refusal_index.protocol.procedure import judged_alone, worded
from refusal_index.protocol.prompt_set import PromptSet
from refusal_index.protocol.records import Asked, Message, Pass, Reply, Request, Step


@dataclass(frozen=True)
class Probing:
    """One prompt, asked of each question in each draw.

    Attributes
    ----------
    grader
        Who grades the answer in the reply, where there is one.
    template
        What is asked, with the field ``{question}`` and, where it is about an answer, ``{answer}``.
    prompts
        Puts the question into words, with its context and its choices.
    answers
        By question id, the answer that it is about; empty where it is about none.
    is_graded
        Whether the reply holds an answer of its own.
    think
        A switch that the model's chat template knows, which ends what the model is asked.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts = load_prompt_set("default")
    >>> probing = Probing(GraderKind.EXACT, "{question} {answer}: true or false?", prompts, {"q": "5"})
    >>> question = Question("q", "How much is 2 + 2?", "4")
    >>> probing.request(probing.step(question, []), question).messages[0].content
    'Question: How much is 2 + 2? 5: true or false?'
    """

    grader: GraderKind
    template: str
    prompts: PromptSet
    answers: Mapping[str, str] = field(default_factory=dict)
    is_graded: bool = False
    think: str = ""
    asks_first: bool = False
    asks_model: bool = True
    passes: tuple[Pass, ...] = (Pass.PROBE,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - of the interface
        """Return what is next; an outcome says no more than that nothing is, unless the answer is graded."""
        found = judged_alone(Pass.PROBE, question, replies, self.grader)
        if self.is_graded or not replies:
            return found
        return Outcome(None, None, Grade.UNSCORED)

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""
        if step.asked is not Asked.MODEL:
            return worded(step, question, None)
        asked = self.prompts.asked(question.text, question.context, question.choices)
        text = self.template.format(question=asked, answer=self.answers.get(question.question_id, ""))
        return Request(step.of, step.asked, (Message("user", f"{text}\n\n{self.think}" if self.think else text),))
