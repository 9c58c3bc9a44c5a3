"""What several tables share: choices of the runner's own words, and rows that are never changed."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self

from django.db import models


def choices_of(words: type[StrEnum]) -> list[tuple[str, str]]:
    """Choices for a field that holds one of the fixed words of `gpu_runner.core`."""
    return [(word.value, word.value.replace("_", " ")) for word in words]


class AppendOnlyError(RuntimeError):
    """A row of a history was about to be changed or deleted."""


class AppendOnlyQuerySet(models.QuerySet[Any]):
    def update(self, **changes: Any) -> int:
        raise AppendOnlyError(f"{self.model.__name__} rows are never changed")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(f"{self.model.__name__} rows are never deleted")

    def bulk_update(
        self, objs: Iterable[Any], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        raise AppendOnlyError(f"{self.model.__name__} rows are never changed")

    def newest_first(self) -> Self:
        return self.order_by("-id")


class AppendOnly(models.Model):
    """A row that is written once; its manager is that of `AppendOnlyQuerySet` or a subclass.

    The database refuses updates too: see the triggers in the migrations.
    """

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnlyError(f"{type(self).__name__} {self.pk} is never changed")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError(f"{type(self).__name__} {self.pk} is never deleted")
