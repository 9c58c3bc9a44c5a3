"""Sites of their own for the browser tests: `manage.py up` with a data folder and a port nobody else uses."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "test-results"
START_S = 150


@dataclass
class Site:
    """A running `manage.py up`."""

    url: str
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def manage(self, *arguments: str) -> str:
        """What a management command prints."""
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def link(self, user: str | None = None) -> str:
        """A link that signs in the local owner, or another account."""
        options = ["--user", user] if user else []
        found = re.search(r"http://\S+", self.manage("link", *options))
        assert found
        return found.group()

    def play(
        self, count: int, *, pause_s: float = 0.0, finish: bool = True, islands: int = 3
    ) -> "Played":
        """A run that a script plays in another process; see `tests/browser/play.py`."""
        options = ["--count", str(count), "--pause", str(pause_s), "--islands", str(islands)]
        options += ["--finish"] if finish else []
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.browser.play", *options],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return Played(int(process.stdout.readline()), process)

    def child(self, word: str) -> psutil.Process:
        """The child of the supervisor whose command line contains `word`."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            if word in " ".join(process.cmdline()):
                return process
        raise AssertionError(f"no {word} process")


@dataclass
class Played:
    run: int
    process: subprocess.Popen[str]

    def wait(self) -> None:
        assert self.process.wait(timeout=120) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(folder: Path, *options: str) -> Site:
    port = free_port()
    kept = {
        k: v
        for k, v in os.environ.items()
        if k not in ("DATABASE_URL", "REDIS_URL", "FOUNDRY_HOSTS")
    }
    environment = {
        **kept,
        "FOUNDRY_VAR": str(folder / "var"),
        "PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    log = (folder / "up.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", *options],
        cwd=ROOT,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
    )
    site = Site(f"http://127.0.0.1:{port}", process, environment)
    deadline = time.monotonic() + START_S
    while "/welcome#" not in (folder / "up.log").read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            stop(site)
            pytest.fail(f"manage.py up did not start: {(folder / 'up.log').read_text()[-2000:]}")
        time.sleep(0.2)
    return site


def stop(site: Site) -> None:
    site.process.send_signal(signal.SIGINT)
    try:
        site.process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        site.process.kill()
