"""What to run first on a new GPU host; takes under a minute.

The sandbox's self-test, device memory lent by file descriptor between two isolated children forked from a warm zygote, and what
such a child sees. Run: python benchmarks/first_on_gpu.py
"""

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from gpu_runner.evaluation.children import Limits, Nursery, how_it_ended
from gpu_runner.evaluation.devices import find_device
from gpu_runner.evaluation.errors import ChildCrashed
from gpu_runner.evaluation.sandbox import Sandbox
from gpu_runner.evaluation.selftest import self_test


def main() -> int:
    sandbox = Sandbox("bwrap", extra_code=(HERE / "first_children.py", HERE / "first_kernel.py"))
    started = time.perf_counter()
    escapes = self_test(sandbox)
    print(
        f"self-test         {time.perf_counter() - started:6.2f} s   escapes: {escapes or 'none'}"
    )
    device = find_device("cuda", sandbox="bwrap")
    print(f"device            {device.name}, nodes {' '.join(device.nodes)}")
    nursery = Nursery("cuda", sandbox, devices=device.nodes)
    started = time.perf_counter()
    nursery.warm()
    print(f"zygote            {time.perf_counter() - started:6.2f} s")
    started = time.perf_counter()
    judge = nursery.fork("first_children:lend", limits=Limits(address_bytes=None))
    player = nursery.fork("first_children:borrow", limits=Limits(address_bytes=None))
    print(f"two forks         {time.perf_counter() - started:6.3f} s")
    with judge, player:
        try:
            lent, fds = judge.channel.receive(60)
            player.channel.send(lent, fds)
            report, _ = player.channel.receive(60)
            judge.channel.send({"ran": True})
            player.channel.send({"do": "write to the input"})
            print(
                f"player            CUDA {report['cuda_s']:.2f} s, adopt 2 GiB {report['adopt_s']:.4f} s, compile and run "
                f"{report['kernel_s']:.2f} s; sees {report['seen']}"
            )
            print(f"write to an input {player.channel.receive(60)[0]['writing']}")
            judge.channel.send({"written": True})
            verdict, _ = judge.channel.receive(60)
        except ChildCrashed:
            print("judge ended:", how_it_ended(judge), "\nplayer ended:", how_it_ended(player))
            return 1
    print(f"judge             output right: {verdict['right']}, input intact: {verdict['intact']}")
    nursery.close()
    return 0 if not escapes and verdict == {"right": True, "intact": True} else 1


if __name__ == "__main__":
    sys.exit(main())
