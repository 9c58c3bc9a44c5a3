"""Requests of a run as OpenAI batch JSONL, and their answers back: for cheap batch endpoints and hosts without a network."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_runner.core.task import RunSpec
from gpu_runner.journal import Journal, read_records, understood
from gpu_runner.proposals.models.failures import Failure, ModelFailure
from gpu_runner.proposals.models.replies import read_completion, whole_characters
from gpu_runner.questions import Answer, Question

ENDPOINT = "/v1/chat/completions"
MAX_REPLY = 1 << 20


@dataclass
class Imported:
    """What became of a file of answers; problems by line, from 1."""

    taken: int = 0
    known: int = 0
    missing: tuple[str, ...] = ()
    problems: list[tuple[int, str]] = field(default_factory=list)


def pending(folder: Path) -> list[Question]:
    """Questions without an answer, in the order in which they were asked; the run may be in progress.

    Raises:
        JournalError: the folder holds no run.
    """
    with understood(folder):
        first, *records = read_records(folder / "journal.jsonl")
        RunSpec.model_validate(first["spec"])
        notes = [r for r in records if r["record"] == "note"]
        questions = [Question.model_validate(n["payload"]) for n in notes if n["kind"] == "request"]
        answered = {n["payload"]["id"] for n in notes if n["kind"] == "reply"}
    return [question for question in questions if question.id not in answered]


def lines_of(text: str) -> list[str]:
    """Not by `splitlines`: JSON may hold the other characters that end a line."""
    return text.split("\n")


def as_lines(questions: Iterable[Question]) -> Iterator[str]:
    for question in questions:
        line = {"custom_id": question.id, "method": "POST", "url": ENDPOINT, "body": question.body}
        yield json.dumps(line)


def take_answers(journal: Journal, lines: Iterable[str]) -> Imported:
    """Write down the answers to open questions; what was imported before is left alone.

    A line is the one of OpenAI's batch output, or `{"custom_id": ..., "content": ...}` by whoever answered.
    """
    questions = {q.id: q for q in map(Question.model_validate, journal.notes("request"))}
    answers = {a.id: a for a in map(Answer.model_validate, journal.notes("reply"))}
    imported, seen = Imported(), set[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        answer = _read(line, questions)
        if isinstance(answer, str):
            imported.problems.append((number, answer))
        elif answer.id in seen:
            imported.problems.append((number, f"{answer.id} is answered twice; the first counts"))
        elif answer.id in answers:
            seen.add(answer.id)
            imported.known += 1
            if answers[answer.id] != answer:
                imported.problems.append(
                    (number, f"{answer.id} had another answer; that one counts")
                )
        else:
            seen.add(answer.id)
            journal.note("reply", answer.model_dump(mode="json"))
            imported.taken += 1
    imported.missing = tuple(q for q in questions if q not in seen and q not in answers)
    return imported


def _read(line: str, questions: dict[str, Question]) -> Answer | str:
    """The answer on a line, or why there is none."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(raw, dict) or not isinstance(raw.get("custom_id"), str):
        return "no object with a custom_id"
    question = questions.get(raw["custom_id"])
    if question is None:
        return f"{raw['custom_id'][:80]!r} is no question of this run"
    if isinstance(raw.get("content"), str):
        return Answer(id=question.id, text=whole_characters(raw["content"][:MAX_REPLY]))
    return _from_batch(question, raw)


def _from_batch(question: Question, raw: dict[str, Any]) -> Answer | str:
    response = raw.get("response")
    if raw.get("error") or not isinstance(response, dict):
        trouble = str(raw.get("error") or "no response")[:2000]
        return Answer(id=question.id, outcome=Failure.UNREACHABLE.value, trouble=trouble)
    if response.get("status_code", 200) != 200:
        trouble = f"the endpoint answered {response['status_code']}: {response.get('body')}"[:2000]
        return Answer(id=question.id, outcome=Failure.REFUSED.value, trouble=trouble)
    try:
        reply = read_completion(
            response.get("body"), question.body["max_tokens"], lambda text: text[:MAX_REPLY]
        )
    except ModelFailure as failure:
        text = failure.reply.text if failure.reply else ""
        outcome = failure.failure.value
        return Answer(id=question.id, text=text, outcome=outcome, trouble=failure.detail)
    return Answer(
        id=question.id, text=reply.text, tokens_in=reply.tokens_in, tokens_out=reply.tokens_out
    )
