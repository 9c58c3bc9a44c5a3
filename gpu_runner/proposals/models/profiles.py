"""The operator's models: a TOML file named by FOUNDRY_MODELS; nothing that a user sends chooses an address or a key.

[profiles.local]
base_url = "http://127.0.0.1:8000/v1"
model = "a-model"
key = "FOUNDRY_MODEL_KEY_LOCAL"     # the environment variable that holds the key; leave out where none is needed
"""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpu_runner.proposals.models.prices import Price

PATH_VARIABLE: Final = "FOUNDRY_MODELS"


class ProfileError(ValueError):
    """The operator's file, or a name that it should hold, is wrong; the message says where and what to do."""


class Role(StrEnum):
    """What a model is asked for."""

    INITIALISER = "initialiser"
    OPTIMISER = "optimiser"
    REPAIRER = "repairer"
    PLANNER = "planner"
    SUMMARISER = "summariser"
    RERANKER = "reranker"


WRITING: Final = frozenset({Role.INITIALISER, Role.OPTIMISER, Role.REPAIRER})
"""What a profile does that names no roles; advice is asked only of those that name it."""


class Profile(BaseModel):
    """One model behind an OpenAI-compatible endpoint. Prices are US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = Field(pattern=r"^https?://[^\s@]+$")
    model: str = Field(min_length=1, max_length=200)
    key: str | None = Field(default=None, pattern=r"^FOUNDRY_MODEL_KEY_[A-Z0-9_]+$")
    roles: frozenset[Role] = Field(default=WRITING, min_length=1)
    initialiser_form: Literal["order", "reference"] = Field(
        default="order",
        description="reference: the bare reference with one sentence, as models trained to translate expect it",
    )
    context_tokens: int | None = Field(
        default=None, ge=1024, description="prompt and answer together; None: not limited by us"
    )
    max_tokens: int = Field(default=16_384, ge=256, description="of one answer")
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="replaces the islands' own; some models take one only"
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    stream: bool = Field(default=False, description="have the answer sent while it is written")
    timeout_s: float = Field(default=180, gt=0, le=1800, description="for one whole reply")
    connect_timeout_s: float = Field(default=10, gt=0, le=120)
    max_reply_bytes: int = Field(default=1 << 20, ge=1024, le=64 << 20)
    retries: int = Field(default=2, ge=0, le=5, description="of one request, with back-off")
    outage_s: float = Field(
        default=7200, ge=0, description="how long runs wait for an endpoint that does not answer"
    )
    requests_at_once: int = Field(default=64, ge=1, le=1000)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=256)
    usd_per_million_in: float = Field(default=0, ge=0)
    usd_per_million_out: float = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.context_tokens is not None and self.max_tokens >= self.context_tokens:
            raise ValueError("max_tokens leaves no room for a prompt in context_tokens")
        return self

    @property
    def price(self) -> Price:
        return Price(self.usd_per_million_in, self.usd_per_million_out)

    @property
    def prompt_tokens(self) -> int | None:
        """How long a prompt may be."""
        return None if self.context_tokens is None else self.context_tokens - self.max_tokens

    def secret(self, environment: Mapping[str, str]) -> str | None:
        """The key itself; None where the profile needs none.

        Raises:
            ProfileError: the variable is not set.
        """
        if self.key is None:
            return None
        if not environment.get(self.key):
            raise ProfileError(f"set the environment variable {self.key} to the model's key")
        return environment[self.key]


class Profiles(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    profiles: dict[str, Profile] = {}

    @model_validator(mode="after")
    def _names(self) -> Self:
        # The name becomes part of a candidate's origin, "model:NAME".
        for name in self.profiles:
            if not name or len(name) > 60 or not name.isprintable():
                raise ValueError(f"{name!r} is no name for a profile")
        return self


def read_profiles(path: Path) -> Profiles:
    """Read the operator's file.

    Raises:
        ProfileError: the file is missing, is no TOML, or states something that is not allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return Profiles.model_validate(tomllib.loads(text))
    except OSError as error:
        raise ProfileError(f"{PATH_VARIABLE} names {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is no TOML file: {error}") from error
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{path}: {place}: {first['msg']}") from error
