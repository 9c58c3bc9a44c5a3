"""The file that people take home: a candidate's source under a header that says what was verified, where, and how again."""

import shlex

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Evaluation, Ratio
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity

_NAMES = {"eager": "PyTorch eager", "torch_compile": "torch.compile", "user": "your own kernel"}


def best_file(task: TaskSpec, candidate: Candidate, name: str = "best.py") -> str:
    """The candidate's source with its header; the source itself is unchanged, so that its fingerprint stays equal.

    Args:
        name: of the file, for the command that checks it again.

    Raises:
        ValueError: the candidate has no evaluation.
    """
    if candidate.evaluation is None:
        raise ValueError(f"candidate {candidate.id} is not evaluated; there is nothing to state")
    lines = [*_about(task, candidate), *_facts(task, candidate.evaluation), *_again(task, name)]
    header = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{header}\n\n{candidate.source.lstrip()}"


def _about(task: TaskSpec, candidate: Candidate) -> list[str]:
    return [
        f"Triton kernel for the task {_one_line(task.name)}, by Kernel Foundry.",
        f"Candidate {candidate.id}, generation {candidate.generation}, island {candidate.island},"
        f" from {_one_line(candidate.origin)}.",
        "",
    ]


def _facts(task: TaskSpec, evaluation: Evaluation) -> list[str]:
    verdict = evaluation.verdict.value if evaluation.verdict else evaluation.state.value
    if evaluation.kind:
        verdict += f" ({evaluation.kind})"
    fidelity = evaluation.fidelity.value if evaluation.fidelity else "not timed"
    return [
        f"Verdict:     {verdict}",
        f"Verified at: {evaluation.verified_at or 'no'} size",
        f"Device:      {_one_line(evaluation.device)}",
        f"Speed:       {fidelity}" + _caution(task, evaluation),
        *(f"  {line}" for line in speedup_lines(evaluation)),
        f"Track:       {evaluation.track}",
        f"Precision:   {evaluation.precision}",
        "",
    ]


def speedup_lines(evaluation: Evaluation) -> list[str]:
    """One line for each baseline that the candidate was compared with, its interval where there is one."""
    return [
        f"{ratio.ratio:.2f} times as fast as {name}{_interval(ratio)}"
        for field, name in _NAMES.items()
        if (ratio := getattr(evaluation.speedup, field)) is not None
    ]


def _caution(task: TaskSpec, evaluation: Evaluation) -> str:
    if evaluation.fidelity is Fidelity.MODELLED:
        return f" (computed for the target {_one_line(task.target)}; nothing was timed)"
    return ""


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f" (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"


def _again(task: TaskSpec, name: str) -> list[str]:
    options = (
        f"--track {task.track} --precision {task.precision} --target {shlex.quote(task.target)}"
    )
    return [
        "Check it again, with the task's source in task.py:",
        f"  python -m gpu_runner evaluate task.py {name} {_one_line(options)}",
    ]


def _one_line(text: str) -> str:
    """Names come from people: a line break would end the comment and become code."""
    return " ".join(text.split())
