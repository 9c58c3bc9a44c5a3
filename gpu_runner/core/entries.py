"""An entry of the Experience Library: a lesson reused across tasks, with when it applies and what supports it."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.verdicts import Fidelity, Precision, Track


class EntryKind(StrEnum):
    TECHNIQUE = "technique"
    ANTI_PATTERN = "anti_pattern"
    SYMPTOM = "symptom"
    DEMONSTRATION = "demonstration"


class EntryState(StrEnum):
    """Only execution admits: nothing is used that was not executed, or waived in the log.

    Approved says that an expert said so. Checked is what comes with the project, is used because running it bore it out, and
    was confirmed by no person yet.
    """

    DRAFT = "draft"
    NOMINATED = "nominated"
    VERIFIED = "verified"
    CHECKED = "checked"
    APPROVED = "approved"
    REJECTED = "rejected"
    RETIRED = "retired"


class When(BaseModel):
    """When an entry applies. Empty means "any"; values of one field are alternatives."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: tuple[str, ...] = Field(
        default=(), description="aten names without overload: softmax, mm"
    )
    bottlenecks: tuple[str, ...] = Field(
        default=(), description="memory, compute, launches, latency, or a finding's kind"
    )
    dtypes: tuple[str, ...] = ()
    shapes: str = Field(
        default="", max_length=300, description="a condition in words: rows above 4,096"
    )
    hardware: tuple[str, ...] = Field(
        default=(), description="targets or architectures: h200, sm_90"
    )
    triton_versions: str = Field(default="", max_length=60, description="a version range: >=3.4")
    tracks: tuple[Track, ...] = ()


class Effect(BaseModel):
    """What the action gained over the same parent: time before / time after, above 1 is faster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    fidelity: Fidelity
    track: Track
    precision: Precision
    ratio: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(
        default=None, allow_inf_nan=False, description="of the 95 % interval; None when modelled"
    )
    high: float | None = Field(default=None, allow_inf_nan=False)


class Provenance(BaseModel):
    """Where the lesson was learned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_name: str = Field(default="", max_length=120)
    task_key: str = Field(default="", max_length=64)
    parent_id: int | None = None
    candidate_id: int | None = None
    origin: str = Field(default="", max_length=80)


class EntryContent(BaseModel):
    """What an entry says; one immutable version of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EntryKind
    title: str = Field(max_length=200)
    when: When = When()
    not_when: str = Field(
        default="", max_length=2000, description="where it does not help or harms"
    )
    action: str = Field(max_length=4000, description="what to do, in words")
    before: str = Field(default="", max_length=65536, description="code before the action")
    after: str = Field(default="", max_length=65536, description="code after it")
    task: str = Field(
        default="",
        max_length=65536,
        description="a small task on which before and after can be compared; empty: where it was learned",
    )
    cures: str = Field(
        default="",
        max_length=60,
        description="verdict/kind of the code before, where the action mends it and gains no speed",
    )
    unmodelled: str = Field(
        default="",
        max_length=500,
        description="why a modelled time cannot show the effect; empty: it can",
    )
    effects: tuple[Effect, ...] = ()
    preconditions: str = Field(default="", max_length=2000)
    if_violated: str = Field(
        default="", max_length=2000, description="what goes wrong if a precondition does not hold"
    )
    provenance: Provenance = Provenance()
    by_model: tuple[str, ...] = Field(
        default=(), description="fields that a model wrote and no person has confirmed"
    )


class Entry(BaseModel):
    """A version of an entry with its id, as retrieval reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(max_length=40)
    version: int = Field(default=1, ge=1)
    state: EntryState = EntryState.DRAFT
    content: EntryContent
