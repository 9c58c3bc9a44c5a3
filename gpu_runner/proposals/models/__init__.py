"""Models as generators: any endpoint that speaks OpenAI's chat protocol, from the operator's file alone.

Parts: profiles (the operator's file), client (one bounded request), failures (how it can end), prompts (versioned
text files), parsing (answers, strictly), writer (a request, its answer, one chance to mend it). No model configured
is a normal case.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from gpu_runner.proposals.models.profiles import (
    PATH_VARIABLE,
    ProfileError,
    Profiles,
    read_profiles,
)
from gpu_runner.proposals.models.prompts import Order
from gpu_runner.proposals.models.writer import Writer, Written

__all__ = ["Models", "Order", "ProfileError", "Profiles", "Writer", "Written", "load_models"]


class Models:
    """The operator's profiles with the environment that holds their keys."""

    def __init__(self, profiles: Profiles, environment: Mapping[str, str] = os.environ) -> None:
        self._profiles = profiles
        self._environment = environment

    @classmethod
    def load(cls, path: Path, environment: Mapping[str, str] = os.environ) -> Self:
        """The models of one file. Raises ProfileError where it is wrong."""
        return cls(read_profiles(path), environment)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._profiles.profiles)

    def writer(self, name: str) -> Writer:
        """A writer for one run.

        Raises:
            ProfileError: no such profile, or its key is not set.
        """
        profile = self._profiles.profiles.get(name)
        if profile is None:
            known = ", ".join(self.names) or "none is configured"
            raise ProfileError(f"unknown model {name!r}; the operator's file has: {known}")
        return Writer(name, profile, profile.secret(self._environment))


def load_models(environment: Mapping[str, str] = os.environ) -> Models:
    """The operator's models; empty where FOUNDRY_MODELS is not set. Raises ProfileError where the file is wrong."""
    path = environment.get(PATH_VARIABLE)
    return Models.load(Path(path), environment) if path else Models(Profiles(), environment)
