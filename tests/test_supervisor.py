"""`manage.py up`: what it starts lives as long as it does, and not longer, whoever is killed how."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundry_web.env import read_environment, secret_key
from foundry_web.supervisor import Program, port_problem

PROJECT = Path(__file__).resolve().parents[1]
TOO_LATE_S = 60.0

pytestmark = pytest.mark.xdist_group("supervisor")

SUPERVISE = """
import sys
from foundry_web.supervisor import Program, Supervisor
programs = [Program(f"child {n}", [sys.executable, "-c", sys.argv[1], sys.argv[2] + str(n)], grace_s=2) for n in range(2)]
Supervisor(programs, lambda line: print(line, flush=True)).run(lambda: print("started", flush=True))
print("ended", flush=True)
"""
# Writes its process id and that of a child of its own; deaf children ignore SIGTERM.
CHILD = """
import os, subprocess, sys, time
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + f".{os.getpid()}", "w").write(str(below.pid))
time.sleep(600)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + CHILD


def wait_for(claim: Callable[[], Any], timeout_s: float = TOO_LATE_S) -> Any:
    """The first true answer of `claim`."""
    deadline = time.monotonic() + timeout_s
    while not (answer := claim()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return answer


class Family:
    """A supervisor with two scripted children that have a child each."""

    def __init__(self, folder: Path, child: str = CHILD) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, child, f"{folder}/"],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def children(self) -> dict[int, list[int]]:
        """Process ids that the children of each number have written, with those of their own children."""
        found: dict[int, list[int]] = {0: [], 1: []}
        for path in self.folder.iterdir():
            number, pid = path.name.split(".")
            if below := path.read_text():
                found[int(number)] += [int(pid), int(below)]
        return found

    def started(self) -> list[int]:
        wait_for(lambda: all(self.children().values()))
        return self.all()

    def all(self) -> list[int]:
        return [pid for pids in self.children().values() for pid in pids]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[..., Family]]:
    made: list[Family] = []

    def make(child: str = CHILD) -> Family:
        made.append(Family(tmp_path, child))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.wait()
        for pid in one.all():
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def are_gone(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_everything_that_it_started(
    family: Callable[..., Family], number: signal.Signals
) -> None:
    one = family()
    pids = one.started()
    one.process.send_signal(number)
    assert one.process.wait(TOO_LATE_S) == 0
    assert are_gone(pids)


def test_children_that_do_not_listen_are_killed(family: Callable[..., Family]) -> None:
    one = family(DEAF)
    pids = one.started()
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(TOO_LATE_S) == 0
    assert are_gone(pids)


def test_its_own_death_is_that_of_its_children(family: Callable[..., Family]) -> None:
    one = family()
    children = [pids[0] for pids in (one.started(), one.children().values())[1]]
    one.process.kill()
    one.process.wait()
    wait_for(lambda: are_gone(children))


def test_a_child_that_dies_is_started_again_and_leaves_nothing_behind(
    family: Callable[..., Family],
) -> None:
    one = family()
    pids = one.started()
    first = one.children()[0]
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: len(one.children()[0]) == 4)
    assert are_gone(first)
    assert not are_gone([pid for pid in pids if pid not in first])


def test_a_child_that_keeps_dying_is_started_less_and_less_often() -> None:
    program = Program("a child", [sys.executable, "-c", "raise SystemExit(3)"])
    pauses = []
    for _ in range(9):
        program.start()
        wait_for(program.has_died)
        pauses.append(program.bury())
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_taken_port_is_said_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problem = port_problem("127.0.0.1", port)
        assert problem is not None
        assert f"port {port} is taken" in problem
        assert f"PORT={port + 1}" in problem
    assert port_problem("127.0.0.1", port) is None


def test_the_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert secret_key(tmp_path) == key
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PORT": "web"}, "PORT"),
        ({"PORT": "70000"}, "PORT"),
        ({"HOST": "0.0.0.0"}, "FOUNDRY_HOSTS"),
        ({"DATABASE_URL": "mysql://x"}, "DATABASE_URL"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL"),
        ({"FOUNDRY_DEBUG": "maybe"}, "FOUNDRY_DEBUG"),
    ],
)
def test_an_environment_that_means_nothing_is_refused(
    environment: dict[str, str], message: str
) -> None:
    from django.core.exceptions import ImproperlyConfigured

    with pytest.raises(ImproperlyConfigured, match=message):
        read_environment(environment)


# The real thing


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


class Installation:
    """A data folder of its own, and `manage.py` on it."""

    def __init__(self, var: Path) -> None:
        self.var = var
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        inherited = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")}
        self.environment = {
            **inherited,
            "FOUNDRY_VAR": str(var),
            "PORT": str(self.port),
            "FOUNDRY_DEVICE": "cpu",
        }
        self.log = var.parent / "up.log"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "manage.py", *arguments]

    def manage(
        self, *arguments: str, file_bytes: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.run(self.command(*arguments), file_bytes)

    def work(self, file_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
        """A runner that is not supervised."""
        return self.run([sys.executable, "-m", "gpu_runner", "work"], file_bytes)

    def run(self, command: list[str], file_bytes: int | None) -> subprocess.CompletedProcess[str]:
        """To its end; no file that it writes becomes larger than `file_bytes`, as on a full disk."""
        limit = () if file_bytes is None else ("prlimit", f"--fsize={file_bytes}")
        return subprocess.run(
            [*limit, *command],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TOO_LATE_S,
        )

    def up(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command("up"), cwd=PROJECT, env=self.environment, stdout=log, stderr=log
            )

    def link(self) -> str:
        found = re.findall(r"http://127\.0\.0\.1:\d+/welcome#[\w-]+", self.log.read_text())
        return found[-1] if found else ""

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/login", timeout=5) as page:
                return bool(page.status == 200)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def sign_in(self, token: str) -> int:
        """POST a token as the page does; the status of the answer."""
        cookies = urllib.request.HTTPCookieProcessor()
        opener = urllib.request.build_opener(cookies, NoRedirect())
        url = f"http://127.0.0.1:{self.port}/welcome"
        opener.open(url, timeout=10).close()
        csrf = next(cookie.value for cookie in cookies.cookiejar if cookie.name == "csrftoken")
        form = urllib.parse.urlencode({"token": token, "csrfmiddlewaretoken": csrf}).encode()
        try:
            with opener.open(url, form, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if not (self.var / "foundry.sqlite3").exists():
            return []
        with sqlite3.connect(self.var / "foundry.sqlite3", timeout=10) as database:
            return database.execute(sql).fetchall()


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "var")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of an installation whose database is ready."""
    installation = Installation(tmp_path_factory.mktemp("prepared") / "var")
    done = installation.manage("migrate", "--verbosity=0")
    assert done.returncode == 0, done.stderr
    return installation.var


@pytest.fixture
def ready(prepared: Path, tmp_path: Path) -> Installation:
    return Installation(Path(shutil.copytree(prepared, tmp_path / "var")))


def children_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def of_program(process: subprocess.Popen[bytes], word: str) -> psutil.Process | None:
    """The supervised child whose command names it."""
    for child in children_of(process):
        try:
            if word in " ".join(child.cmdline()[:4]):
                return child
        except psutil.Error:  # it ended meanwhile
            continue
    return None


def test_web_and_runner_come_up_restart_and_end_together(installation: Installation) -> None:
    up = installation.up()
    try:
        wait_for(installation.link)
        assert wait_for(installation.answers)
        beating = "SELECT count(*) FROM evolution_app_runner WHERE stopped_at IS NULL"
        wait_for(lambda: installation.query(beating) == [(1,)])

        web, work = of_program(up, "daphne"), of_program(up, "gpu_runner")
        assert web is not None
        assert work is not None
        for dead, word in ((web, "daphne"), (work, "gpu_runner")):
            dead.kill()
            wait_for(lambda dead=dead: not is_running(dead.pid))
            wait_for(lambda word=word: of_program(up, word))
        assert wait_for(installation.answers)
        token = installation.link().split("#")[1]
        assert installation.sign_in(token) == 302
        assert installation.sign_in(token) == 422
        assert installation.log.read_text().count(token) == 1

        memory = sum(child.memory_full_info().pss for child in children_of(up))
        assert memory < 600e6

        second = installation.manage("up")
        assert second.returncode != 0
        assert "runs already" in second.stderr
    finally:
        pids = [child.pid for child in children_of(up)]
        up.send_signal(signal.SIGINT)
        assert up.wait(TOO_LATE_S) == 0
    assert are_gone(pids)


def test_a_killed_supervisor_leaves_nothing_running_and_the_next_start_is_quick(
    installation: Installation,
) -> None:
    up = installation.up()
    wait_for(installation.link)
    pids = [child.pid for child in children_of(up)]
    up.kill()
    up.wait()
    wait_for(lambda: are_gone(pids))

    installation.log.write_text("")
    began = time.monotonic()
    again = installation.up()
    try:
        wait_for(installation.link)
        # Alone on a machine it takes under 5 s; other tests run beside this one.
        assert time.monotonic() - began < 15
    finally:
        again.send_signal(signal.SIGTERM)
        assert again.wait(TOO_LATE_S) == 0


def test_a_taken_port_stops_the_start(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", installation.port)):
        done = installation.manage("up")
    assert done.returncode != 0
    assert f"port {installation.port} is taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_of_a_newer_version_is_refused_with_the_way_out(
    ready: Installation,
) -> None:
    with sqlite3.connect(ready.var / "foundry.sqlite3") as database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('evolution_app', '0999_later', '2026-01-01')"
        )
    done = ready.manage("up")
    assert done.returncode != 0
    assert "newer version" in done.stderr
    assert "0999_later" in done.stderr
    assert "update this checkout" in done.stderr


def test_a_runner_refuses_a_database_of_another_version(ready: Installation) -> None:
    with sqlite3.connect(ready.var / "foundry.sqlite3") as database:
        database.execute("DELETE FROM django_migrations WHERE app = 'evolution_app'")
        database.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('evolution_app', '0999_later', '2026-01-01')"
        )
    newer = ready.work()
    assert newer.returncode == 2
    assert re.fullmatch(r"the database was written by a newer version .*\n", newer.stderr)
    with sqlite3.connect(ready.var / "foundry.sqlite3") as database:
        database.execute("DELETE FROM django_migrations WHERE name = '0999_later'")
    older = ready.work()
    assert older.returncode == 2
    assert re.fullmatch(r"the database is not prepared .* manage.py migrate.*\n", older.stderr)


def test_a_full_disk_is_said_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "var")
    for done in (installation.manage("up", file_bytes=0), installation.work(file_bytes=0)):
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1
        assert f"cannot keep anything in {installation.var}" in done.stderr
        assert "Free some space" in done.stderr
    assert list(installation.var.iterdir()) == []


def test_no_room_for_the_tables_is_said_too(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "var")
    done = installation.manage("up", file_bytes=64 << 10)
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_means_nothing_is_said_in_one_line(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "var")
    installation.environment["PORT"] = "web"
    for done in (installation.manage("up"), installation.work()):
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1
        assert "PORT=web is no port" in done.stderr


def test_a_link_signs_in_once(ready: Installation) -> None:
    done = ready.manage("link")
    assert re.fullmatch(rf"http://127\.0\.0\.1:{ready.port}/welcome#[\w-]{{40,}}\n", done.stdout)
    token = done.stdout.strip().split("#")[1]
    assert token not in str(ready.query("SELECT * FROM evolution_app_signintoken"))
    assert ready.manage("link", "--user", "nobody").returncode != 0


def test_a_link_leads_to_where_the_pages_are_served(ready: Installation) -> None:
    lock = Path(ready.environment["FOUNDRY_VAR"]) / "up.lock"
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("4321")
        held.flush()
        assert ready.manage("link").stdout.startswith("http://127.0.0.1:4321/")
    assert ready.manage("link").stdout.startswith(f"http://127.0.0.1:{ready.port}/")


def test_accounts_are_made_on_the_machine(ready: Installation) -> None:
    assert ready.manage("account", "ada", "--role", "expert").returncode == 0
    assert ready.query("SELECT role FROM evolution_app_user") == [("expert",)]
    assert ready.manage("account", "ada", "--role", "viewer").returncode == 0
    assert ready.query("SELECT role FROM evolution_app_user") == [("viewer",)]


def test_the_web_process_knows_no_torch() -> None:
    code = (
        "import json, sys, foundry_web.asgi, foundry_web.urls\n"
        "print(json.dumps([m for m in ('torch', 'triton', 'libcst') if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
