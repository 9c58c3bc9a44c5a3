"""The command line: `python -m gpu_runner doctor | lint | evaluate | evolve | learn | bench | work`, and those of `folders`.

Exit codes: 0 what was asked for holds (the candidate is correct, a correct best was found, all is well); 1 it does not; 2 wrong
usage, an unusable task included; 3 the evaluator itself failed. With `--json` one JSON object goes to stdout and nothing else.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gpu_runner import folders, show
from gpu_runner.bench import commands as bench_commands
from gpu_runner.cli import (
    NO,
    OK,
    Baseline,
    Device,
    Diagnosis,
    Initialisers,
    Json,
    Lessons,
    LibraryFolder,
    MethodOption,
    ModelOption,
    PrecisionOption,
    Sandbox,
    SlotsOption,
    Target,
    TaskFile,
    TrackOption,
    diagnosed,
    our_failures,
    pool_for,
    print_json,
    read_text,
    stop_gently,
    task_from,
    told,
    usage,
)
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget, RunSpec, best_of_10
from gpu_runner.core.verdicts import Precision, Track

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Judge, diagnose and evolve Triton kernels for a PyTorch task.",
)
folders.add_to(app)
app.add_typer(bench_commands.app, name="bench")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: Python, torch, Triton, the sandbox, the GPU; says what to do about what is missing."""
    from gpu_runner.doctor import report

    checks = report()
    if as_json:
        print_json({"checks": [vars(check) for check in checks], "ok": all(c.ok for c in checks)})
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
    spec = task_from(task, precision=precision)
    with pool_for(device, sandbox) as pool, our_failures():
        report = pool.inspect(spec)
    if as_json:
        print_json(report.model_dump(mode="json"))
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
    spec = task_from(task, track=track, precision=precision, target=target, baseline=baseline)
    source = read_text(candidate, limit=None)
    with (
        pool_for(device, sandbox, max_autotune=max_autotune) as pool,
        our_failures(),
        show.stages(quiet=as_json) as on_stage,
    ):
        evaluation = pool.evaluate(spec, source, on_stage=on_stage)
    evaluation = diagnosed(evaluation, source)
    if as_json:
        print_json(evaluation.model_dump(mode="json"))
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
    iterations: Annotated[int | None, typer.Option(help="Budget: steps of the search.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget: of the model, in and out.")] = None,
    usd: Annotated[float | None, typer.Option(help="Budget: money for the model.")] = None,
    gpu_seconds: Annotated[float | None, typer.Option(help="Budget: time on a GPU.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget: wall time.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Device = "auto",
    track: TrackOption = Track.OWN_KERNELS,
    precision: PrecisionOption = Precision.REFERENCE,
    target: Target = "h200",
    baseline: Baseline = None,
    model: ModelOption = None,
    also: Annotated[
        list[str] | None,
        typer.Option(help="Another profile that writes beside --model; may be repeated."),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=0, max=64, help="Requests per island to write to files, not send.")
    ] = 0,
    slots: SlotsOption = None,
    library: LibraryFolder = None,
    method: MethodOption = Method.EVOLUTION,
    direct: Annotated[
        bool, typer.Option("--best-of-10", help="Ten answers of the model from the reference.")
    ] = False,
    initialisers: Initialisers = True,
    diagnosis: Diagnosis = True,
    lessons: Lessons = True,
    sandbox: Sandbox = "bwrap",
) -> None:
    """Evolve kernels for a task; resumes from the folder if it holds the same run. Exit 0 with a correct best."""
    from gpu_runner import driver
    from gpu_runner.core.starting_entries import FOLDER, UnreadableEntry, starting_entries
    from gpu_runner.journal import Journal, JournalError
    from gpu_runner.proposals.models import ProfileError, load_models

    wants_model = {"best-of-10": direct, "batch": batch, "also": also}
    if model is None and any(wants_model.values()):
        usage(f"--{next(name for name, given in wants_model.items() if given)} needs a --model")
    try:
        spec = RunSpec(
            task=task_from(
                task, track=track, precision=precision, target=target, baseline=baseline
            ),
            seed=seed,
            islands=islands,
            budget=Budget(
                evaluations=evaluations,
                iterations=iterations,
                tokens=tokens,
                money_usd=usd,
                gpu_s=gpu_seconds,
                wall_s=minutes and minutes * 60,
            ),
            device=device,
            model=model,
            more_models=tuple(also or ()),
            method=method,
            use_initialisers=initialisers,
            use_diagnosis=diagnosis,
            use_library=lessons,
        )
        spec = best_of_10(spec) if direct else spec
        models = load_models()
        for name in spec.models:
            _ = models.poster(name, batch) if batch else models.writer(name)
        entries = starting_entries(library or FOLDER)
    except ValidationError as error:
        usage(told(error))
    except (ProfileError, UnreadableEntry) as error:
        usage(str(error))
    try:
        with Journal(out, spec) as journal, pool_for(device, sandbox, slots=slots) as pool:
            stop_gently(journal.want)
            with show.progress(journal, quiet=as_json) as ledger, our_failures():
                result = driver.run(ledger, pool, models=models, library=entries, batch=batch)
    except JournalError as error:
        usage(str(error))
    if as_json:
        print_json(result.as_json())
    else:
        show.result(result, out)
    raise typer.Exit(OK if result.best is not None else NO)


@app.command()
def learn(
    task: TaskFile,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="An expert's ModelNew.")],
    out: Annotated[
        Path, typer.Option(help="Folder for entries.jsonl, lineage.json and lessons.json.")
    ],
    as_json: Json = False,
    evaluations: Annotated[
        int, typer.Option(min=2, help="Budget of steps; a lesson is run twice more.")
    ] = 32,
    device: Device = "auto",
    track: TrackOption = Track.OWN_KERNELS,
    precision: PrecisionOption = Precision.REFERENCE,
    target: Target = "h200",
    sandbox: Sandbox = "bwrap",
) -> None:
    """Learn from an expert's kernel: take out one technique after the other, and keep what costs. Exit 0 with a lesson."""
    from gpu_runner import learning
    from gpu_runner.experience.lineage import UnfitExpert

    spec = task_from(task, track=track, precision=precision, target=target)
    source = read_text(kernel)
    try:
        # Before minutes are spent on what could not be kept.
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        usage(f"cannot write to {out}: {error.strerror}; choose another --out")
    with pool_for(device, sandbox) as pool, our_failures():
        try:
            learned = learning.learn(
                pool, spec, source, evaluations=evaluations, told=partial(typer.echo, err=True)
            )
        except UnfitExpert as error:
            usage(str(error))
    learning.write(learned, out)
    if as_json:
        print_json(learned.lineage.model_dump(mode="json"))
    else:
        show.learned(learned, out)
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
        usage(str(error))
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
