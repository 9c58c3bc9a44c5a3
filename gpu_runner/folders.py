"""Commands on the --out folder of a run: `brief`, `submit`, `batch export`, `batch import`, `export`. None needs Django."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from gpu_runner import show
from gpu_runner.cli import (
    NO,
    OK,
    Json,
    Sandbox,
    SlotsOption,
    our_failures,
    pool_for,
    print_json,
    read_text,
    stop_gently,
    usage,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The --out folder of a run.")]


def add_to(app: typer.Typer) -> None:
    app.command()(brief)
    app.command()(submit)
    app.command()(export)
    files = typer.Typer(help="Have a model's requests answered through files.")
    files.command("export")(batch_export)
    files.command("import")(batch_import)
    app.add_typer(files, name="batch")


def brief(
    folder: Folder, as_json: Json = False, best: Annotated[int, typer.Option(min=0)] = 3
) -> None:
    """Tell a person or an agent what is needed to write a kernel: the task, the best so far, findings, what failed."""
    from gpu_runner import briefs
    from gpu_runner.journal import JournalError

    try:
        told = briefs.brief_of(folder, best)
    except JournalError as error:
        usage(str(error))
    if as_json:
        print_json(told)
    else:
        typer.echo(briefs.as_text(told))


def submit(
    folder: Folder,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="A file with ModelNew.")],
    author: Annotated[str, typer.Option(help="Who wrote it; recorded with the candidate.")],
    island: Annotated[int, typer.Option(min=0, max=15)] = 0,
    parent: Annotated[int | None, typer.Option(help="The candidate it was made from.")] = None,
    move: Annotated[str, typer.Option(help="What was changed, in a line.")] = "",
) -> None:
    """Give a kernel to a run, in progress or later: it goes through the same gates as every other."""
    from gpu_runner import inbox
    from gpu_runner.journal import JournalError, history

    try:
        run = history(folder)
    except JournalError as error:
        usage(str(error))
    if island >= run.spec.islands:
        usage(f"the run has no island {island}; give --island 0 to {run.spec.islands - 1}")
    if parent is not None and parent not in run.candidates:
        usage(f"the run has no candidate {parent}; `brief {folder}` shows the best")
    try:
        path = inbox.submit(
            folder, read_text(kernel), author=author, island=island, parent=parent, move=move
        )
    except inbox.Refused as problem:
        usage(f"{kernel}: {problem}")
    except OSError as error:
        usage(f"cannot write to {folder / 'inbox'}: {error.strerror}")
    typer.echo(f"it waits in {path}; the run takes it as its next candidate")


def export(
    folder: Folder,
    to: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, replaced if it exists.")],
    min_gain: Annotated[
        float | None,
        typer.Option(help="Only steps that keep correctness and gain at least this ratio."),
    ] = None,
    prompts_only: Annotated[
        bool, typer.Option("--prompts-only", help="Only steps that a model was asked for.")
    ] = False,
) -> None:
    """Write a run's steps for supervised or reinforcement training; docs/trajectories.md has the schema."""
    from gpu_runner import trajectories
    from gpu_runner.journal import JournalError

    try:
        steps = trajectories.steps_of(folder)
    except JournalError as error:
        usage(str(error))
    chosen = [s for s in steps if trajectories.is_wanted(s, min_gain, prompts_only=prompts_only)]
    _write_lines(to, map(json.dumps, chosen))
    typer.echo(f"{len(chosen)} of {len(steps)} steps written to {to}")


def batch_export(
    folder: Folder,
    to: Annotated[Path | None, typer.Option(help="A file; standard output otherwise.")] = None,
) -> None:
    """Write the requests that wait for an answer as OpenAI batch JSONL."""
    from gpu_runner import batch
    from gpu_runner.journal import JournalError

    try:
        lines = list(batch.as_lines(batch.pending(folder)))
    except JournalError as error:
        usage(str(error))
    if to is None:
        typer.echo("\n".join(lines))
    else:
        _write_lines(to, lines)
        typer.echo(f"{len(lines)} requests written to {to}")


def batch_import(
    folder: Folder,
    answers: Annotated[Path, typer.Argument(metavar="ANSWERS", help="JSON lines with answers.")],
    per_island: Annotated[int, typer.Option(min=1, max=64, help="Requests of the next round.")] = 2,
    slots: SlotsOption = None,
    sandbox: Sandbox = "bwrap",
    as_json: Json = False,
) -> None:
    """Take answers in and go on until the next requests wait, or the run is over. Exit 1 where lines were not usable."""
    from gpu_runner import batch, driver
    from gpu_runner.journal import Journal, JournalError
    from gpu_runner.proposals.models import ProfileError, load_models

    lines = batch.lines_of(read_text(answers, limit=None))
    try:
        models = load_models()
        with Journal.reopened(folder) as journal:
            imported = batch.take_answers(journal, lines)
            show.imported(imported, answers)
            with pool_for(journal.spec.device, sandbox, slots=slots) as pool, our_failures():
                stop_gently(journal.want)
                result = driver.run(journal, pool, models=models, batch=per_island)
    except (JournalError, ProfileError) as error:
        usage(str(error))
    if as_json:
        print_json(result.as_json())
    else:
        show.result(result, folder)
    raise typer.Exit(NO if imported.problems else OK)


def _write_lines(to: Path, lines: Iterable[str]) -> None:
    try:
        to.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        usage(f"cannot write {to}: {error.strerror}")
