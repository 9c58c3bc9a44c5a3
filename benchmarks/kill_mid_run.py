"""Kill the runner, its zygotes, the web server and `evolve` with SIGKILL at random moments, and look what was lost.

Run: python benchmarks/kill_mid_run.py [--variants runner zygotes evolve] [--kills 10] [--seed 1] [--out FILE]

Everything is real: `manage.py up` on a data folder and a port of its own, the evaluator on `cpu`, a run of an example, and a
client that follows the run's socket as the page does. Exit code 0 if nothing was lost, changed or doubled, and nothing is
left running; 1 otherwise.
"""

import argparse
import contextlib
import hashlib
import http.cookiejar
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAUSE_S = (0.2, 6.0)
START_S = 150.0
DIE_S = 15.0
SOCKET_TIMEOUT_S = 30.0
TASK = ROOT / "examples" / "level1" / "softmax.py"

BUBBLEWRAP = "bubblewrap"

Finished = dict[int, str]
"""A digest of the evaluation of each finished candidate."""


@dataclass
class Kill:
    what: str
    at_s: float  # since the variant began
    finished: int  # candidates at that moment
    during: str = ""  # the stage of the candidate in progress


@dataclass
class Outcome:
    """What one variant showed; `problems` is empty if all is well."""

    variant: str
    budget: int
    kills: list[Kill] = field(default_factory=list)
    finished: int = 0
    candidates: int = 0
    abandoned: int = 0
    events: int = 0
    reconnects: int = 0
    longest_silence_s: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def row(self) -> str:
        killed = ", ".join(f"{n} {what}" for what, n in Counter(k.what for k in self.kills).items())
        cells = (
            self.variant,
            killed,
            f"{self.finished}/{self.budget}",
            self.abandoned,
            self.events or "-",
            self.reconnects or "-",
            f"{self.longest_silence_s:.0f}" if self.events else "-",
            f"{self.seconds:.0f}",
            "; ".join(self.problems) or "none",
        )
        return f"| {' | '.join(map(str, cells))} |"


HEAD = "| variant | kill -9 of | finished | abandoned | events | reconnects | longest silence s | s | problems |"


def wait_for(claim: Callable[[], Any], what: str, timeout_s: float = START_S) -> Any:
    """The first true answer of `claim`."""
    deadline = time.monotonic() + timeout_s
    while not (answer := claim()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.1)
    return answer


# Processes.


def tree(process: psutil.Process) -> list[psutil.Process]:
    """All that a process has started; empty if it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def words(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def zygotes(runner: psutil.Process) -> list[psutil.Process]:
    """The zygotes themselves, and not what was forked from them, which looks the same."""
    found = []
    for process in tree(runner):
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            is_inside = parent is not None and parent.name() == "bwrap"
            if process.name() != "bwrap" and is_inside and "child.zygote" in words(process):
                found.append(process)
    return found


def kill(victims: Iterable[psutil.Process]) -> list[psutil.Process]:
    """SIGKILL; returns all that had been started by the victims and must end with them."""
    victims = list(victims)
    below = [child for victim in victims for child in tree(victim)]
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    return below


def survivors(processes: Iterable[psutil.Process]) -> list[str]:
    """Those that still run after a while, and whatever they have started since."""
    _, alive = psutil.wait_procs(list(processes), timeout=DIE_S)
    everyone = {p.pid: p for one in alive for p in (one, *tree(one))}
    return [f"{p.pid} {words(p)[:80]}" for p in everyone.values() if _runs(p)]


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


# The installation.


class Site:
    """`manage.py up` on a folder and a port that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        for name in ("DATABASE_URL", "REDIS_URL", "FOUNDRY_HOSTS", "FOUNDRY_MODELS"):
            os.environ.pop(name, None)
        os.environ |= {
            "FOUNDRY_VAR": str(folder / "var"),
            "PORT": str(self.port),
            "FOUNDRY_DEVICE": "cpu",
            "OMP_NUM_THREADS": "1",
        }
        self.later: list[psutil.Process] = []
        self.log = folder / "up.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"], cwd=ROOT, stdout=log, stderr=log
            )
        wait_for(self.link, f"the start of manage.py up (see {self.log})")

    def link(self) -> str:
        if self.process.poll() is not None:
            raise RuntimeError(f"manage.py up ended: {self.log.read_text()[-2000:]}")
        found = re.search(r"http://\S+/welcome#\S+", self.log.read_text())
        return found.group() if found else ""

    def child(self, word: str) -> psutil.Process | None:
        for process in psutil.Process(self.process.pid).children():
            if word in words(process):
                return process
        return None

    def web(self) -> psutil.Process | None:
        """The web server, once it answers."""
        process = self.child("daphne")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=0.5).close()
            return process
        return None

    def runner(self) -> psutil.Process | None:
        return self.child("gpu_runner work")

    def stop(self) -> list[str]:
        """End it as Ctrl-C does; what is left running."""
        everyone = [*tree(psutil.Process(self.process.pid)), *self.later]
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        return survivors(everyone)

    def sign_in(self) -> str:
        """Exchange the printed link for a session as the page does; the Cookie header."""
        url, token = self.link().split("#")
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        opener.open(url, timeout=30).close()
        csrf = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
        form = urllib.parse.urlencode({"token": token, "csrfmiddlewaretoken": csrf}).encode()
        opener.open(url, form, timeout=30).close()
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)


class Follower(threading.Thread):
    """Follows a run's socket and connects again with its cursor, as the page does."""

    def __init__(self, port: int, run: int, cookie: str) -> None:
        super().__init__(name=f"follower of run {run}", daemon=True)
        self._url = f"ws://127.0.0.1:{port}/ws/runs/{run}/"
        self._headers = {"Cookie": cookie}
        self.seqs: list[int] = []
        self.connections = 0
        self.longest_silence_s = 0.0
        self.has_ended = False
        self.problem = ""

    def run(self) -> None:
        heard = time.monotonic()
        while not self.has_ended and not self.problem:
            try:
                for frame in self._frames():
                    self.longest_silence_s = max(self.longest_silence_s, time.monotonic() - heard)
                    heard = time.monotonic()
                    self._take(frame)
            except InvalidStatus as error:
                self.problem = f"the socket was refused: {error}"
            except (OSError, WebSocketException):
                # The server is away, or was killed in the middle of a frame.
                time.sleep(0.5)

    def _frames(self) -> Iterator[dict[str, Any]]:
        since = self.seqs[-1] if self.seqs else 0
        with connect(
            f"{self._url}?since={since}",
            additional_headers=self._headers,
            open_timeout=SOCKET_TIMEOUT_S,
        ) as connection:
            self.connections += 1
            while True:
                yield json.loads(connection.recv(timeout=SOCKET_TIMEOUT_S))

    def _take(self, frame: dict[str, Any]) -> None:
        if (seq := frame.get("seq")) is not None:
            self.seqs.append(seq)
        elif frame["kind"] == "end":
            self.has_ended = True
        elif frame["kind"] == "reload":
            self.problem = "it was asked to load the page again"


# Runs in the database.


def start_run(evaluations: int, seed: int) -> int:
    from evolution_app import services
    from gpu_runner.core.task import Budget

    owner = services.ensure_local_owner()
    task = services.submit_task(owner=owner, name=TASK.stem, source=TASK.read_text())
    budget = Budget(evaluations=evaluations)
    return int(services.start_run(task=task, by=owner, budget=budget, islands=3, seed=seed).pk)


def finished_in_database(run: int) -> Finished:
    """By candidate; two evaluations of one make one digest that no other state has."""
    from evolution_app.models import Evaluation

    rows = Evaluation.objects.filter(candidate__run_id=run, is_published=False)
    found: Finished = {}
    for number, pk, document in rows.order_by("id").values_list(
        "candidate__number", "id", "document"
    ):
        found[number] = found.get(number, "") + f"{pk}:{digest(document)}"
    return found


def digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def newest_stage(run: int) -> tuple[int, str]:
    """Seq and name of the stage that the run reached last."""
    from evolution_app.models import RunEvent

    events = RunEvent.objects.filter(run_id=run, kind="candidate.stage").order_by("-seq")
    found = events.values_list("seq", "payload").first()
    return (found[0], found[1]["stage"]) if found else (0, "")


def is_over(run: int) -> bool:
    from evolution_app.models import Run

    return Run.objects.get(pk=run).is_over


class Killing(threading.Thread):
    """Kills one kind of process again and again at random moments of a run.

    The moments are counted in turn from the start of the process, its first sign of evaluating, and its first finished
    candidate.
    """

    def __init__(
        self,
        run: int,
        rng: random.Random,
        count: int,
        find: Callable[[], dict[str, list[psutil.Process]]],
        *,
        waits_for_work: bool,
    ) -> None:
        super().__init__(name="killing", daemon=True)
        self._run, self._rng, self._count, self._find = run, rng, count, find
        self._waits_for_work = waits_for_work
        self._began = time.monotonic()
        self.kills: list[Kill] = []
        self.seen: list[Finished] = []
        self.orphans: list[str] = []
        self.later: list[psutil.Process] = []  # must have ended when the installation has
        self.problem = ""

    @property
    def is_done(self) -> bool:
        return len(self.kills) == self._count

    def run(self) -> None:
        from django.db import connection

        try:
            for index in range(self._count):
                is_last = index == self._count - 1
                self._kill_once(index % 3 if self._waits_for_work else 0, is_last=is_last)
        except TimeoutError as error:
            self.problem = f"after {len(self.kills)} kills: {error}"
        connection.close()

    def _kill_once(self, waits: int, *, is_last: bool) -> None:
        """Bubblewrap is killed last: its zygotes serve on until the runner ends, but are no descendants of it any more."""
        wait_for(self._find, "a restart")
        stage, finished = newest_stage(self._run)[0], len(finished_in_database(self._run))
        if waits == 1:
            wait_for(lambda: newest_stage(self._run)[0] > stage, "an evaluation")
        elif waits == 2:
            wait_for(lambda: len(finished_in_database(self._run)) > finished, "a result")
        time.sleep(self._rng.uniform(*PAUSE_S))
        found = self._find()
        while not found:
            time.sleep(0.05)
            found = self._find()
        what = self._rng.choice(sorted(found.keys() - ({BUBBLEWRAP} if not is_last else set())))
        during = newest_stage(self._run)[1]
        below = kill(found[what])
        psutil.wait_procs(found[what], timeout=DIE_S)
        self.seen.append(finished_in_database(self._run))
        at_s = round(time.monotonic() - self._began, 2)
        self.kills.append(Kill(what, at_s, len(self.seen[-1]), during))
        if is_over(self._run):
            self.problem = (
                f"the run was over after {len(self.kills)} kills; give it a larger budget"
            )
        if what == BUBBLEWRAP:
            # Only the launcher is dead: the runner goes on with what is inside.
            self.later += below
        else:
            self.orphans += survivors(below)


def play(
    site: Site,
    cookie: str,
    outcome: Outcome,
    seed: int,
    killings: Callable[[int], list[Killing]],
    limit_s: float,
) -> None:
    """Start a run, follow it, kill, wait for its end, and look."""
    began = time.monotonic()
    run = start_run(outcome.budget, seed)
    follower = Follower(site.port, run, cookie)
    follower.start()
    active = killings(run)
    for killing in active:
        killing.start()
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: is_over(run), "the end of the run", limit_s)
    for killing in active:
        killing.join(timeout=DIE_S)
    follower.join(timeout=60)
    outcome.seconds = time.monotonic() - began
    outcome.kills = sorted((k for one in active for k in one.kills), key=lambda k: k.at_s)
    outcome.reconnects = follower.connections - 1
    outcome.longest_silence_s = round(follower.longest_silence_s, 1)
    outcome.problems += [one.problem for one in active if one.problem]
    outcome.problems += complaints(
        *((one.is_done, "the run was over before all kills") for one in active)
    )
    outcome.problems += [f"left running: {orphan}" for one in active for orphan in one.orphans]
    look(run, outcome, [seen for one in active for seen in one.seen])
    look_at_stream(run, outcome, follower)
    site.later += [process for one in active for process in one.later]


def look(run_id: int, outcome: Outcome, seen: Iterable[Finished]) -> None:
    """Compare what the database holds now with what it held at each kill, and with the budget."""
    from evolution_app.models import Run

    run = Run.objects.get(pk=run_id)
    now = finished_in_database(run_id)
    states = Counter(run.candidates.values_list("state", flat=True))
    numbers = sorted(run.candidates.values_list("number", flat=True))
    outcome.finished, outcome.candidates = len(now), len(numbers)
    outcome.abandoned = run.candidates.filter(state="abandoned", setbacks__gt=1).count()
    changed = {n for before in seen for n, value in before.items() if now.get(n) != value}
    twice = [number for number, value in now.items() if value.count(":") > 1]
    untimed = run.candidates.filter(verdict="correct", speedup=None)
    ended = states["finished"] + states["unevaluated"]
    spent = run.spent.get("evaluations", 0)
    outcome.problems += complaints(
        (run.state == "finished", f"the run is {run.state}: {run.stop_reason}"),
        (run.stop_reason.startswith("budget"), f"it ended otherwise: {run.stop_reason}"),
        (not changed, f"finished before a kill and changed after: {sorted(changed)}"),
        (not twice, f"evaluated twice: {twice}"),
        (not untimed, f"correct without a speed: {list(untimed)}"),
        (len(now) == ended, f"{len(now)} evaluations for {ended} candidates"),
        (spent == len(now), f"{spent:g} evaluations paid, {len(now)} made"),
        (len(now) == outcome.budget, f"{len(now)} of {outcome.budget} evaluations made"),
        (numbers == list(range(1, len(numbers) + 1)), f"numbers of candidates: {numbers}"),
        (not states["queued"] + states["evaluating"], f"left in the middle: {dict(states)}"),
    )


def look_at_stream(run_id: int, outcome: Outcome, follower: Follower) -> None:
    from evolution_app.models import Run, RunEvent

    events = RunEvent.objects.filter(run_id=run_id).order_by("seq")
    seqs = list(events.values_list("seq", flat=True))
    done = Counter(
        payload["candidate"]
        for payload in events.filter(kind="candidate.done").values_list("payload", flat=True)
    )
    outcome.events = len(seqs)
    newest = Run.objects.values_list("last_seq", flat=True).get(pk=run_id)
    outcome.problems += complaints(
        (seqs == list(range(1, newest + 1)), "the events have gaps"),
        (max(done.values(), default=0) <= 1, f"told as done twice: {done.most_common(3)}"),
        (follower.seqs == seqs, f"the client saw {len(follower.seqs)} of {len(seqs)} events"),
        (follower.has_ended, "the client was not told of the end"),
        (not follower.problem, follower.problem),
    )


def complaints(*claims: tuple[bool, str]) -> list[str]:
    return [text for holds, text in claims if not holds]


def look_at_verdicts(run_id: int, outcome: Outcome) -> None:
    """A kill of ours must not become a verdict: whoever was found wrong is judged once more in peace."""
    from evolution_app.models import Candidate, Run
    from gpu_runner.evaluation.pool import open_pool
    from gpu_runner.evaluation.settings import EvaluationSettings

    task = Run.objects.get(pk=run_id).spec().task
    wrong = Candidate.objects.filter(run_id=run_id, state__in=("finished", "unevaluated"))
    with open_pool(EvaluationSettings(device="cpu")) as pool:
        for candidate in wrong.exclude(verdict="correct").select_related("source"):
            again = pool.evaluate(task, candidate.source.text)
            held, found = f"{candidate.verdict}/{candidate.kind}", f"{again.verdict}/{again.kind}"
            if held != found:
                outcome.problems.append(f"c-{candidate.number} is {held}, and in peace {found}")


# The command line.


def finished_in_journal(path: Path) -> Finished:
    found: Finished = {}
    for record in records(path):
        if record["record"] == "finished":
            number = record["candidate_id"]
            found[number] = found.get(number, "") + f":{digest(record['evaluation'])}"
    return found


def records(path: Path) -> list[dict[str, Any]]:
    """What the whole lines of a journal hold."""
    from gpu_runner.journal import read_records

    return list(read_records(path)) if path.exists() else []


def play_evolve(folder: Path, outcome: Outcome, rng: random.Random, count: int, seed: int) -> None:
    """Kill `evolve --out` at random moments; each time the same command goes on."""
    out = folder / "out"
    command = [sys.executable, "-m", "gpu_runner", "evolve", str(TASK), "--out", str(out)]
    command += ["--islands", "3", "--evaluations", str(outcome.budget)]
    command += ["--seed", str(seed), "--device", "cpu", "--json"]
    journal = out / "journal.jsonl"
    seen: list[Finished] = []
    began = time.monotonic()
    for index in range(count):
        process = psutil.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        length, finished = len(records(journal)), len(finished_in_journal(journal))
        if index % 3 == 1:
            wait_for(lambda length=length: len(records(journal)) > length + 1, "progress")
        elif index % 3 == 2:
            wait_for(lambda past=finished: len(finished_in_journal(journal)) > past, "a result")
        time.sleep(rng.uniform(*PAUSE_S))
        below = kill([process])
        code = process.wait()
        seen.append(finished_in_journal(journal))
        last = records(journal)[-1]["record"] if records(journal) else "nothing yet"
        at_s = round(time.monotonic() - began, 2)
        outcome.kills.append(Kill("evolve", at_s, len(seen[-1]), last))
        outcome.problems += [f"left running: {orphan}" for orphan in survivors(below)]
        outcome.problems += complaints((code == -9, f"it had ended by itself, exit code {code}"))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    outcome.seconds = time.monotonic() - began
    look_at_folder(out, outcome, seen, done)


def look_at_folder(
    out: Path, outcome: Outcome, seen: Iterable[Finished], done: subprocess.CompletedProcess[str]
) -> None:
    now = finished_in_journal(out / "journal.jsonl")
    lines = records(out / "journal.jsonl")
    numbers = [line["id"] for line in lines if line["record"] == "candidate"]
    paid = sum(line.get("evaluations", 0) for line in lines if line["record"] == "spend")
    outcome.finished, outcome.candidates = len(now), len(numbers)
    changed = {n for before in seen for n, value in before.items() if now.get(n) != value}
    twice = [number for number, value in now.items() if value.count(":") > 1]
    outcome.problems += complaints(
        (done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-300:]}"),
        (not changed, f"finished before a kill and changed after: {sorted(changed)}"),
        (not twice, f"evaluated twice: {twice}"),
        (len(now) == outcome.budget, f"{len(now)} of {outcome.budget} evaluations made"),
        (paid == len(now), f"{paid:g} evaluations paid, {len(now)} made"),
        (numbers == list(range(1, len(numbers) + 1)), f"numbers of candidates: {numbers}"),
        ((out / "best.py").exists(), "no best.py"),
    )
    with contextlib.suppress(FileNotFoundError):
        result = json.loads((out / "result.json").read_text())
        same = result == json.loads(done.stdout or "null")
        outcome.problems += complaints(
            (result["best"] is not None, "result.json has no best"),
            (same, "result.json is not what was printed"),
            (sum(result["counts"].values()) == len(now), f"counts: {result['counts']}"),
        )
        return
    outcome.problems.append("no result.json")


# Everything.


def on_site(folder: Path, options: argparse.Namespace, report: Callable[[Outcome], None]) -> None:
    """The variants that need `manage.py up`, one after the other on one installation."""
    site = Site(folder)
    try:
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "foundry_web.settings"
        django.setup()
        cookie = site.sign_in()

        def killing(run: int, name: str, find: Callable[[], dict[str, Any]]) -> Killing:
            rng = random.Random(f"{options.seed} {name}")
            return Killing(run, rng, options.kills, find, waits_for_work=name != "web")

        def programs(name: str) -> Callable[[], dict[str, list[psutil.Process]]]:
            find = site.web if name == "web" else site.runner
            return lambda: {name: [process]} if (process := find()) else {}

        def warm() -> dict[str, list[psutil.Process]]:
            runner = site.runner()
            found = zygotes(runner) if runner else []
            outer = [p for p in runner.children() if p.name() == "bwrap"] if runner else []
            if not (found and outer):
                return {}
            return {"all zygotes": found, "one zygote": found[-1:], BUBBLEWRAP: outer}

        if "runner" in options.variants:
            outcome = Outcome("runner and web", options.evaluations)
            play(
                site,
                cookie,
                outcome,
                options.seed,
                lambda run: [killing(run, name, programs(name)) for name in ("runner", "web")],
                options.limit_s,
            )
            look_at_verdicts(newest_run(), outcome)
            report(outcome)
        if "zygotes" in options.variants:
            outcome = Outcome("zygotes", options.evaluations)
            play(
                site,
                cookie,
                outcome,
                options.seed + 1,
                lambda run: [killing(run, "zygotes", warm)],
                options.limit_s,
            )
            look_at_verdicts(newest_run(), outcome)
            report(outcome)
    finally:
        left = site.stop()
        if left:
            report(Outcome("the end", 0, problems=[f"left running: {one}" for one in left]))


def write(path: Path, seed: int, outcomes: Iterable[Outcome]) -> None:
    document = {
        "seed": seed,
        "pauses_s": PAUSE_S,
        "task": TASK.stem,
        "cores": os.cpu_count(),
        "variants": [asdict(outcome) for outcome in outcomes],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def newest_run() -> int:
    from evolution_app.models import Run

    return int(Run.objects.latest("id").pk)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    choices = ("runner", "zygotes", "evolve")
    parser.add_argument("--variants", nargs="+", choices=choices, default=choices)
    parser.add_argument("--kills", type=int, default=10, help="of each kind of process")
    parser.add_argument("--evaluations", type=int, default=10, help="budget of a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=600.0, help="for one run")
    parser.add_argument("--out", type=Path, help="the results as JSON")
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    options = parser.parse_args()
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(outcome.row(), flush=True)
        if options.out:
            write(options.out, options.seed, outcomes)

    print(f"seed {options.seed}, pauses of {PAUSE_S[0]} to {PAUSE_S[1]} s\n{HEAD}\n{'|---' * 9}|")
    with tempfile.TemporaryDirectory(prefix="kill-mid-run-") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if {"runner", "zygotes"} & set(options.variants):
            on_site(folder, options, report)
        if "evolve" in options.variants:
            outcome = Outcome("evolve --out", options.evaluations)
            rng = random.Random(f"{options.seed} evolve")
            play_evolve(folder, outcome, rng, options.kills, options.seed)
            report(outcome)
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
