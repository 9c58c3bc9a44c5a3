"""What the command line shows people; results go to stdout, progress to stderr."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gpu_runner.core.evaluation import Evaluation, Ratio, Timing
from gpu_runner.core.findings import Finding, Severity
from gpu_runner.core.ledger import Ledger
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, Stage, VerifiedAt

if TYPE_CHECKING:
    from gpu_runner.batch import Imported
    from gpu_runner.doctor import Check
    from gpu_runner.evolution.results import RunResult
    from gpu_runner.learning import Learned

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
silent = Console(quiet=True)

_COLOURS = {
    Severity.GATE: "bold red",
    Severity.WARNING: "yellow",
    Severity.HINT: "cyan",
    Severity.NOTE: "dim",
}


def checks(found: "Sequence[Check]") -> None:
    for check in found:
        mark = Text(" ok ", "green") if check.ok else Text("MISS", "bold red")
        out.print(mark, Text(check.name, "bold"), Text(check.detail))
        if check.advice and not check.ok:
            out.print("     ", Text(check.advice, "yellow"))


def task_report(task: TaskSpec, report: TaskReport) -> None:
    out.print(Text(task.name, "bold"))
    for index, spec in enumerate(report.inputs):
        shape = f"{spec.dtype} {list(spec.shape)}" if spec else "no tensor"
        out.print(Text(f"  input {index}: {shape}"))
    for index, spec in enumerate(report.outputs):
        out.print(Text(f"  output {index}: {spec.dtype} {list(spec.shape)}"))
    probe = ", ".join(f"{name} = {value}" for name, value in (report.probe or {}).items())
    out.print(Text(f"  probe: {probe or 'the full size'}"))
    for warning in report.warnings:
        _finding(warning)
    if not report.warnings:
        out.print(Text("  no warnings", "green"))


def evaluation(result: Evaluation) -> None:
    """A verdict as a person reads it: the word, the reason, then times that name their baseline and fidelity."""
    verdict = str(result.verdict or result.state)
    colour = "bold green" if result.is_correct else "bold red"
    out.print(Text(verdict, colour), Text(f"/ {result.kind}" if result.kind else ""))
    out.print(Text(f"{result.device} · {result.track} · precision {result.precision}", "dim"))
    if result.verified_at is VerifiedAt.PROBE:
        out.print(Text("verified at probe size; a GPU verifies the full size", "dim"))
    for finding in result.findings:
        _finding(finding)
    if result.candidate is not None:
        out.print(_times(result))


def _finding(finding: Finding) -> None:
    place = finding.location
    where = ", ".join(
        f"{name} {value}"
        for name, value in (
            ("line", place.line),
            ("kernel", place.kernel),
            ("tensor", place.tensor),
            ("region", place.region),
        )
        if value is not None
    )
    out.print(
        Text(f"  {finding.severity:8}", _COLOURS[finding.severity]),
        Text(finding.title + (f" ({where})" if where else "")),
    )
    if finding.suggestion:
        out.print(Text(f"            {finding.suggestion}", "italic"))


def _times(result: Evaluation) -> Table:
    word = "modelled" if result.fidelity is Fidelity.MODELLED else "measured"
    table = Table("", f"{word} us", "call us", "n", "speedup of the candidate", box=None)
    table.add_row("candidate", *_time_cells(result.candidate), "")
    for name in ("eager", "torch_compile", "user"):
        timing, ratio = getattr(result.baselines, name), getattr(result.speedup, name)
        if timing is not None:
            table.add_row(name.replace("_", "."), *_time_cells(timing), _ratio(ratio))
    return table


def _time_cells(timing: Timing | None) -> tuple[str, str, str]:
    if timing is None:
        return "-", "-", "-"
    call = f"{timing.call_us:,.1f}" if timing.call_us is not None else "-"
    return f"{timing.device_us:,.2f}", call, str(timing.n)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}x"
    return f"{ratio.ratio:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


@contextlib.contextmanager
def stages(*, quiet: bool) -> Iterator[Callable[[Stage], None]]:
    """A line on the terminal that names the gate an evaluation has reached."""
    if quiet or not err.is_terminal:
        yield lambda stage: None
        return
    with err.status("starting") as status:
        yield lambda stage: status.update(str(stage))


@contextlib.contextmanager
def progress(ledger: Ledger, *, quiet: bool) -> Iterator[Ledger]:
    """The ledger itself, watched: a bar of evaluations with the best so far, or one line per candidate off a terminal."""
    if quiet:
        yield ledger
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        yield _Watched(ledger, bar)


class _Watched:
    """A ledger that shows what is written to it; everything else is the ledger's own."""

    def __init__(self, ledger: Ledger, bar: Progress) -> None:
        self._ledger = ledger
        self._bar = bar
        self._best = 0.0
        self._told: set[str] = set()
        done = sum(candidate.evaluation is not None for candidate in ledger.candidates())
        self._row = bar.add_task("starting", total=ledger.spec.budget.evaluations, completed=done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def finish(self, candidate_id: int, evaluation: Evaluation) -> None:
        self._ledger.finish(candidate_id, evaluation)
        self._best = max(self._best, evaluation.fitness)
        candidate = next(c for c in reversed(self._ledger.candidates()) if c.id == candidate_id)
        speed = f"{evaluation.fitness:.2f}x {evaluation.fidelity}" if evaluation.fitness else ""
        lead = evaluation.lead.title if evaluation.lead and not evaluation.is_correct else ""
        self._bar.console.print(
            Text(
                f"{candidate_id:4} island {candidate.island} {evaluation.verdict or evaluation.state!s:13}"
            ),
            Text(f"{speed:16} {candidate.origin:24} {candidate.move} {lead}"),
            soft_wrap=True,
        )
        self._bar.update(self._row, advance=1, description=f"best {self._best:.2f}x")

    def note(self, kind: str, payload: dict[str, Any]) -> None:
        """What went wrong with a way of making candidates is said once; the journal has every time."""
        self._ledger.note(kind, payload)
        text = str(payload.get("text", "")) if kind == "log" else ""
        if text and text not in self._told:
            self._told.add(text)
            self._bar.console.print(Text(f"     {text}", "yellow"), soft_wrap=True)


def imported(taken: "Imported", file: Path) -> None:
    err.print(Text(f"{taken.taken} answers taken, {taken.known} were known"))
    for number, problem in taken.problems:
        err.print(Text(f"{file}:{number}: {problem}", "yellow"))
    for question in taken.missing:
        err.print(Text(f"{file}: {question} has no answer yet", "yellow"))


def result(found: "RunResult", folder: Path) -> None:
    out.print(Text(f"{found.task}: {found.stop_reason}"))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.counts.items()))
    out.print(Text(counts or "no candidate", "dim"))
    if found.best is None or found.best.evaluation is None:
        out.print(Text("no correct candidate", "bold red"))
        return
    out.print(Text(f"best: candidate {found.best.id}, {found.best.origin}", "bold"))
    out.print(Text(f"written to {folder / 'best.py'}"))
    evaluation(found.best.evaluation)
    table = Table("candidate", "from", "gain", "move", "in the best", box=None)
    for move in found.moves:
        table.add_row(
            str(move.candidate_id),
            str(move.parent_id),
            f"{move.gain:.2f}x",
            move.move or move.origin,
            "yes" if move.in_best else "",
        )
    if found.moves:
        out.print(table)


def learned(result: "Learned", folder: Path) -> None:
    found = result.lineage
    table = Table("taken out", "of", "became", "time", box=None)
    for tried in found.alone:
        cost = f"{tried.cost:.3f}x" if tried.cost is not None else tried.title
        table.add_row(tried.step.technique, tried.step.site, tried.verdict, cost)
    out.print(table)
    if found.walk:
        kept = [tried for tried in found.walk if tried.cost is not None]
        out.print(Text(f"{len(kept)} of {len(found.walk)} steps stand on top of each other", "dim"))
    if found.left_out:
        out.print(Text(f"{found.left_out} steps were left out for want of budget", "yellow"))
    for lesson in result.lessons:
        if not lesson.verification.accepted:
            told = f"run again, {lesson.entry.title}: {lesson.verification.reason}"
            out.print(Text(told, "yellow"))
    out.print(Text(f"{len(result.entries)} lessons, written to {folder / 'entries.jsonl'}", "bold"))
