"""Statements that a runner makes many times a second, without the ORM's compiler.

It compiles each statement anew, which takes the runner longer than the database takes to answer (`benchmarks/driver_load.py`).
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.db import connection, models

from evolution_app.models import Candidate, Evaluation, Island, Run
from gpu_runner.core.verdicts import Stage, State


def locked_run(run_id: int, fence: int) -> Run | None:
    """The run, locked until the transaction ends; None if `fence` is not that of the latest claim."""
    lock = " FOR UPDATE" if connection.features.has_select_for_update else ""
    columns = ", ".join(f'"{field.column}"' for field in Run._meta.concrete_fields)
    found = Run.objects.raw(
        f"SELECT {columns} FROM {_table(Run)} WHERE id = %s AND fence = %s{lock}",
        [run_id, fence],
    )
    return next(iter(found), None)


def candidate_of(run_id: int, number: int) -> Candidate:
    """A candidate with its island. Raises Candidate.DoesNotExist."""
    columns = ", ".join(f'made."{field.column}"' for field in Candidate._meta.concrete_fields)
    found = Candidate.objects.raw(
        f"SELECT {columns}, home.number AS home_number FROM {_table(Candidate)} AS made"
        f" JOIN {_table(Island)} AS home ON home.id = made.island_id"
        " WHERE made.run_id = %s AND made.number = %s",
        [run_id, number],
    )
    for candidate in found:
        home: int = candidate.home_number  # type: ignore[attr-defined]
        candidate.island = Island(pk=candidate.island_id, run_id=run_id, number=home)
        return candidate
    raise Candidate.DoesNotExist(f"run {run_id} has no candidate {number}")


def reach(run_id: int, number: int, stage: Stage, now: datetime) -> int | None:
    """A candidate that is not over has reached a gate; its island's number, None where that is no news."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {_table(Candidate)} SET state = %s, stage = %s, started_at = COALESCE(started_at, %s)"
            " WHERE run_id = %s AND number = %s AND state IN (%s, %s) AND stage <> %s"
            f" RETURNING (SELECT number FROM {_table(Island)} AS home WHERE home.id = island_id)",
            [
                State.EVALUATING.value,
                stage.value,
                connection.ops.adapt_datetimefield_value(now),
                run_id,
                number,
                State.QUEUED.value,
                State.EVALUATING.value,
                stage.value,
            ],
        )
        row = cursor.fetchone()
    return row[0] if row else None


def candidate_keys(run_id: int, numbers: Sequence[int]) -> dict[int, int]:
    """The primary keys of a run's candidates, by number."""
    places = ", ".join(["%s"] * len(numbers))
    return _pairs(
        f"SELECT number, id FROM {_table(Candidate)} WHERE run_id = %s AND number IN ({places})",
        [run_id, *numbers],
    )


def island_key(run_id: int, number: int) -> int | None:
    return _pairs(
        f"SELECT number, id FROM {_table(Island)} WHERE run_id = %s AND number = %s",
        [run_id, number],
    ).get(number)


def evaluations(run_id: int) -> int:
    """How many a run has had, those to publish the best not counted."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT COUNT(*) FROM {_table(Evaluation)} JOIN {_table(Candidate)} AS made"
            " ON made.id = candidate_id WHERE run_id = %s AND NOT is_published",
            [run_id],
        )
        return int(cursor.fetchone()[0])


def update(row: models.Model, names: Sequence[str]) -> None:
    """Write some fields of a row."""
    fields: list[Any] = [row._meta.get_field(name) for name in names]
    values = [_stored(field, row, is_new=False) for field in fields]
    changes = ", ".join(f'"{field.column}" = %s' for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {_table(type(row))} SET {changes} WHERE id = %s", [*values, row.pk])


def insert(rows: Sequence[models.Model], *, or_keep: bool = False) -> None:
    """Rows of one table, whose keys are known or asked for by nobody, see `insert_one`.

    Args:
        or_keep: leaves what is there already as it is.
    """
    head, place, fields = _insertion(type(rows[0]))
    values = [_stored(field, row, is_new=True) for row in rows for field in fields]
    ending = " ON CONFLICT DO NOTHING" if or_keep else ""
    with connection.cursor() as cursor:
        cursor.execute(head + ", ".join([place] * len(rows)) + ending, values)


def insert_one(row: models.Model) -> None:
    """A row, which has its key from then on."""
    head, place, fields = _insertion(type(row))
    with connection.cursor() as cursor:
        cursor.execute(
            f"{head}{place} RETURNING id", [_stored(field, row, is_new=True) for field in fields]
        )
        row.pk = cursor.fetchone()[0]
    row._state.adding = False


def _stored(field: Any, row: models.Model, *, is_new: bool) -> Any:
    return field.get_db_prep_save(field.pre_save(row, is_new), connection)


@cache
def _insertion(model: type[models.Model]) -> tuple[str, str, tuple[Any, ...]]:
    """The statement up to its rows, the places of a row, and the fields that fill them."""
    fields = tuple(f for f in model._meta.concrete_fields if not isinstance(f, models.AutoField))
    columns = ", ".join(f'"{field.column}"' for field in fields)
    place = "(" + ", ".join(["%s"] * len(fields)) + ")"
    return f"INSERT INTO {_table(model)} ({columns}) VALUES ", place, fields


def _pairs(sql: str, params: Sequence[Any]) -> dict[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return dict(cursor.fetchall())


@cache
def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)
