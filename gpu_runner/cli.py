"""What the commands share: options, exit codes, files that are read, and how failures are told."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from pydantic import ValidationError

from gpu_runner.core.contract import check_contract
from gpu_runner.core.search import Method
from gpu_runner.core.source import MAX_BYTES
from gpu_runner.core.targets import target_named
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision, Track
from gpu_runner.evaluation.devices import find_device
from gpu_runner.evaluation.errors import DeviceLost, InvalidTask, RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

OK, NO, USAGE, FAILED = 0, 1, 2, 3

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
TaskFile = Annotated[
    Path,
    typer.Argument(metavar="TASK", help="A file with Model and get_inputs (KernelBench form)."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
TrackOption = Annotated[Track, typer.Option(help="Who may do the floating-point work.")]
PrecisionOption = Annotated[
    Precision, typer.Option(help="Policy for float32 matmul and convolution.")
]
Target = Annotated[str, typer.Option(help="The GPU that modelled speed is for.")]
Sandbox = Annotated[str, typer.Option(help="bwrap, or none: submitted code then runs unprotected.")]
MOST_SLOTS: Final = 4
"""By default: each takes up to a gigabyte of memory."""
SlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help=f"Evaluations at the same time; by default 1 on a GPU, else as many as processors, at most {MOST_SLOTS}.",
    ),
]
ModelOption = Annotated[str | None, typer.Option(help="A profile of the file in FOUNDRY_MODELS.")]
MethodOption = Annotated[
    Method,
    typer.Option(help="sampling: the control arm, which builds on nothing it found."),
]
Initialisers = Annotated[bool, typer.Option(help="Whether to use the initialisers.")]
Diagnosis = Annotated[bool, typer.Option(help="Whether to diagnose.")]
Lessons = Annotated[bool, typer.Option(help="Whether to use the library.")]
LibraryFolder = Annotated[
    Path | None, typer.Option(help="Folder of entries instead of those of the project.")
]
Baseline = Annotated[
    Path | None, typer.Option(help="Your own ModelNew: timed beside eager and torch.compile.")
]


def task_from(
    path: Path,
    *,
    track: Track = Track.OWN_KERNELS,
    precision: Precision = Precision.REFERENCE,
    target: str = "h200",
    baseline: Path | None = None,
) -> TaskSpec:
    source = read_text(path)
    problems = check_contract(source)
    if problems:
        usage("\n".join(_located(path, problem.line, problem.message) for problem in problems))
    try:
        target_named(target)
        return TaskSpec(
            name=path.stem[:120],
            source=source,
            track=track,
            precision=precision,
            target=target,
            baseline_source=read_text(baseline) if baseline else None,
        )
    except ValidationError as error:
        usage(told(error))
    except ValueError as error:
        usage(f"--target: {error}")


_OPTIONS = {"money_usd": "usd", "gpu_s": "gpu-seconds", "wall_s": "minutes"}
"""Options that are called otherwise than the fields that they set."""


def told(error: ValidationError) -> str:
    """What is wrong, by option."""
    return "\n".join(
        f"--{_OPTIONS.get(name, name)}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)
        for name in [str(problem["loc"][-1]) if problem["loc"] else "evaluations"]
    )


def read_text(path: Path, limit: int | None = MAX_BYTES) -> str:
    """The text of a source without a byte order mark; bytes that are no UTF-8 become a character that no parser accepts."""
    try:
        content = path.read_bytes()
    except OSError as error:
        usage(f"cannot read {path}: {error.strerror}")
    if limit is not None and len(content) > limit:
        usage(f"{path} has {len(content):,} bytes; at most {limit:,} are accepted")
    return content.decode("utf-8-sig", "surrogateescape")


def diagnosed(evaluation: Any, source: str) -> Any:
    from gpu_runner.diagnosis import diagnose

    return diagnose(evaluation, source)


def usual_slots(device: str, sandbox: str) -> int:
    """One on a GPU, whose slots each hold memory there; without one, where nothing is timed, as many as processors."""
    with contextlib.suppress(DeviceLost):
        if find_device(device, sandbox=sandbox).kind == "cpu":
            return min(MOST_SLOTS, len(os.sched_getaffinity(0)))
    return 1


@contextlib.contextmanager
def pool_for(
    device: str, sandbox: str, *, slots: int | None = 1, max_autotune: bool = False
) -> Iterator[LocalPool]:
    try:
        settings = EvaluationSettings(
            device=device,
            slots=slots or usual_slots(device, sandbox),
            sandbox=sandbox,
            max_autotune=max_autotune,
        )
    except ValueError as error:
        usage(str(error))
    with our_failures():
        try:
            pool = open_pool(settings)
        except DeviceLost as error:
            usage(str(error))
    try:
        yield pool
    finally:
        pool.close()


@contextlib.contextmanager
def our_failures() -> Iterator[None]:
    """An unusable task is the caller's to mend (2); an evaluator that fails is ours (3)."""
    try:
        yield
    except InvalidTask as error:
        usage(f"the task cannot be used: {error}")
    except (RunnerError, OSError) as error:
        typer.echo(f"the evaluator failed: {error}", err=True)
        raise typer.Exit(FAILED) from error


def stop_gently(want: Any) -> None:
    """The first Ctrl-C lets the current evaluations end and writes the result, the second one ends at once."""
    from gpu_runner.core.verdicts import RunState

    def ask(number: int, _: object) -> None:
        signal.signal(
            number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
        )
        typer.echo("stopping after the current evaluation; once more to stop now", err=True)
        want(RunState.STOPPING)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def _located(path: Path, line: int | None, message: str) -> str:
    return f"{path}:{line}: {message}" if line else f"{path}: {message}"


def usage(message: str) -> NoReturn:
    typer.echo(message.encode("utf-8", "replace").decode(), err=True)
    raise typer.Exit(USAGE)


def print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()
