"""Requests to a model that go through files: what is kept of one until its answer is imported."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.task import RunSpec
from gpu_runner.drafting import Drafted
from gpu_runner.evolution.types import Operator, Request, State
from gpu_runner.proposals.models.failures import Failure, Reply
from gpu_runner.proposals.models.parsing import Unusable, parse_answer
from gpu_runner.proposals.models.prices import Price, estimated_tokens
from gpu_runner.proposals.models.writer import Post, call_of, draft_of, mending_messages


class Answer(BaseModel):
    """What came back for a question; `trouble` where that cannot be used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    text: str = ""
    outcome: str = "ok"
    trouble: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


class Question(BaseModel):
    """A request of the search with the request to the model that it led to; the payload of the note `request`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(description="the custom_id of the line in a batch file")
    number: int
    island: int
    operator: Operator
    model: str
    parents: tuple[int, ...] = ()
    examples: tuple[int, ...] = ()
    idea: int | None = None
    text: int | None = None
    arm: str = ""
    entries: tuple[str, ...] = ()
    body: dict[str, Any]
    is_mending: bool = False

    @classmethod
    def of(cls, spec: RunSpec, drafted: Drafted, post: Post) -> Self:
        request = drafted.request
        turn = 2 if post.is_mending else 1
        return cls(
            id=f"{spec.task.key[:8]}-{spec.seed}-{request.number}-{turn}",
            number=request.number,
            island=request.island,
            operator=request.operator,
            model=request.model,
            parents=tuple(parent.id for parent in request.parents),
            examples=tuple(example.id for example in request.examples),
            idea=request.idea.id if request.idea else None,
            text=request.text.id if request.text else None,
            arm=drafted.arm,
            entries=drafted.entries,
            body=dict(post.body),
            is_mending=post.is_mending,
        )

    @property
    def tokens(self) -> int:
        """Of the prompt, by estimate."""
        return estimated_tokens(self.body["messages"])

    def request(self, state: State, candidates: Mapping[int, Candidate]) -> Request:
        """The search's request again."""
        return Request(
            number=self.number,
            island=self.island,
            operator=self.operator,
            parents=tuple(candidates[number] for number in self.parents),
            examples=tuple(candidates[number] for number in self.examples),
            model=self.model,
            idea=state.plan.ideas[self.idea] if self.idea is not None else None,
            text=state.texts[self.text] if self.text is not None else None,
        )

    def answered(self, request: Request, answer: Answer, price: Price) -> Drafted:
        """What comes of an answer: a draft, one more question that has it mended, or nothing."""
        parent = request.parents[0].source if request.parents else None
        outcome, trouble = answer.outcome, answer.trouble
        draft, post = None, None
        if outcome == "ok":
            try:
                draft = draft_of(self.model, parse_answer(answer.text, parent))
            except Unusable as problem:
                outcome, trouble = Failure.MALFORMED.value, str(problem)
                if not self.is_mending:
                    messages = mending_messages(self.body["messages"], answer.text, trouble)
                    body = {**self.body, "messages": [dict(message) for message in messages]}
                    post = Post(body, self.operator.value, self.island, is_mending=True)
        call = call_of(
            self.model,
            price,
            role=self.operator.value,
            island=self.island,
            messages=self.body["messages"],
            reply=Reply(answer.text, answer.tokens_in, answer.tokens_out) if answer.text else None,
            outcome=outcome,
            trouble=trouble,
            seconds=0.0,
        )
        return Drafted(
            request,
            (draft,) if draft else (),
            calls=(call,),
            trouble=f"model {self.model}, {outcome}: {trouble}" if trouble else "",
            arm=self.arm,
            entries=self.entries,
            post=post,
        )
