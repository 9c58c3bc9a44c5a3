"""The models of one run: those that write, island by island, and those that advise where their profiles say so."""

from collections.abc import Sequence

from gpu_runner.proposals.models.profiles import Role
from gpu_runner.proposals.models.writer import Writer


class Team:
    """Writers by the names of their profiles, in the order in which islands take turns with them; may be none."""

    def __init__(self, writers: Sequence[Writer] = ()) -> None:
        self._writers = {writer.name: writer for writer in writers}

    def __getitem__(self, name: str) -> Writer:
        return self._writers[name]

    def usable(self, role: Role) -> tuple[str, ...]:
        """Names of those that play a role and could be asked just now."""
        playing = (writer for writer in self._writers.values() if writer.plays(role))
        return tuple(writer.name for writer in playing if writer.is_usable)

    def adviser(self, role: Role) -> Writer | None:
        """Whom to ask for advice just now; requests through batch files carry none."""
        names = [name for name in self.usable(role) if not self[name].is_posting]
        return self[names[0]] if names else None

    @property
    def is_usable(self) -> bool:
        return any(writer.is_usable for writer in self._writers.values())

    @property
    def is_away(self) -> bool:
        """Whether nobody answers just now but somebody may come back."""
        return not self.is_usable and any(writer.is_away for writer in self._writers.values())

    @property
    def requests_per_island(self) -> int:
        return max((writer.requests_per_island for writer in self._writers.values()), default=1)

    @property
    def trouble(self) -> str:
        """Why the run goes on without any model for good; empty while it does not."""
        troubles = [writer.trouble for writer in self._writers.values()]
        return "; ".join(troubles) if all(troubles) else ""
