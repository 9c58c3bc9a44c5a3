"""What a person at the terminal sees of a sitting: a bar of tasks with an estimate of its end, and a line per task."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from gpu_runner import show
from gpu_runner.bench.figures import speedup
from gpu_runner.bench.rows import Outcome, Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.ledger import Ledger

_COLOURS = {Outcome.DONE: "green", Outcome.INVALID: "yellow", Outcome.FAILED: "bold red"}


class Watch:
    """Told of every row and asked to look about twice a second.

    Args:
        total: tasks of the suite; `done` of them have a row already.
        clock: seconds.
    """

    def __init__(
        self, bar: Progress, total: int, done: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bar = bar
        self._left = total - done
        self._done = 0.0
        self._wanted = float(self._left)
        self._clock = clock
        self._began = clock()
        self._begun_parts: dict[str, float] = {}
        self._task = bar.add_task("", total=total, completed=done, end="")

    def row(self, row: Row) -> None:
        self._left -= 1
        if row.outcome is Outcome.DONE:
            self._done += 1
        else:
            # It took no time worth mentioning, and says nothing of the others.
            self._wanted -= 1
        self._bar.update(self._task, advance=1)
        if not self._left:
            self._bar.update(self._task, description="", end="")
        after = f"  {self._left} to go{self._end(self._done)}" if self._left else ""
        self._bar.console.print(
            Text(f"{row.outcome:8}", _COLOURS[row.outcome]),
            Text(f"{row.task}  {row.track}  {_found(row)}"),
            Text(after, "dim"),
            soft_wrap=True,
        )

    def look(self, under_way: Iterable[Ledger]) -> None:
        """Parts of tasks count as far as their budget of evaluations is used, without what an earlier sitting used of it."""
        ledgers = list(under_way)
        new = sum(self._new_part(ledger) for ledger in ledgers)
        names = ", ".join(ledger.spec.task.name for ledger in ledgers)
        self._bar.update(self._task, description=names, end=self._end(self._done + new))

    def _new_part(self, ledger: Ledger) -> float:
        part = _part(ledger)
        return part - self._begun_parts.setdefault(ledger.spec.task.key, part)

    def _end(self, done: float) -> str:
        left_s = remaining_s(done, self._wanted, self._clock() - self._began)
        return "" if left_s is None else f", about {duration(left_s)} left"


def remaining_s(done: float, wanted: float, elapsed_s: float) -> float | None:
    """Seconds until all that is wanted is done, if it goes on as it went; None while that cannot be told."""
    return elapsed_s * (wanted - done) / done if done > 0 else None


def duration(seconds: float) -> str:
    """Rounded as a person would say it: 40 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{round(seconds)} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"


@contextlib.contextmanager
def watching(total: int, done: int, *, quiet: bool) -> Iterator[Watch]:
    """A bar on a terminal, lines elsewhere, nothing where quiet is wanted."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}{task.fields[end]}"),
    )
    console = show.err if not quiet else show.silent
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield Watch(bar, total, done)


def _part(ledger: Ledger) -> float:
    budget = ledger.budget().evaluations or 1
    return min(0.95, ledger.spent().get("evaluations", 0.0) / budget)


def _found(row: Row) -> str:
    if row.best is None:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in row.counts.items())
        why = counts or row.reason
        return row.reason if row.outcome is not Outcome.DONE else f"no correct kernel ({why})"
    figures = (
        f"{ratio_text(ratio)} over {name}"
        for name, ratio in (
            ("eager", speedup(row, "eager")),
            ("torch.compile", speedup(row, "torch_compile")),
        )
        if ratio is not None
    )
    return f"{', '.join(figures) or 'not timed'} {row.fidelity or ''}"


def ratio_text(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}x"
    return f"{ratio.ratio:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
