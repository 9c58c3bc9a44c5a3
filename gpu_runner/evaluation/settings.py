"""What an operator chooses about evaluation, checked once at the start."""

from pydantic import BaseModel, ConfigDict, Field


class EvaluationSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    slots: int = Field(default=1, ge=1, le=64, description="evaluations at the same time")
    sandbox: str = Field(default="bwrap", pattern=r"^(bwrap|none)$")
    seed: int | None = Field(
        default=None, description="of inputs and weights; None: unpredictable, as it should be"
    )
    max_autotune: bool = Field(default=False, description="also torch.compile with max-autotune")
    threads: int | None = Field(
        default=None, ge=1, description="processors of one child; None: all, shared by the slots"
    )
    player_memory_bytes: int | None = Field(
        default=None,
        ge=1 << 28,
        description="None: half of the machine's, shared by the slots; at most 8 GiB on a CPU",
    )
    evaluation_s: float = Field(default=900.0, gt=0, description="deadline of one whole evaluation")
    idle_s: float = Field(default=60.0, gt=0, description="after which zygotes are ended")
    judge_idle_s: float = Field(
        default=120.0, gt=0, description="after which judges are ended: a model may take a while"
    )
