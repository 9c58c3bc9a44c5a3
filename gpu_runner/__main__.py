"""The command line: `python -m gpu_runner doctor | lint | evaluate | evolve | learn | work`.

Exit codes: 0 what was asked for holds (the candidate is correct, a correct best was found, all is well); 1 it does not; 2 wrong
usage, an unusable task included; 3 the evaluator itself failed. With `--json` one JSON object goes to stdout and nothing else.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from gpu_runner import show
from gpu_runner.core.contract import check_contract
from gpu_runner.core.source import MAX_BYTES
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import Precision, Track
from gpu_runner.evaluation.errors import DeviceLost, InvalidTask, RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

OK, NO, USAGE, FAILED = 0, 1, 2, 3

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Judge, diagnose and evolve Triton kernels for a PyTorch task.",
)

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
Baseline = Annotated[
    Path | None, typer.Option(help="Your own ModelNew: timed beside eager and torch.compile.")
]


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: Python, torch, Triton, the sandbox, the GPU; says what to do about what is missing."""
    from gpu_runner.doctor import report

    checks = report()
    if as_json:
        _print_json({"checks": [vars(check) for check in checks], "ok": all(c.ok for c in checks)})
    else:
        show.checks(checks)
    raise typer.Exit(OK if all(check.ok for check in checks) else NO)


@app.command()
def lint(
    task: TaskFile,
    as_json: Json = False,
    device: Device = "auto",
    precision: PrecisionOption = Precision.REFERENCE,
    sandbox: Sandbox = "bwrap",
) -> None:
    """Run a task's reference a few times and say whether it can tell right from wrong. Exit 1 if it is untestable."""
    spec = _task(task, precision=precision)
    with _pool(device, sandbox) as pool, _our_failures():
        report = pool.inspect(spec)
    if as_json:
        _print_json(report.model_dump(mode="json"))
    else:
        show.task_report(spec, report)
    raise typer.Exit(OK if report.untestable is None else NO)


@app.command()
def evaluate(
    task: TaskFile,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A file with ModelNew.")],
    as_json: Json = False,
    device: Device = "auto",
    track: TrackOption = Track.OWN_KERNELS,
    precision: PrecisionOption = Precision.REFERENCE,
    target: Target = "h200",
    baseline: Baseline = None,
    sandbox: Sandbox = "bwrap",
    max_autotune: Annotated[
        bool, typer.Option("--max-autotune", help="torch.compile with max-autotune, on a GPU.")
    ] = False,
) -> None:
    """Judge one candidate: correct or not, genuine or not, how fast, and why. Exit 0 only when correct."""
    spec = _task(task, track=track, precision=precision, target=target, baseline=baseline)
    source = _read(candidate, limit=None)
    with (
        _pool(device, sandbox, max_autotune=max_autotune) as pool,
        _our_failures(),
        show.stages(quiet=as_json) as on_stage,
    ):
        evaluation = pool.evaluate(spec, source, on_stage=on_stage)
    evaluation = _diagnosed(evaluation, source)
    if as_json:
        _print_json(evaluation.model_dump(mode="json"))
    else:
        show.evaluation(evaluation)
    raise typer.Exit(OK if evaluation.is_correct else NO)


@app.command()
def evolve(
    task: TaskFile,
    out: Annotated[Path, typer.Option(help="Folder for journal.jsonl, best.py, result.json.")],
    as_json: Json = False,
    islands: Annotated[int, typer.Option(min=1, max=16)] = 3,
    evaluations: Annotated[int, typer.Option(min=1, help="Budget: candidates evaluated.")] = 24,
    minutes: Annotated[float | None, typer.Option(help="Budget: wall time.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Device = "auto",
    track: TrackOption = Track.OWN_KERNELS,
    precision: PrecisionOption = Precision.REFERENCE,
    target: Target = "h200",
    baseline: Baseline = None,
    model: Annotated[
        str | None, typer.Option(help="A profile of the file in FOUNDRY_MODELS.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Evaluations at the same time.")] = 1,
    library: Annotated[
        Path | None, typer.Option(help="Folder of entries instead of those of the project.")
    ] = None,
    sandbox: Sandbox = "bwrap",
) -> None:
    """Evolve kernels for a task; resumes from the folder if it holds the same run. Exit 0 with a correct best."""
    from gpu_runner import driver
    from gpu_runner.core.starting_entries import FOLDER, UnreadableEntry, starting_entries
    from gpu_runner.journal import Journal, JournalError
    from gpu_runner.proposals.models import ProfileError, load_models

    try:
        spec = RunSpec(
            task=_task(task, track=track, precision=precision, target=target, baseline=baseline),
            seed=seed,
            islands=islands,
            budget=Budget(evaluations=evaluations, wall_s=minutes and minutes * 60),
            device=device,
            model=model,
        )
        models = load_models()
        if model is not None:
            models.writer(model)
        entries = starting_entries(library or FOLDER)
    except (ValidationError, ProfileError, UnreadableEntry) as error:
        _usage(str(error))
    try:
        with Journal(out, spec) as journal, _pool(device, sandbox, slots=slots) as pool:
            _stop_gently(journal.want)
            with show.progress(journal, quiet=as_json) as ledger, _our_failures():
                result = driver.run(ledger, pool, models=models, library=entries)
    except JournalError as error:
        _usage(str(error))
    if as_json:
        _print_json(result.as_json())
    else:
        show.result(result, out)
    raise typer.Exit(OK if result.best is not None else NO)


@app.command()
def learn(
    task: TaskFile,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="An expert's ModelNew.")],
    out: Annotated[Path, typer.Option(help="Folder for entries.jsonl and lineage.json.")],
    as_json: Json = False,
    evaluations: Annotated[int, typer.Option(min=2, help="Budget: kernels evaluated.")] = 32,
    device: Device = "auto",
    track: TrackOption = Track.OWN_KERNELS,
    precision: PrecisionOption = Precision.REFERENCE,
    target: Target = "h200",
    sandbox: Sandbox = "bwrap",
) -> None:
    """Learn from an expert's kernel: take out one technique after the other, and keep what costs. Exit 0 with a lesson."""
    from gpu_runner import learning
    from gpu_runner.experience.lineage import UnfitExpert

    spec = _task(task, track=track, precision=precision, target=target)
    source = _read(kernel)
    with _pool(device, sandbox) as pool, _our_failures():
        try:
            learned = learning.learn(pool, spec, source, evaluations=evaluations)
        except UnfitExpert as error:
            _usage(str(error))
    learning.write(learned, out)
    if as_json:
        _print_json(learned.lineage.model_dump(mode="json"))
    else:
        show.lineage(learned.lineage, len(learned.entries), out)
    raise typer.Exit(OK if learned.entries else NO)


@app.command()
def work(
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    slots: Annotated[int | None, typer.Option(help="Evaluations at the same time.")] = None,
    sandbox: Annotated[str | None, typer.Option(help="bwrap, or none.")] = None,
) -> None:
    """Claim queued runs from the database and work on them until told to stop. Options win over FOUNDRY_* variables."""
    from gpu_runner.settings import InvalidSetting, WorkerSettings
    from gpu_runner.worker import main as serve

    given: dict[str, Any] = {"device": device, "slots": slots, "sandbox": sandbox}
    try:
        settings = replace(
            WorkerSettings.from_environment(),
            **{name: value for name, value in given.items() if value is not None},
        )
        code = serve(settings)
    except InvalidSetting as error:
        _usage(str(error))
    raise typer.Exit(code)


def _task(
    path: Path,
    *,
    track: Track = Track.OWN_KERNELS,
    precision: Precision = Precision.REFERENCE,
    target: str = "h200",
    baseline: Path | None = None,
) -> TaskSpec:
    source = _read(path)
    problems = check_contract(source)
    if problems:
        _usage("\n".join(_located(path, problem.line, problem.message) for problem in problems))
    try:
        return TaskSpec(
            name=path.stem,
            source=source,
            track=track,
            precision=precision,
            target=target,
            baseline_source=_read(baseline) if baseline else None,
        )
    except ValidationError as error:
        _usage(str(error))


def _read(path: Path, limit: int | None = MAX_BYTES) -> str:
    """The text of a source without a byte order mark; bytes that are no UTF-8 become a character that no parser accepts."""
    try:
        content = path.read_bytes()
    except OSError as error:
        _usage(f"cannot read {path}: {error.strerror}")
    if limit is not None and len(content) > limit:
        _usage(f"{path} has {len(content):,} bytes; at most {limit:,} are accepted")
    return content.decode("utf-8-sig", "surrogateescape")


def _diagnosed(evaluation: Any, source: str) -> Any:
    from gpu_runner.diagnosis import diagnose

    return diagnose(evaluation, source)


@contextlib.contextmanager
def _pool(
    device: str, sandbox: str, *, slots: int = 1, max_autotune: bool = False
) -> Iterator[LocalPool]:
    try:
        settings = EvaluationSettings(
            device=device, slots=slots, sandbox=sandbox, max_autotune=max_autotune
        )
    except ValueError as error:
        _usage(str(error))
    with _our_failures():
        try:
            pool = open_pool(settings)
        except DeviceLost as error:
            _usage(str(error))
    try:
        yield pool
    finally:
        pool.close()


@contextlib.contextmanager
def _our_failures() -> Iterator[None]:
    """An unusable task is the caller's to mend (2); an evaluator that fails is ours (3)."""
    try:
        yield
    except InvalidTask as error:
        _usage(f"the task cannot be used: {error}")
    except (RunnerError, OSError) as error:
        typer.echo(f"the evaluator failed: {error}", err=True)
        raise typer.Exit(FAILED) from error


def _stop_gently(want: Any) -> None:
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


def _usage(message: str) -> NoReturn:
    typer.echo(message.encode("utf-8", "replace").decode(), err=True)
    raise typer.Exit(USAGE)


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app()
