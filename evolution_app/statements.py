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


def insert(rows: Sequence[models.Model], *, or_keep: bool = False) -> None:
    """Rows of one table, whose keys are known or asked for by nobody.

    Args:
        or_keep: leaves what is there already as it is.
    """
    fields = [f for f in rows[0]._meta.concrete_fields if not isinstance(f, models.AutoField)]
    values = [f.get_db_prep_save(f.pre_save(row, True), connection) for row in rows for f in fields]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    places = ", ".join(["(" + ", ".join(["%s"] * len(fields)) + ")"] * len(rows))
    ending = " ON CONFLICT DO NOTHING" if or_keep else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_table(type(rows[0]))} ({columns}) VALUES {places}{ending}", values
        )


def _pairs(sql: str, params: Sequence[Any]) -> dict[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return dict(cursor.fetchall())


@cache
def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)
