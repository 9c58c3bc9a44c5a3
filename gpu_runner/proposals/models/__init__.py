"""Models as generators: any endpoint that speaks OpenAI's chat protocol, from the operator's file alone.

Parts: profiles (the operator's file), endpoints (a profile in use: rates, outage), client (one bounded request), replies
(what came, checked), failures (how it can end), prices (what it may cost), prompts (versioned text files), parsing (answers,
strictly), writer (a request, its answer, one chance to mend it), advice (plans, summaries, orders of entries), team (the
models of one run). No model configured is a normal case.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from gpu_runner.proposals.models.endpoints import Endpoint
from gpu_runner.proposals.models.profiles import (
    PATH_VARIABLE,
    Profile,
    ProfileError,
    Profiles,
    Role,
    read_profiles,
)
from gpu_runner.proposals.models.prompts import Order
from gpu_runner.proposals.models.team import Team
from gpu_runner.proposals.models.writer import Poster, Writer, Written

__all__ = [
    "Models",
    "Order",
    "Poster",
    "Profile",
    "ProfileError",
    "Profiles",
    "Role",
    "Team",
    "Writer",
    "Written",
    "load_models",
]


class Models:
    """The operator's profiles with the environment that holds their keys."""

    def __init__(self, profiles: Profiles, environment: Mapping[str, str] = os.environ) -> None:
        self._profiles = profiles
        self._environment = environment
        self._endpoints: dict[str, Endpoint] = {}

    @classmethod
    def load(cls, path: Path, environment: Mapping[str, str] = os.environ) -> Self:
        """The models of one file. Raises ProfileError where it is wrong."""
        return cls(read_profiles(path), environment)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._profiles.profiles)

    def profile(self, name: str) -> Profile:
        """Raises ProfileError where there is none of that name."""
        profile = self._profiles.profiles.get(name)
        if profile is None:
            if not self.names:
                raise ProfileError(
                    f"unknown model {name!r}: no profile is configured; name them in a file and point FOUNDRY_MODELS to it"
                )
            raise ProfileError(
                f"unknown model {name!r}; the operator's file has: {', '.join(self.names)}"
            )
        return profile

    def writer(self, name: str) -> Writer:
        """A writer for one run; the endpoint behind it is shared with all others.

        Raises:
            ProfileError: no such profile, or its key is not set.
        """
        profile = self.profile(name)
        if name not in self._endpoints:
            self._endpoints[name] = Endpoint(name, profile, profile.secret(self._environment))
        return Writer(self._endpoints[name])

    def poster(self, name: str, requests_per_island: int) -> Poster:
        """A writer for batch files, which needs no key. Raises ProfileError where there is no such profile."""
        return Poster(name, self.profile(name), requests_per_island)

    def keeping(self, old: "Models") -> Self:
        """These, with the endpoints of an earlier reading whose profiles have not changed."""
        for name, endpoint in old._endpoints.items():
            if self._profiles.profiles.get(name) == endpoint.profile:
                self._endpoints[name] = endpoint
        return self


def load_models(environment: Mapping[str, str] = os.environ) -> Models:
    """The operator's models; empty where FOUNDRY_MODELS is not set. Raises ProfileError where the file is wrong."""
    path = environment.get(PATH_VARIABLE)
    return Models.load(Path(path), environment) if path else Models(Profiles(), environment)
