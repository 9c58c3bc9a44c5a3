"""Whether the database can be used as it is, and why not, in words for people."""

from typing import Final

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

# What SQLite and PostgreSQL say; SQLite calls it an I/O error where it cannot extend its shared memory.
_NO_ROOM: Final = ("disk is full", "no space left", "disk i/o error", "could not extend")


def is_out_of_room(error: BaseException) -> bool:
    """Whether what failed is a write that found no space on the disk."""
    return isinstance(error, DatabaseError) and any(
        words in str(error).lower() for words in _NO_ROOM
    )


def explained(error: DatabaseError) -> str:
    """What is wrong with the database, and what to do."""
    if is_out_of_room(error):
        return (
            f"the disk is full: {where()} cannot be written ({str(error).strip()}). Free some space there; "
            "what was saved is kept, and work goes on by itself"
        )
    return (
        f"the database cannot be used: {str(error).strip()}. "
        "Check DATABASE_URL, and that the folder can be written"
    )


def where() -> str:
    """The file of an SQLite database; of another, its server's disk."""
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor == "sqlite":
        return str(settings.ENVIRONMENT.var)
    return "the disk of the database server"


def version_problem(executor: MigrationExecutor) -> str | None:
    """Why this code must not touch the database: it was written by a newer version."""
    unknown = newer_migrations(executor)
    if not unknown:
        return None
    return (
        f"the database was written by a newer version ({', '.join(unknown)} is unknown here): "
        "update this checkout, or set FOUNDRY_VAR (or DATABASE_URL) to another database"
    )


def newer_migrations(executor: MigrationExecutor) -> list[str]:
    """Migrations that the database has seen and this code does not know."""
    known = set(executor.loader.disk_migrations or ())
    apps = {app for app, _ in known}
    applied = executor.loader.applied_migrations
    replaced = {
        key for migration in executor.loader.replacements.values() for key in migration.replaces
    }
    return sorted(
        f"{app}.{name}"
        for app, name in applied
        if app in apps and (app, name) not in known and (app, name) not in replaced
    )


def readiness_problem() -> str | None:
    """Why a runner cannot start on the database; None if it can. Raises DatabaseError if that cannot be read."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    if problem := version_problem(executor):
        return problem
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return "the database is not prepared for this version: run `python manage.py migrate`, then start again"
    return None
