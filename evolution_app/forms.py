"""Forms of the pages: what people type, checked field by field; the services check again what matters."""

from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from evolution_app.estimates import Estimate, estimated
from evolution_app.models import Task, User
from evolution_app.models.base import choices_of
from evolution_app.views.reading import model_profiles
from gpu_runner.core.contract import check_candidate, check_contract
from gpu_runner.core.entries import EntryContent, EntryKind, When
from gpu_runner.core.search import Method
from gpu_runner.core.source import MAX_BYTES, Problem
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import Precision, Track

DEVICES = [
    ("auto", "auto"),
    ("cpu", "cpu, modelled"),
    ("cuda", "cuda, measured"),
]
BEST_OF_10 = "best_of_10"
METHODS = [
    (Method.EVOLUTION.value, "evolution"),
    (Method.SAMPLING.value, "sampling, the control arm"),
    (BEST_OF_10, "best of ten answers of the model"),
]
PARTS = [
    ("initialisers", "the compiler and the catalogue of templates"),
    ("diagnosis", "the diagnosis"),
    ("library", "the experience library"),
]
"""What a run may go without, so that its worth can be told."""
VISIBILITY_NOTES = [
    (Task.Visibility.PRIVATE, "private"),
    (Task.Visibility.SHARED, "shared with experts"),
    (Task.Visibility.PUBLIC, "public"),
]


class Styled(forms.Form):
    """Bootstrap's classes on every widget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field.widget, forms.CheckboxSelectMultiple):
                continue
            look = "form-select" if isinstance(field.widget, forms.Select) else "form-control"
            field.widget.attrs.setdefault("class", look)


def _text_of(upload: "UploadedFile[bytes]") -> str:
    if (upload.size or 0) > MAX_BYTES:
        size = -(-(upload.size or 0) // 1024)
        raise forms.ValidationError(
            f"{upload.name} is {size} KiB; at most {MAX_BYTES // 1024} KiB are taken."
        )
    try:
        text: str = upload.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise forms.ValidationError(
            f"{upload.name} is not UTF-8 text; save it as UTF-8 and try again."
        ) from error
    return text


def _as_error(problems: list[Problem]) -> forms.ValidationError:
    return forms.ValidationError(
        [
            f"Line {problem.line}: {problem.message}." if problem.line else f"{problem.message}."
            for problem in problems
        ]
    )


def _code_field(label: str, **attrs: str) -> forms.CharField:
    widget = forms.Textarea(
        attrs={
            "class": "code form-control",
            "spellcheck": "false",
            "autocapitalize": "off",
            "rows": 24,
            **attrs,
        }
    )
    return forms.CharField(label=label, required=False, strip=False, widget=widget)


class SubmitForm(Styled):
    """A new task and its first run."""

    source = _code_field("Source of the task")
    upload = forms.FileField(label="or a .py file", required=False)
    name = forms.CharField(
        max_length=120, help_text="how you will find it again", label="Name of the task"
    )
    baseline_source = _code_field("Your own kernel")
    baseline_upload = forms.FileField(label="or its .py file", required=False)
    track = forms.ChoiceField(
        choices=choices_of(Track),
        initial=Track.OWN_KERNELS.value,
        help_text="own: every floating-point step in the candidate's Triton kernels",
    )
    precision = forms.ChoiceField(
        choices=choices_of(Precision),
        initial=Precision.REFERENCE.value,
        help_text="of float32 products; reference: as PyTorch's own flags say",
    )
    target = forms.ChoiceField(
        choices=[(target.name, target.title) for target in TARGETS.values()],
        initial="h200",
        help_text="the GPU that modelled speed is for",
    )
    device = forms.ChoiceField(choices=DEVICES, initial="auto")
    islands = forms.IntegerField(min_value=1, max_value=16, initial=3)
    evaluations = forms.IntegerField(
        min_value=1, max_value=100_000, initial=24, required=False, label="Evaluations, at most"
    )
    minutes = forms.FloatField(
        min_value=0.1, max_value=10_000, required=False, label="Minutes, at most"
    )
    model = forms.ChoiceField(required=False, label="Model")
    more_models = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="Together with"
    )
    method = forms.ChoiceField(
        choices=METHODS,
        initial=Method.EVOLUTION.value,
        help_text="sampling builds on nothing it found; evolution should beat it",
    )
    without = forms.MultipleChoiceField(
        choices=PARTS, required=False, widget=forms.CheckboxSelectMultiple, label="Go without"
    )
    visibility = forms.ChoiceField(choices=VISIBILITY_NOTES, initial=Task.Visibility.PRIVATE)
    seed = forms.IntegerField(
        min_value=0, max_value=2**31, required=False, help_text="empty: drawn, and recorded"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        profiles = model_profiles()
        model = self.fields["model"]
        assert isinstance(model, forms.ChoiceField)
        more = self.fields["more_models"]
        assert isinstance(more, forms.MultipleChoiceField)
        named = [(name, name) for name in profiles.names]
        model.choices, more.choices = [("", "none"), *named], named
        model.help_text = profiles.problem
        self.fields["baseline_source"].widget.attrs["rows"] = 8
        self.fields["upload"].widget.attrs["accept"] = ".py,text/x-python"
        self.fields["baseline_upload"].widget.attrs["accept"] = ".py,text/x-python"

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        self._take_upload(data, "upload", "source")
        self._take_upload(data, "baseline_upload", "baseline_source")
        if "source" in data and (problems := check_contract(data["source"])):
            self.add_error("source", _as_error(problems))
        baseline = data.get("baseline_source")
        if baseline and baseline.strip() and (problem := check_candidate(baseline)):
            self.add_error("baseline_source", _as_error([problem]))
        is_limited = data.get("evaluations") or data.get("minutes")
        if not is_limited and not {"evaluations", "minutes"} & set(self.errors):
            self.add_error("evaluations", "Limit the evaluations, the minutes, or both.")
        if data.get("more_models") and not data.get("model"):
            self.add_error("model", "Choose the first model too.")
        if data.get("method") == BEST_OF_10 and not data.get("model"):
            self.add_error("method", "Ten answers are asked of a model: choose one, or evolve.")
        return data

    def _take_upload(self, data: dict[str, Any], upload: str, source: str) -> None:
        file = data.get(upload)
        if file is None:
            return
        try:
            data[source] = _text_of(file)
        except forms.ValidationError as error:
            self.add_error(upload, error)
            data.pop(source, None)

    def run_options(self) -> dict[str, Any]:
        """The arguments of `services.start_run` that people choose."""
        data = self.cleaned_data
        is_best_of_10 = data["method"] == BEST_OF_10
        return {
            "budget": self.budget(),
            "islands": data["islands"],
            "seed": data["seed"],
            "device": data["device"],
            "model": data["model"] or None,
            "more_models": data["more_models"],
            "method": Method.SAMPLING if is_best_of_10 else Method(data["method"]),
            "is_best_of_10": is_best_of_10,
            **{f"use_{part}": part not in data["without"] for part, _ in PARTS},
        }

    def budget(self) -> Budget:
        minutes = self.cleaned_data.get("minutes")
        return Budget(
            evaluations=self.cleaned_data.get("evaluations"),
            wall_s=minutes * 60 if minutes else None,
        )


class EstimateForm(forms.Form):
    """The choices that decide what a run takes, as far as they are made; a model may be one that is gone."""

    model = forms.CharField(max_length=120, required=False)
    method = forms.ChoiceField(choices=METHODS, required=False)
    evaluations = forms.IntegerField(min_value=1, max_value=100_000, required=False)
    minutes = forms.FloatField(min_value=0.1, max_value=10_000, required=False)

    def estimate(self, user: User) -> Estimate | None:
        """None where nothing limits the run."""
        chosen = self.cleaned_data
        is_best_of_10 = chosen["method"] == BEST_OF_10
        evaluations = 10 if is_best_of_10 else chosen["evaluations"]
        minutes = chosen["minutes"]
        if not evaluations and not minutes:
            return None
        method = Method.SAMPLING if is_best_of_10 else Method(chosen["method"] or Method.EVOLUTION)
        budget = Budget(evaluations=evaluations, wall_s=minutes * 60 if minutes else None)
        return estimated(user, model=chosen["model"] or None, method=method, budget=budget)


ESTIMATED_BY = tuple(EstimateForm.base_fields)


class SteerForm(Styled):
    """A hint, or a kernel, for a run in progress."""

    hint = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )
    source = _code_field("Kernel (a ModelNew)")
    island = forms.IntegerField(min_value=0, max_value=15, initial=0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["source"].widget.attrs["rows"] = 6


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


_TYPED = (
    "title",
    "action",
    "before",
    "after",
    "not_when",
    "preconditions",
    "if_violated",
)


class EntryForm(Styled):
    """What an entry says. Lists are typed with commas between their items."""

    kind = forms.ChoiceField(choices=choices_of(EntryKind))
    title = forms.CharField(max_length=200)
    action = forms.CharField(
        max_length=4000, widget=forms.Textarea(attrs={"rows": 4}), label="What to do"
    )
    operators = forms.CharField(required=False, help_text="softmax, mm; empty: any")
    bottlenecks = forms.CharField(
        required=False, help_text="kinds of findings: bound_by_dram, launches, occupancy"
    )
    dtypes = forms.CharField(required=False, help_text="float32, bfloat16")
    shapes = forms.CharField(required=False, max_length=300, help_text="rows above 4,096")
    hardware = forms.CharField(required=False, help_text="h200, sm_90")
    triton_versions = forms.CharField(required=False, max_length=60, help_text=">=3.4")
    not_when = forms.CharField(
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="When it does not help, or harms",
    )
    preconditions = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 2})
    )
    if_violated = forms.CharField(
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
        label="What goes wrong if they do not hold",
    )
    before = _code_field("Code before")
    after = _code_field("Code after")
    note = forms.CharField(required=False, max_length=500, label="Why you change it")
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("before", "after"):
            self.fields[name].widget.attrs["rows"] = 10

    @classmethod
    def initial_of(cls, content: EntryContent) -> dict[str, Any]:
        """What the form shows for an entry as it is."""
        when = content.when
        lists = ("operators", "bottlenecks", "dtypes", "hardware")
        return {
            **content.model_dump(
                include={
                    "kind",
                    "title",
                    "action",
                    "not_when",
                    "preconditions",
                    "if_violated",
                    "before",
                    "after",
                }
            ),
            **{name: ", ".join(getattr(when, name)) for name in lists},
            "shapes": when.shapes,
            "triton_versions": when.triton_versions,
        }

    def content(self, base: EntryContent | None = None) -> EntryContent:
        """The content as typed; what nobody types, such as effects and where it was learned, comes from `base`."""
        data = self.cleaned_data
        when = When(
            operators=_words(data["operators"]),
            bottlenecks=_words(data["bottlenecks"]),
            dtypes=_words(data["dtypes"]),
            shapes=data["shapes"],
            hardware=_words(data["hardware"]),
            triton_versions=data["triton_versions"],
            tracks=base.when.tracks if base else (),
        )
        typed = {
            "kind": EntryKind(data["kind"]),
            "when": when,
            **{name: data[name] for name in _TYPED},
        }
        known = base.model_dump(exclude=set(typed)) if base else {}
        return EntryContent.model_validate({**known, **typed})


class SignInForm(Styled):
    token = forms.CharField(
        max_length=200,
        label="Sign-in token",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
