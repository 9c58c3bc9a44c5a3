"""`manage.py up`: what `make run` executes. Prepares the database, prints the sign-in link, supervises web and runner."""

import fcntl
import os
import time
from io import StringIO
from typing import IO, Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from evolution_app.services import ensure_local_owner
from evolution_app.sign_in import sign_in_link
from foundry_web.database import explained, version_problem
from foundry_web.supervisor import Supervisor, is_listening, port_problem, runner, web_server

START_S = 30.0


class Command(BaseCommand):
    help = "Start the web pages and a runner, and keep both running until Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-runner", action="store_true", help="runners are elsewhere")

    def handle(self, *args: Any, **options: Any) -> None:
        environment = settings.ENVIRONMENT
        host, port = environment.host, environment.port
        lock = take_lock(port)
        if problem := port_problem(host, port):
            raise CommandError(problem)
        prepare_database()
        self.say(f"database: {describe_database()}")
        access_log = environment.var / "access.log"
        programs = [
            web_server(host, port, is_behind_proxy=environment.https, access_log=access_log)
        ]
        programs += [] if options["no_runner"] else [runner()]
        connections.close_all()
        Supervisor(programs, self.say).run(lambda: self.greet(host, port))
        lock.close()
        self.say("ended")

    def greet(self, host: str, port: int) -> None:
        """Print where to go, once somebody answers there."""
        self.load_library()
        deadline = time.monotonic() + START_S
        while not is_listening(host, port) and time.monotonic() < deadline:
            time.sleep(0.1)
        if settings.EMBEDDED:
            self.stdout.write("")
            self.say(f"open {sign_in_link(ensure_local_owner(), port)}")
            self.say(
                "the link works once; .venv/bin/python manage.py link prints another. Ctrl-C ends everything."
            )
        else:
            self.say(f"serving on {host}:{port}; people sign in at /login")
        connections.close_all()

    def load_library(self) -> None:
        """While the web server starts; a library that cannot be read keeps nobody from working."""
        try:
            call_command("load_library", stdout=StringIO())
        except CommandError as error:
            self.say(f"the starting entries of the library are left out: {error}")

    def say(self, line: str) -> None:
        self.stdout.write(f"Kernel Foundry: {line}")
        self.stdout.flush()


def take_lock(port: int) -> IO[str]:
    """One supervisor per data folder, which says on which port it serves; the lock goes with the process."""
    path = settings.ENVIRONMENT.var / "up.lock"
    # Held until the command ends.
    lock = open(path, "a")  # noqa: SIM115
    os.set_inheritable(lock.fileno(), False)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CommandError(
            f"Kernel Foundry runs already on {path.parent}; end it first, or set FOUNDRY_VAR to another folder"
        ) from error
    lock.truncate(0)
    lock.write(str(port))
    lock.flush()
    return lock


def serving_port() -> int | None:
    """Where this data folder's supervisor serves; None where none is running."""
    try:
        with open(settings.ENVIRONMENT.var / "up.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return int(lock.read() or 0) or None
    except (FileNotFoundError, ValueError):
        pass
    return None


def prepare_database() -> None:
    """Bring the tables up to date; refuse a database of a newer version, and one that cannot be reached."""
    try:
        executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
        if problem := version_problem(executor):
            raise CommandError(problem)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            call_command("migrate", interactive=False, verbosity=0)
    except DatabaseError as error:
        raise CommandError(explained(error)) from error


def describe_database() -> str:
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor == "sqlite":
        return f"SQLite, {connection.settings_dict['NAME']}"
    return f"{connection.display_name}, {connection.settings_dict['NAME']}"
