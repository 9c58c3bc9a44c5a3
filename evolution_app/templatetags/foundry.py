"""How the pages write numbers, states, times and icons. Everything is escaped here or by the template engine."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evolution_app.views.glossary import meaning_of
from evolution_app.views.shell import banners, theme_of
from gpu_runner.core.entries import When
from gpu_runner.core.verdicts import Fidelity, RunState, Stage, State, Verdict

register = template.Library()

# icon, class of the chip, word
_VERDICTS = {
    Verdict.CORRECT: ("check", "good", "correct"),
    Verdict.INCORRECT: ("cross", "bad", "incorrect"),
    Verdict.INVALID: ("brackets", "bad", "invalid"),
    Verdict.COMPILE_ERROR: ("brackets", "bad", "compile error"),
    Verdict.RUNTIME_ERROR: ("bolt", "bad", "runtime error"),
    Verdict.OUT_OF_MEMORY: ("memory", "bad", "out of memory"),
    Verdict.TIMEOUT: ("clock", "bad", "timeout"),
    Verdict.CHEATING: ("shield", "cheat", "cheating"),
}
_STATES = {
    State.QUEUED: ("queue", "", "queued"),
    State.EVALUATING: ("play", "live", "evaluating"),
    State.FINISHED: ("check", "", "finished"),
    State.UNEVALUATED: ("eye", "warn", "not evaluated"),
    State.ABANDONED: ("warning", "warn", "abandoned"),
}
_RUN_STATES = {
    RunState.QUEUED: ("queue", "", "queued"),
    RunState.RUNNING: ("play", "live", "running"),
    RunState.PAUSING: ("pause", "warn", "pausing"),
    RunState.PAUSED: ("pause", "warn", "paused"),
    RunState.STOPPING: ("stop", "warn", "stopping"),
    RunState.FINISHED: ("flag", "good", "finished"),
    RunState.CANCELLED: ("cross", "", "cancelled"),
    RunState.FAILED: ("warning", "bad", "failed"),
}
_ENTRY_STATES = {
    "draft": ("brackets", "", "draft"),
    "nominated": ("queue", "live", "nominated"),
    "verified": ("gauge", "live", "verified"),
    "checked": ("gauge", "warn", "checked, unconfirmed"),
    "approved": ("check", "good", "approved"),
    "rejected": ("cross", "bad", "rejected"),
    "retired": ("flag", "warn", "retired"),
}
_VISIBILITIES = {"private": "lock", "shared": "user", "public": "globe"}


@register.simple_tag
def icon(name: str) -> SafeString:
    """One symbol of the sprite; decoration only, a word always stands beside it."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>',
        static("img/icons.svg"),
        name,
    )


def _chip(look: tuple[str, str, str], kind: str = "") -> SafeString:
    symbol, css, word = look
    detail = format_html(' <span class="kind">{}</span>', kind.replace("_", " ")) if kind else ""
    return format_html('<span class="chip {}">{} {}{}</span>', css, icon(symbol), word, detail)


@register.simple_tag
def candidate_chip(candidate: Any) -> SafeString:
    """Verdict with its kind once judged, else where the candidate is in its life."""
    if candidate.verdict:
        return _chip(_VERDICTS[Verdict(candidate.verdict)], candidate.kind)
    return _chip(_STATES[State(candidate.state)], candidate.stage)


@register.simple_tag
def verdict_chip(verdict: str, kind: str = "") -> SafeString:
    return _chip(_VERDICTS[Verdict(verdict)], kind or "")


@register.simple_tag
def run_chip(run: Any) -> SafeString:
    """The run's state; what was asked for and not yet acknowledged by the runner is said too."""
    waiting = ""
    if not RunState(run.state).is_over and run.wanted not in (run.state, RunState.RUNNING):
        waiting = {
            "cancelled": "cancelling",
            "stopping": "stop asked",
            "pausing": "pause asked",
        }.get(run.wanted, "")
    if (
        run.state in (RunState.PAUSED, RunState.PAUSING, RunState.STOPPING)
        and waiting != "cancelling"
    ):
        waiting = ""
    return _chip(_RUN_STATES[RunState(run.state)], waiting)


@register.simple_tag
def entry_chip(state: str) -> SafeString:
    return _chip(_ENTRY_STATES[state])


@register.simple_tag
def by_model_chip() -> SafeString:
    return format_html(
        '<span class="chip cheat" title="{}">{} {}</span>',
        "a model wrote parts of this; no person has confirmed them yet",
        icon("bulb"),
        "unconfirmed",
    )


@register.simple_tag
def model_mark(content: Any, field: str) -> SafeString:
    """Beside a field that a model wrote and nobody has confirmed."""
    if field not in content.by_model:
        return SafeString("")
    return format_html('<br><span class="muted">{}</span>', "by a model, unconfirmed")


@register.simple_tag
def visibility_chip(visibility: str, label: str = "") -> SafeString:
    return _chip((_VISIBILITIES[visibility], "", label or visibility))


@register.filter
def ratio(value: float | None) -> str:
    """1.83x; an absent number, or one of an absent object, is a dash and never 0."""
    return f"{value:.2f}x" if isinstance(value, int | float) else "–"


@register.filter
def signed_gain(value: float | None) -> str:
    return "–" if value is None else f"{(value - 1) * 100:+.1f} %"


@register.simple_tag
def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"({low:.2f}–{high:.2f})"


@register.filter
def microseconds(value: float | None) -> str:
    if not isinstance(value, int | float):
        return "–"
    if value >= 10_000:
        return f"{value / 1000:.1f} ms"
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:.{digits}f} us"


@register.filter
def seconds(value: float | None) -> str:
    """A span of time: 0.42 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if not isinstance(value, int | float):
        return "–"
    if value < 10:
        return f"{value:.2f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def bytes_size(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return ""


@register.filter
def count(value: float | None) -> str:
    """A quantity with thousands separated; fractions only where they say something."""
    if not isinstance(value, int | float):
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}"
    return f"{value:,.0f}"


@register.filter
def count_or_text(value: object) -> str:
    """A token count, or the word that stands for an unknown one."""
    return f"{value:,}" if isinstance(value, int) else str(value)


@register.filter
def keys_of(pairs: Iterable[tuple[str, object]]) -> list[str]:
    return [key for key, _ in pairs]


@register.filter
def words(value: object) -> str:
    """own_kernels as people read it."""
    return str(value).replace("_", " ")


_WRAPPED = re.compile(r"(?<!\n)\n(?!\s|[-*]\s|\d+[.)]\s)")


@register.filter
def unwrapped(text: str) -> str:
    """Without the line breaks of an editor: those between paragraphs and before items of a list stay."""
    return _WRAPPED.sub(" ", text.replace("\r\n", "\n"))


@register.filter
def conditions(when: When) -> str:
    """When an entry applies, in words."""
    parts = (
        ("operators ", when.operators),
        ("findings ", [words(kind) for kind in when.bottlenecks]),
        ("", when.dtypes),
        ("", [when.shapes] if when.shapes else []),
        ("on ", when.hardware),
        ("Triton ", [when.triton_versions] if when.triton_versions else []),
        ("track ", [words(track) for track in when.tracks]),
    )
    return "; ".join(name + joined(values) for name, values in parts if values) or "anywhere"


@register.simple_tag
def named(name: str) -> SafeString:
    """The name of a number, with what it means as its title."""
    meaning = meaning_of(name)
    if not meaning.sentence:
        return format_html("{}", meaning.label)
    return format_html('<abbr title="{}">{}</abbr>', meaning.sentence, meaning.label)


@register.filter
def evidence_value(value: object) -> str:
    """One value of a finding's evidence, short whatever a child put there."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(evidence_value(item) for item in value[:8])
        return f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    return "–" if value is None else str(value)[:200]


@register.simple_tag
def moment(value: datetime | None) -> SafeString:
    """A time that ages on the page; the absolute one is its title."""
    if value is None:
        return SafeString("–")
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>',
        value.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        local.strftime("%Y-%m-%d %H:%M"),
    )


_FIDELITY_NOTES = {
    Fidelity.MEASURED: "timed on the device that is named",
    Fidelity.MODELLED: "no GPU timed this: a roofline model of the named target says so",
}


def _place(value: Fidelity, device: str) -> str:
    """Measured on a device, modelled for a target; the device that ran a modelled check says nothing of its speed."""
    if not device or (value is Fidelity.MODELLED and device == "cpu"):
        return ""
    return f" on {device}" if value is Fidelity.MEASURED else f" for {device}"


@register.simple_tag
def fidelity(value: str, device: str = "") -> SafeString:
    """`measured` or `modelled`, with what that means; stands beside every speedup."""
    if not value:
        return SafeString("")
    return format_html(
        '<span class="fidelity" title="{}">{}{}</span>',
        _FIDELITY_NOTES[Fidelity(value)],
        value,
        _place(Fidelity(value), device),
    )


@register.simple_tag
def stage_bar(candidate: Any) -> SafeString:
    """The gates a candidate has passed, as eight marks; the words are in the chip beside it."""
    order = list(Stage)
    if candidate.state == State.EVALUATING and candidate.stage:
        at = order.index(Stage(candidate.stage))
        marks = ["done"] * at + ["now"] + [""] * (len(order) - at - 1)
    elif candidate.is_correct:
        marks = ["done"] * len(order)
    else:
        marks = [""] * len(order)
    cells = format_html_join("", '<i class="{}"></i>', ((mark,) for mark in marks))
    return format_html('<span class="stages" aria-hidden="true">{}</span>', cells)


@register.filter
def series(island: int) -> str:
    """The class that gives an island its colour; the number stands beside it."""
    return f"series-{island % 6}"


_DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 4", "4 2 1 2")


@register.filter
def dashes(island: int) -> str:
    return _DASHES[island % 6]


@register.filter
def get(mapping: dict[str, Any] | None, key: str) -> Any:
    return (mapping or {}).get(key)


@register.filter
def joined(values: Iterable[object] | None) -> str:
    return ", ".join(str(value) for value in values or ())


@register.simple_tag(takes_context=True)
def query_with(context: dict[str, Any], **changes: object) -> str:
    """The page's own address with some parameters changed; empty ones are left out."""
    query = context["request"].GET.copy()
    for name, value in changes.items():
        query[name] = "" if value is None else str(value)
    for name in [name for name, value in query.items() if not value]:
        del query[name]
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag(takes_context=True)
def chosen_theme(context: dict[str, Any]) -> str:
    """auto, light or dark: the account's choice, or this browser's where nobody is signed in."""
    request = context.get("request")
    return theme_of(request) if request is not None else "auto"


@register.inclusion_tag("parts/banners.html")
def service_banners() -> dict[str, Any]:
    """What everybody should know of the service now: no runner, no sandbox, a runner with a problem."""
    return {"banners": banners()}


@register.filter
def best_evidence(evidence: Iterable[Any]) -> Any:
    """The pair with the largest gain; None without any."""
    return max(evidence, key=lambda pair: pair.ratio, default=None)
