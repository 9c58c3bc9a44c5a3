"""One `work` process drives many runs: how busy it keeps the slots, and what it costs.

    python benchmarks/driver_load.py --runs 100 --islands 5 --slots 8 --answer-s 20 --evaluation-s 0.5

An endpoint in a process of its own (real HTTP, OpenAI's wire format) answers each request after `--answer-s` with another
kernel; the pool's slots answer after `--evaluation-s`, through all gates. Everything between is the real thing: worker, driver,
search, prompts, client, ledger in the database, events. Counted from the first moment that every slot is busy.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(1024)]
"""
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
        return y


MARK = {mark}
"""


def main() -> None:
    options = parsed()
    if options.part == "endpoint":
        asyncio.run(answer(options.answer_s))
    elif options.part == "work":
        work(options.slots, options.evaluation_s, options.runs)
    else:
        measure(options)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--islands", type=int, default=5)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--answer-s", type=float, default=20.0)
    parser.add_argument("--evaluation-s", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the count")
    parser.add_argument(
        "--database", help="a PostgreSQL server, postgres://user@host/; else SQLite"
    )
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--part", choices=("endpoint", "work"), help=argparse.SUPPRESS)
    return parser.parse_args()


# The endpoint.


async def answer(pause_s: float) -> None:
    marks = itertools.count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
                await asyncio.sleep(pause_s)
                body = json.dumps(completion(next(marks))).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def completion(mark: int) -> dict[str, Any]:
    text = f"MOVE: number {mark}\n```python\n{KERNEL.format(mark=mark)}```\n"
    message = {"role": "assistant", "content": text}
    return {
        "id": str(mark),
        "object": "chat.completion",
        "created": 0,
        "model": "load",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1200, "completion_tokens": 300, "total_tokens": 1500},
    }


# The worker.


class SleepingPool:
    """Slots that take their time and find every candidate correct, some faster than others."""

    device = SimpleNamespace(name="asleep", kind="cpu", fingerprint={})

    def __init__(self, slots: int, evaluation_s: float) -> None:
        self.slots = slots
        self._evaluation_s = evaluation_s
        self._lock = threading.Lock()
        self._count = 0
        self._busy_s = 0.0
        self._running: dict[int, float] = {}

    def inspect(self, task: Any) -> Any:
        from gpu_runner.core.task_report import TaskReport, TensorSpec

        spec = TensorSpec(shape=(1024,), dtype="float32")
        return TaskReport(inputs=(spec,), outputs=(spec,), probe=None)

    def evaluate(self, task: Any, source: str, *, on_stage: Callable[[Any], None]) -> Any:
        from gpu_runner.core.verdicts import Stage

        with self._lock:
            self._count += 1
            number = self._count
            self._running[number] = time.monotonic()
        for stage in Stage:
            on_stage(stage)
            time.sleep(self._evaluation_s / len(Stage))
        with self._lock:
            self._busy_s += time.monotonic() - self._running.pop(number)
        return correct(1.0 + random.Random(number).random())

    def busy_s(self) -> tuple[float, int]:
        """Slot seconds so far, those in progress included, and evaluations begun."""
        with self._lock:
            now = time.monotonic()
            return self._busy_s + sum(now - began for began in self._running.values()), self._count

    def call(self, entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        raise NotImplementedError("models alone make the drafts here")

    def close(self) -> None:
        pass


def correct(ratio: float) -> Any:
    from gpu_runner.core.evaluation import Evaluation, Ratio, Speedup, Timing
    from gpu_runner.core.verdicts import Fidelity, Precision, Track, Verdict, VerifiedAt

    return Evaluation(
        verdict=Verdict.CORRECT,
        fidelity=Fidelity.MODELLED,
        verified_at=VerifiedAt.PROBE,
        device="asleep",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        candidate=Timing(device_us=10 / ratio, n=0),
        speedup=Speedup(eager=Ratio(ratio=ratio)),
    )


def work(slots: int, evaluation_s: float, runs: int) -> None:
    import django

    django.setup()
    from foundry_web import logs

    logs.configure()
    from gpu_runner.proposals.models import load_models
    from gpu_runner.settings import WorkerSettings
    from gpu_runner.sources import Sources
    from gpu_runner.worker import Worker

    models = load_models()
    pool = SleepingPool(slots, evaluation_s)

    def report() -> None:
        while True:
            busy_s, count = pool.busy_s()
            print(
                json.dumps({"at": time.monotonic(), "busy_s": busy_s, "begun": count}), flush=True
            )
            time.sleep(1)

    threading.Thread(target=report, daemon=True).start()
    settings = WorkerSettings(slots=slots, runs=runs, idle_s=0.01)
    worker = Worker(
        settings,
        lambda: pool,
        lambda driver, claim: driver.add(claim, models=models, sources=Sources({}, {})),
    )
    worker.run()


# The count.


def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="driver-load-") as folder:
        environment = prepared(Path(folder), options)
        command = [sys.executable, __file__, *sys.argv[1:], "--part"]
        pipe = subprocess.PIPE
        with subprocess.Popen([*command, "endpoint"], stdout=pipe, text=True) as endpoint:
            assert endpoint.stdout is not None
            profile(Path(folder), int(endpoint.stdout.readline()))
            with subprocess.Popen(
                [*command, "work"], stdout=pipe, text=True, env=environment
            ) as worker:
                try:
                    figures = counted(worker, options)
                finally:
                    worker.kill()
                    endpoint.kill()
        if options.database:
            drop(options.database, environment["DATABASE_URL"])
    figures["database"] = "PostgreSQL" if options.database else "SQLite"
    for name in ("runs", "islands", "slots", "answer_s", "evaluation_s"):
        figures[name] = getattr(options, name)
    print(json.dumps(figures, indent=2))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=2) + "\n")


def prepared(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """A database with the runs in it, and the environment of a worker that finds them."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "foundry_web.settings"
    os.environ["FOUNDRY_VAR"] = str(folder)
    os.environ["FOUNDRY_MODELS"] = str(folder / "models.toml")
    os.environ["PYTHONPATH"] = str(ROOT)
    sys.path.insert(0, str(ROOT))
    if options.database:
        name = f"driver_load_{uuid.uuid4().hex[:8]}"
        server = options.database.rstrip("/")
        in_server(server, f"create database {name}")
        os.environ["DATABASE_URL"] = f"{server}/{name}"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from evolution_app.models import Run, User
    from evolution_app.services import submit_task
    from gpu_runner.core.task import Budget, RunSpec

    owner = User.objects.create_user("load", role="submitter")
    budget = Budget(evaluations=100_000)
    for number in range(options.runs):
        task = submit_task(owner=owner, name=f"double {number}", source=TASK)
        spec = RunSpec(
            task=task.spec(), islands=options.islands, model="load", budget=budget, seed=number,
            use_initialisers=False,
        )  # fmt: skip
        told = spec.model_dump(mode="json", exclude={"task"})
        Run.objects.create(task=task, started_by=owner, options=told)
    return dict(os.environ)


def drop(server: str, database: str) -> None:
    from django.db import connections

    connections.close_all()
    in_server(server.rstrip("/"), f"drop database {database.rpartition('/')[2]} with (force)")


def in_server(server: str, command: str) -> None:
    subprocess.run(["psql", f"{server}/postgres", "-qc", command], check=True)


def profile(folder: Path, port: int) -> None:
    (folder / "models.toml").write_text(
        f'[profiles.load]\nbase_url = "http://127.0.0.1:{port}/v1"\nmodel = "load"\n'
        "requests_at_once = 1000\nusd_per_million_in = 0.5\nusd_per_million_out = 2\n"
    )


def counted(worker: "subprocess.Popen[str]", options: argparse.Namespace) -> dict[str, Any]:
    process = psutil.Process(worker.pid)
    before = lined(worker)
    # Until as much is begun as the slots do in ten seconds: all runs are claimed and the first answers are there.
    enough = 10 * options.slots / options.evaluation_s
    while before["begun"] < enough:
        before = lined(worker)
    cpu, peak = used(process), 0
    now = before
    while now["at"] - before["at"] < options.seconds:
        now = lined(worker)
        peak = max(peak, process.memory_info().rss)
    wall_s = now["at"] - before["at"]
    return {
        "slots_busy": (now["busy_s"] - before["busy_s"]) / (options.slots * wall_s),
        "cores": (used(process) - cpu) / wall_s,
        "memory_mb": peak / 1e6,
        "evaluations_per_s": (now["begun"] - before["begun"]) / wall_s,
        "threads": process.num_threads(),
        "wall_s": wall_s,
    }


def lined(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    while line and not line.startswith("{"):
        line = worker.stdout.readline()
    if not line:
        raise SystemExit("the worker ended")
    told: dict[str, Any] = json.loads(line)
    return told


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
