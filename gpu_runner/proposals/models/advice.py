"""What planners, summarisers and rerankers are asked and how their answers are read: one JSON object, every field checked."""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.entries import Entry, EntryContent
from gpu_runner.core.search import Idea
from gpu_runner.core.task import TaskSpec
from gpu_runner.proposals.models.failures import Message
from gpu_runner.proposals.models.parsing import Unusable
from gpu_runner.proposals.models.prompts import as_example, template

MAX_NEW: Final = 5
"""Ideas that one look at the plan may add."""
MAX_SHOWN: Final = 30

_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
T = TypeVar("T", bound=BaseModel)


class NewIdea(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    base: int = Field(description="the candidate that it is for")
    key: str = Field(min_length=1, max_length=80)
    text: str = Field(min_length=1, max_length=1000)
    gain: float = Field(gt=0, le=100, allow_inf_nan=False)
    difficulty: float = Field(ge=0, le=1, allow_inf_nan=False)


class PlanEdit(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    add: tuple[NewIdea, ...] = Field(default=(), max_length=MAX_NEW)
    drop: tuple[int, ...] = Field(default=(), max_length=200)


class Summary(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    title: str = Field(min_length=1, max_length=200)
    action: str = Field(min_length=1, max_length=4000)
    preconditions: str = Field(default="", max_length=2000)
    if_violated: str = Field(default="", max_length=2000)


class Order(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    order: tuple[str, ...] = Field(max_length=200)


def ask_for_plan(
    task: TaskSpec, bases: Sequence[Candidate], ideas: Sequence[Idea]
) -> list[Message]:
    """Have the plan edited: `bases` are the candidates that ideas may be for, the best first."""
    told = "\n".join(map(_idea, ideas[-MAX_SHOWN:])) or "none yet"
    kernels = "\n".join(f"Candidate {base.id}. {as_example(base)}" for base in bases)
    return _asked(
        "planner", reference=task.source.rstrip(), kernels=kernels, ideas=told, most=MAX_NEW
    )


def read_plan(text: str, bases: Collection[int], open_ideas: Collection[int]) -> PlanEdit:
    """Raises Unusable, also where it names a candidate or an idea that it was not shown."""
    edit = _read(PlanEdit, text)
    if strange := [new.base for new in edit.add if new.base not in bases]:
        raise Unusable(f"no candidate {strange[0]} was shown")
    if strange := [number for number in edit.drop if number not in open_ideas]:
        raise Unusable(f"idea {strange[0]} is not open")
    return edit


def ask_for_summary(content: EntryContent) -> list[Message]:
    effect = content.effects[0]
    return _asked(
        "summariser",
        move=content.title,
        facts=content.action,
        gain=f"{effect.ratio:.2f} times as fast ({effect.fidelity}, {effect.device})",
        before=content.before.rstrip(),
        after=content.after.rstrip(),
    )


def summarised(content: EntryContent, text: str) -> EntryContent:
    """The entry in the model's words, each field of them marked until a person confirms it. Raises Unusable."""
    fields = {name: value for name, value in _read(Summary, text).model_dump().items() if value}
    return content.model_copy(update={**fields, "by_model": tuple(fields)})


def ask_for_order(question: str, entries: Sequence[Entry]) -> list[Message]:
    told = "\n".join(f"[{e.id}] {e.content.title}: {e.content.action[:500]}" for e in entries)
    return _asked("reranker", question=question, entries=told)


def read_order(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The ids in the model's order, those that it left out behind in their own. Raises Unusable where it invents one."""
    order = tuple(dict.fromkeys(_read(Order, text).order))
    if strange := [name for name in order if name not in known]:
        raise Unusable(f"no entry {strange[0][:40]} was shown")
    return (*order, *(name for name in known if name not in order))


def _asked(name: str, **told: Any) -> list[Message]:
    return [{"role": "user", "content": template(f"advice/{name}").substitute(told)}]


def _read(kind: type[T], text: str) -> T:
    fenced = _FENCED.findall(text)
    if len(fenced) > 1:
        raise Unusable("expected one JSON object, found several blocks")
    try:
        return kind.model_validate(json.loads(fenced[0] if fenced else text))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise Unusable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable("the answer is not one JSON object") from error


def _idea(idea: Idea) -> str:
    result = f", {idea.gain:.2f} times its base" if idea.gain is not None else ""
    return (
        f"{idea.id}. {idea.state}, for candidate {idea.base}, {idea.attempts} attempts{result}: {idea.key}:"
        f" {idea.text[:300]}"
    )
