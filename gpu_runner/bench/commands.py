"""`bench SUITE`, `bench report DIR` and `bench compare A B`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from gpu_runner.cli import (
    FAILED,
    NO,
    OK,
    Device,
    Diagnosis,
    Initialisers,
    Json,
    Lessons,
    LibraryFolder,
    MethodOption,
    ModelOption,
    Sandbox,
    Target,
    our_failures,
    pool_for,
    print_json,
    stop_gently,
    told,
    usage,
)
from gpu_runner.core.search import Method
from gpu_runner.core.targets import target_named
from gpu_runner.core.verdicts import Precision, Track

if TYPE_CHECKING:
    from gpu_runner.bench.report import Report


class _RunsByDefault(TyperGroup):
    """`bench SUITE` is `bench run SUITE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsByDefault,
    no_args_is_help=True,
    help="Evolve every task of a suite and report on all of them: bench SUITE --out DIR, or bench compare A B. "
    "The options of the first: bench run --help.",
)


@app.command()
def run(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="A folder of tasks in the KernelBench form.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs, report.json and report.html; else out/ and the suite's name."
        ),
    ] = None,
    as_json: Json = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help='Only these: "level1", "level2/3_*", "softmax"; may be repeated.'),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(help="own_kernels (default), library_allowed, both; may be repeated."),
    ] = None,
    precision: Annotated[
        list[Precision] | None,
        typer.Option(help="reference (default), ieee or tf32; may be repeated."),
    ] = None,
    evaluations: Annotated[int, typer.Option(min=1, help="Candidates evaluated per task.")] = 24,
    seconds: Annotated[float | None, typer.Option(help="Wall time per task.")] = None,
    islands: Annotated[int, typer.Option(min=1, max=16)] = 3,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Device = "auto",
    target: Target = "h200",
    at_once: Annotated[
        int,
        typer.Option("--tasks-at-once", min=1, max=64, help="Tasks worked on at the same time."),
    ] = 1,
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Evaluations at the same time; else one per task."),
    ] = None,
    model: ModelOption = None,
    method: MethodOption = Method.EVOLUTION,
    initialisers: Initialisers = True,
    diagnosis: Diagnosis = True,
    lessons: Lessons = True,
    library: LibraryFolder = None,
    sandbox: Sandbox = "bwrap",
) -> None:
    """Evolve every task of a suite; goes on where it was stopped, killed, or brought from another machine.

    Every Python file below the folder is a task, but those whose name begins with "_". Exit 0 where all have a correct kernel.
    """
    from gpu_runner.bench import running, terminal
    from gpu_runner.bench.results import NoResults, Results, Settings
    from gpu_runner.bench.suite import NoSuite, read_suite
    from gpu_runner.core.starting_entries import FOLDER, UnreadableEntry, starting_entries
    from gpu_runner.proposals.models import ProfileError, load_models

    out = out or Path("out") / suite.resolve().name
    arms = [(t, p) for p in precision or [Precision.REFERENCE] for t in _tracks(track)]
    try:
        target = target_named(target).name
    except ValueError as error:
        usage(f"--target: {error}")
    try:
        tasks = read_suite(suite, only or ())
        settings = Settings(
            suite=suite.resolve().name,
            evaluations=evaluations,
            seconds=seconds,
            islands=islands,
            seed=seed,
            target=target,
            model=model,
            method=method,
            use_initialisers=initialisers,
            use_diagnosis=diagnosis,
            use_library=lessons,
            library=library.resolve().name if library else None,
        )
        models = load_models()
        _ = models.writer(model) if model else None
        entries = starting_entries(library or FOLDER)
    except ValidationError as error:
        usage(told(error))
    except (NoSuite, ProfileError, UnreadableEntry) as error:
        usage(str(error))
    try:
        with (
            Results(out, settings) as results,
            pool_for(device, sandbox, slots=slots or at_once) as pool,
            our_failures(),
        ):
            found, trouble = running.bench(
                results,
                tasks,
                arms,
                pool,
                here=running.environment_of(pool.device, settings.target),
                at_once=at_once,
                on_stop=lambda stop: stop_gently(lambda _: stop()),
                models=models,
                library=entries,
                quiet=as_json,
            )
    except NoResults as error:
        usage(str(error))
    except KeyboardInterrupt:
        typer.echo("stopped; run the same command again to go on", err=True)
        raise typer.Exit(NO) from None
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        terminal.summary(found, out)
    if trouble:
        typer.echo(trouble, err=True)
    raise typer.Exit(FAILED if trouble else OK if _is_solved(found) else NO)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of a bench.")],
    as_json: Json = False,
) -> None:
    """Write the report on a folder of results again, run nothing: for folders put together from several machines."""
    from gpu_runner.bench import running, terminal
    from gpu_runner.bench.results import NoResults, Results, settings_in

    try:
        with Results(folder, settings_in(folder)) as results:
            found = running.report_on(results)
    except NoResults as error:
        usage(str(error))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        terminal.summary(found, folder)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The --out folder of a bench.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="That of another, with other settings.")],
    as_json: Json = False,
    across_devices: Annotated[
        bool,
        typer.Option("--across-devices", help="Also where devices or versions are not the same."),
    ] = False,
) -> None:
    """Set two arms side by side, over the tasks that both have run."""
    from gpu_runner.bench import comparing, terminal
    from gpu_runner.bench.results import NoResults, rows_in, settings_in

    try:
        arms = [(settings_in(folder), rows_in(folder)) for folder in (a, b)]
        found = comparing.compare(*arms, across_devices=across_devices)
    except NoResults as error:
        usage(str(error))
    except comparing.Incomparable as error:
        usage(f"{a} and {b} cannot be compared: {error}")
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        terminal.comparison(found)


def _tracks(given: list[str] | None) -> list[Track]:
    """The tracks that are named, each once, in the order of the names."""
    wanted: dict[Track, None] = {}
    for name in given or [Track.OWN_KERNELS.value]:
        if name != "both" and name not in list(Track):
            usage(f"--track: {name!r} is none of {', '.join(Track)}, both")
        wanted |= dict.fromkeys(Track if name == "both" else [Track(name)])
    return list(wanted)


def _is_solved(found: "Report") -> bool:
    return all(row.best is not None for row in found.rows)
