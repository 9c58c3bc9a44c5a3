"""Reports and comparisons as a person at the terminal reads them."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from gpu_runner.bench import figures
from gpu_runner.bench.comparing import Arms, Comparison
from gpu_runner.bench.figures import Baseline, Group, Speed
from gpu_runner.bench.report import Report
from gpu_runner.bench.watching import ratio_text
from gpu_runner.show import err, out

BASELINES: tuple[Baseline, ...] = ("eager", "torch_compile")


def summary(report: Report, folder: Path) -> None:
    for section in report.sections:
        where = f"sittings {', '.join(section.sittings)}" if len(report.sittings) > 1 else ""
        out.print(
            Text(
                f"{section.track} · precision {section.precision} · {section.fidelity or 'nothing timed'}",
                "bold",
            ),
            Text(where, "dim"),
        )
        for baseline in BASELINES:
            if baseline == "eager" or section.groups[0].torch_compile is not None:
                out.print(_table(section.groups, baseline))
    out.print(Text(f"{folder / 'report.html'}"))
    if report.waiting:
        err.print(
            Text(
                f"{report.waiting} of {len(report.rows)} results are still to come; run the same command again to go on"
            )
        )


def _table(groups: Sequence[Group], baseline: Baseline) -> Table:
    longest = max(len(group.name) for group in groups)
    table = Table(
        Column(f"over {baseline.replace('_', '.')}", min_width=longest),
        *("correct", "fast_1", "by interval", "geometric mean", "mean", "median", "mean of all"),
        box=None,
    )
    for group in groups:
        speed: Speed | None = getattr(group, baseline)
        cells = _cells(speed) if speed else ["0%", *["-"] * 5]
        table.add_row(group.name, f"{group.correct} of {group.tasks}", *cells)
    return table


def _cells(speed: Speed) -> list[str]:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    def times(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    return [
        share(speed.fast_1),
        share(speed.fast_1_by_interval),
        times(speed.geometric_mean),
        times(speed.arithmetic_mean),
        times(speed.median),
        times(speed.arithmetic_mean_of_all),
    ]


def comparison(found: Comparison) -> None:
    for name, (a, b) in found.settings.items():
        out.print(Text(f"{name}: A {a}, B {b}"))
    if len(found.sittings) > 1:
        out.print(
            Text(
                f"of {len(found.sittings)} sittings that differ in {', '.join(found.differing)}",
                "yellow",
            )
        )
    for arms in found.arms:
        out.print(Text(f"{arms.track} · precision {arms.precision}", "bold"))
        out.print(_tasks(arms))
        out.print(_groups(arms))
        gain = (
            "no task is correct in both"
            if arms.gain is None
            else f"B over A {ratio_text(arms.gain)}"
        )
        out.print(
            Text(f"{gain}; B gained {arms.gained}, lost {arms.lost} of {len(arms.pairs)} tasks")
        )
    for words, names in (
        ("only in A", found.only_a),
        ("only in B", found.only_b),
        ("another source in B", found.changed),
    ):
        if names:
            out.print(Text(f"{words}, not compared: {', '.join(names)}", "yellow"))


def _tasks(arms: Arms) -> Table:
    table = Table("task", "A over eager", "B over eager", "B / A", "", box=None)
    for pair in arms.pairs:
        ratios = (figures.speedup(row, "eager") for row in (pair.a, pair.b))
        gain = "-" if pair.gain is None else f"{pair.gain:.2f}"
        cells = [ratio_text(ratio) if ratio else "-" for ratio in ratios]
        table.add_row(pair.a.task, *cells, gain, "" if pair.outcome == "level" else pair.outcome)
    return table


def _groups(arms: Arms) -> Table:
    table = Table(
        "",
        *(f"{arm} {name}" for arm in "AB" for name in ("correct", "fast_1", "geometric mean")),
        box=None,
    )
    in_b = {(group.by, group.name): group for group in arms.b}
    for one in arms.a:
        other = in_b.get((one.by, one.name))
        table.add_row(one.name, *_short(one), *(_short(other) if other else ["-"] * 3))
    return table


def _short(group: Group) -> list[str]:
    cells = _cells(group.eager) if group.eager else ["0%", "-", "-"]
    return [f"{group.correct} of {group.tasks}", cells[0], cells[2]]
