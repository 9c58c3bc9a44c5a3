"""What is written about a suite: `report.json` for programs, and one `report.html` that needs no network and no script."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import jinja2
from pydantic import BaseModel, ConfigDict

from gpu_runner.bench import figures, plots
from gpu_runner.bench.figures import Section, Sitting
from gpu_runner.bench.results import Settings
from gpu_runner.bench.rows import Outcome, Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.targets import TARGETS

FORMAT: Final = 1
_TEMPLATES: Final = Path(__file__).parent / "templates"


class Report(BaseModel):
    """All that is known of a suite's results; `report.json` is this."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    settings: Settings
    sittings: tuple[Sitting, ...]
    sections: tuple[Section, ...]
    rows: tuple[Row, ...]

    @property
    def waiting(self) -> int:
        return sum(row.outcome is Outcome.WAITING for row in self.rows)


@dataclass(frozen=True)
class Shown:
    """A section as the page shows it; one that only repeats a part of another has no plots."""

    section: Section
    rows: Sequence[Row]
    is_part: bool
    speedups: Sequence[plots.Speedups]
    search: plots.Search | None
    rooflines: plots.Rooflines | None


def report_of(settings: Settings, rows: Sequence[Row]) -> Report:
    return Report(
        settings=settings,
        sittings=tuple(figures.sittings(rows)),
        sections=tuple(figures.sections(rows)),
        rows=tuple(rows),
    )


def as_html(report: Report) -> str:
    return _page().render(
        report=report,
        shown=[_shown(section, report) for section in report.sections],
        differing=differing(report.sittings),
        plots=plots,
        target=TARGETS[report.settings.target],
        waiting=[row for row in report.rows if row.outcome is Outcome.WAITING],
    )


def differing(sittings: Sequence[Sitting]) -> list[str]:
    """The names of what is not the same in all of them."""
    names = dict.fromkeys(name for sitting in sittings for name in sitting.environment)
    return [name for name in names if len({str(s.environment.get(name)) for s in sittings}) > 1]


@cache
def _page() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"share": _share, "times": _times, "us": _us, "size": _size}
    return environment.get_template("report.html")


def _shown(section: Section, report: Report) -> Shown:
    rows = [
        row
        for row in report.rows
        if (row.track, row.precision) == (section.track, section.precision)
        and row.sitting in (section.sittings or ("",))
        and row.outcome is not Outcome.WAITING
    ]
    is_part = len(section.sittings) == 1 and any(
        set(section.sittings) < set(other.sittings)
        and (other.track, other.precision) == (section.track, section.precision)
        for other in report.sections
    )
    drawn = [] if is_part else rows
    return Shown(
        section, rows, is_part, plots.speedups(drawn), plots.search(drawn), plots.rooflines(drawn)
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _times(value: float | Ratio | None) -> str:
    if isinstance(value, Ratio):
        value = value.ratio
    return "–" if value is None else f"{value:.2f}"


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _size(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**20:,.0f} MiB"
