"""Prompts from versioned text files: what a model is told about the task, the parents, and what is known about them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Final

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.entries import Entry
from gpu_runner.core.findings import Finding
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Precision, Track
from gpu_runner.proposals.models.failures import Message
from gpu_runner.proposals.models.prices import estimated_tokens

VERSION: Final = "v1"
MAX_FINDINGS: Final = 3
MAX_ENTRY_CODE: Final = 6_000
"""Characters; longer code of an entry is left out, since half of it teaches nothing."""

_FOLDER = Path(__file__).parent / "prompts" / VERSION

_OR_THREE = "'tf32x3' (three TF32 products) counts as exact enough too, and runs on tensor cores"
"""See `docs/decisions/0010`."""

_TRACKS = {
    Track.OWN_KERNELS: "The track is own_kernels: every floating-point computation from inputs to output happens in your"
    " Triton kernels. torch may allocate, reshape, view, copy and fold parameters; it must not compute.",
    Track.LIBRARY_ALLOWED: "The track is library_allowed: torch's matrix products, convolutions, FFT and sort may be called"
    " beside your Triton kernels; at least one Triton kernel of yours must do work that matters.",
}
_PRECISIONS = {
    Precision.IEEE: "Precision: float32 products are IEEE float32. Give every tl.dot of float32 input_precision='ieee';"
    f" in its place {_OR_THREE}.",
    Precision.TF32: "Precision: float32 matrix products and convolutions may use TF32 (input_precision='tf32').",
}


@dataclass(frozen=True)
class Order:
    """What a model is asked to write.

    Args:
        role: improve, repair, crossover, simplify or seed; names the file with the job.
        parents: the first one is the current file that edits refer to.
        entries: of the library, the best first.
        hints: what people ask for, the newest first.
        failed: what was tried on these parents and did not help, one line each.
        idea: of the plan, to be tried now.
        show_findings: False leaves the diagnosis out, to see what it is worth.
    """

    role: str
    task: TaskSpec
    report: TaskReport
    device: str
    lens: str
    island: int
    temperature: float
    parents: tuple[Candidate, ...] = ()
    examples: tuple[Candidate, ...] = ()
    entries: tuple[Entry, ...] = ()
    failed: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    show_findings: bool = True
    idea: str = ""


class TooLong(ValueError):
    """The task and the parents alone are longer than the model's context."""


def messages_for(
    order: Order, *, form: str = "order", max_tokens: int | None = None
) -> list[Message]:
    """What the model is sent.

    Args:
        form: `order`, or `reference`: the bare reference with one sentence, for models trained to translate.
        max_tokens: room for the prompt. What is over goes as a whole, the least important first; no code is ever cut.

    Raises:
        TooLong: without everything that may go it is still too long.
    """
    while True:
        messages = _reference_only(order) if form == "reference" else _whole(order)
        tokens = estimated_tokens(messages)
        if max_tokens is None or tokens <= max_tokens:
            return messages
        shorter = _shorter(order)
        if form == "reference" or shorter is None:
            raise TooLong(
                f"the prompt needs {tokens:,} tokens, its context has room for {max_tokens:,}"
            )
        order = shorter


def _shorter(order: Order) -> Order | None:
    """The same with one thing less to read; None where nothing may go."""
    for name in ("examples", "entries", "failed", "hints"):
        if left := getattr(order, name):
            # Of failed moves the latest stand last, of all others the most important first.
            return replace(order, **{name: left[1:] if name == "failed" else left[:-1]})
    return None


def _reference_only(order: Order) -> list[Message]:
    text = template("reference").substitute(
        reference=order.task.source.rstrip(),
        rules=_TRACKS[order.task.track],
        precision=_precision(order),
    )
    return [{"role": "user", "content": text}]


def _whole(order: Order) -> list[Message]:
    system = template("system").substitute(
        track=_TRACKS[order.task.track], precision=_precision(order)
    )
    user = template("order").substitute(
        job=template(f"jobs/{order.role}").template.strip(),
        lens=order.lens,
        device=order.device,
        target=order.task.target,
        reference=order.task.source.rstrip(),
        inputs=_shapes(order.report.inputs),
        outputs=_shapes(order.report.outputs),
        parents="".join(_parent(order, n, parent) for n, parent in enumerate(order.parents)),
        entries=_section("Lessons from other tasks", [_entry(entry) for entry in order.entries]),
        examples=_section("Other kernels of this task", [as_example(c) for c in order.examples]),
        hints=_section("People ask for", [f"- {hint}" for hint in order.hints]),
        idea=_section("Try this now", [order.idea] if order.idea else []),
        failed=_section("Tried on this kernel without success", [f"- {m}" for m in order.failed]),
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def repair_message(reason: str) -> Message:
    return {"role": "user", "content": template("repair_answer").substitute(reason=reason)}


def as_text(messages: Sequence[Message]) -> str:
    """A prompt as one text, for the record."""
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


@functools.cache
def template(name: str) -> Template:
    """A text of this version by its name without the ending."""
    return Template((_FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def _precision(order: Order) -> str:
    graph = order.report.graph
    if order.task.precision is not Precision.REFERENCE:
        return _PRECISIONS[order.task.precision]
    matmul = "tf32" if graph.get("tf32_matmul", False) else "ieee"
    convolution = "tf32" if graph.get("tf32_convolution", True) else "ieee"
    return (
        f"Precision of float32 tl.dot: input_precision='{matmul}' for matrix products,"
        f" '{convolution}' for convolutions, as the reference's flags say. Less is rejected. In place of 'ieee', {_OR_THREE}."
    )


def _shapes(specs: Sequence[TensorSpec | None]) -> str:
    return ", ".join(f"{s.dtype}{list(s.shape)}" if s else "no tensor" for s in specs) or "none"


def _parent(order: Order, number: int, parent: Candidate) -> str:
    title = "The current file" if number == 0 else "The other parent"
    known = [_state_of(parent)]
    if order.show_findings and parent.evaluation:
        known += [_finding(finding) for finding in parent.evaluation.findings[:MAX_FINDINGS]]
    facts = "\n".join(known)
    return (
        f"\n{title} (candidate {parent.id}):\n```python\n{parent.source.rstrip()}\n```\n{facts}\n"
    )


def _state_of(candidate: Candidate) -> str:
    evaluation = candidate.evaluation
    if evaluation is None or evaluation.verdict is None:
        return "It was not evaluated."
    kind = f"/{evaluation.kind}" if evaluation.kind else ""
    if evaluation.speedup.eager is None:
        return f"Verdict: {evaluation.verdict}{kind}."
    fidelity = evaluation.fidelity or "not timed"
    return f"Verdict: {evaluation.verdict}{kind}, {candidate.fitness:.3f} times as fast as eager ({fidelity})."


def _finding(finding: Finding) -> str:
    place = f" (line {finding.location.line})" if finding.location.line else ""
    advice = f" Suggestion: {finding.suggestion}" if finding.suggestion else ""
    facts = ", ".join(f"{name}={_short(value)}" for name, value in finding.evidence.items())
    return (
        f"Finding, {finding.stage}/{finding.kind}{place}: {finding.title}.{advice} [{facts[:800]}]"
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _entry(entry: Entry) -> str:
    content = entry.content
    is_shown = 0 < len(content.after) <= MAX_ENTRY_CODE
    code = f"\nAfter:\n```python\n{content.after}\n```" if is_shown else ""
    conditions = f" Only if: {content.preconditions}" if content.preconditions else ""
    danger = f" Otherwise: {content.if_violated}" if content.if_violated else ""
    return f"[{entry.id}] {content.title}: {content.action}{conditions}{danger}{code}"


def as_example(candidate: Candidate) -> str:
    return f"{_state_of(candidate)}\n```python\n{candidate.source.rstrip()}\n```"


def _section(title: str, parts: Sequence[str]) -> str:
    return f"\n{title}:\n" + "\n".join(parts) + "\n" if parts else ""
