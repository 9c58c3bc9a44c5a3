"""Finding devices and describing them, with made-up GPUs where there are none."""

import multiprocessing
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from gpu_runner.evaluation import devices
from gpu_runner.evaluation.devices import DeviceLock, Gpu, find_device, gpus_in
from gpu_runner.evaluation.errors import DeviceLost
from gpu_runner.evaluation.settings import EvaluationSettings

TWO = (Gpu(0, "NVIDIA H200", "GPU-aa"), Gpu(3, "NVIDIA L4", "GPU-bb"))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "all_gpus", lambda: TWO)
    monkeypatch.setattr(devices, "package_version", lambda name: "2.13.0")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "all_gpus", lambda: ())


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("wanted", "name", "node"),
    [
        ("auto", "NVIDIA H200", "/dev/nvidia0"),
        ("cuda", "NVIDIA H200", "/dev/nvidia0"),
        ("cuda:1", "NVIDIA L4", "/dev/nvidia3"),
    ],
)
def test_a_gpu_is_found_with_its_own_node_only(wanted: str, name: str, node: str) -> None:
    device = find_device(wanted, sandbox="bwrap")
    assert (device.kind, device.name, device.inside) == ("cuda", name, "cuda:0")
    assert [n for n in device.nodes if n.startswith("/dev/nvidia") and n[-1].isdigit()] == [node]


@pytest.mark.usefixtures("two_gpus")
def test_the_cpu_can_be_asked_for_beside_a_gpu() -> None:
    assert find_device("cpu", sandbox="bwrap").kind == "cpu"


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    device = find_device("auto", sandbox="none")
    assert (device.kind, device.name, device.nodes) == ("cpu", "cpu", ())
    assert device.fingerprint["sandbox"] == "none"
    assert device.fingerprint["gpu"] is None


@pytest.mark.usefixtures("no_gpu")
def test_an_unknown_device_names_what_exists() -> None:
    with pytest.raises(DeviceLost, match=r"no device cuda; this machine has: cpu$"):
        find_device("cuda", sandbox="bwrap")


@pytest.mark.usefixtures("two_gpus")
def test_a_number_too_large_names_what_exists() -> None:
    told = r"no device cuda:2; .* cpu, cuda:0 \(NVIDIA H200\), cuda:1 \(NVIDIA L4\)"
    with pytest.raises(DeviceLost, match=told):
        find_device("cuda:2", sandbox="bwrap")


@pytest.mark.usefixtures("two_gpus")
def test_a_torch_without_cuda_uses_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "package_version", lambda name: "2.13.0+cpu")
    assert find_device("auto", sandbox="bwrap").kind == "cpu"
    with pytest.raises(DeviceLost, match="built without CUDA"):
        find_device("cuda", sandbox="bwrap")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["NVIDIA L4"]),
        ("1,0", ["NVIDIA L4", "NVIDIA H200"]),
        ("GPU-b", ["NVIDIA L4"]),
        ("", []),
        ("0,7,1", ["NVIDIA H200"]),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(
    visible: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in devices.visible_gpus()] == names


def test_the_drivers_own_words_are_read() -> None:
    xml = b"""<?xml version="1.0"?><nvidia_smi_log><driver_version>580.1</driver_version>
    <gpu id="0"><product_name>NVIDIA H200</product_name><uuid>GPU-aa</uuid>
    <minor_number>4</minor_number><fb_memory_usage><total>143771 MiB</total></fb_memory_usage>
    </gpu></nvidia_smi_log>"""
    assert gpus_in(xml) == [Gpu(4, "NVIDIA H200", "GPU-aa", "580.1", "143771 MiB")]


def test_the_drivers_text_is_read_where_its_tool_is_missing() -> None:
    text = "Model: \t\t NVIDIA H200\nIRQ:   17\nGPU UUID: \t GPU-aa\nDevice Minor: \t 2\n"
    assert devices.gpu_in(text) == Gpu(2, "NVIDIA H200", "GPU-aa")


def test_nothing_is_locked_where_nothing_is_measured() -> None:
    lock = DeviceLock(None)
    lock.to_shared()
    lock.to_exclusive()
    lock.release()
    lock.close()


def test_a_fingerprint_has_versions_without_importing() -> None:
    found = devices.fingerprint(TWO[0], "bwrap")
    assert None not in (found["torch"], found["triton"], found["python"])
    assert (found["gpu"], found["evaluator"]) == ("NVIDIA H200", devices.EVALUATOR_VERSION)


@pytest.fixture
def lock_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    return "cuda-GPU-aa"


def test_checking_is_shared_and_timing_exclusive(lock_name: str) -> None:
    checker, timer = DeviceLock(lock_name), DeviceLock(lock_name)
    granted = threading.Event()

    def time_it() -> None:
        timer.to_exclusive()
        granted.set()

    checker.to_shared()
    thread = threading.Thread(target=time_it)
    thread.start()
    assert not granted.wait(0.2)
    checker.release()
    assert granted.wait(5)
    thread.join()
    checker.close()
    timer.close()


def test_only_the_time_that_a_device_is_held_to_time_is_counted(lock_name: str) -> None:
    lock = DeviceLock(lock_name)
    lock.to_shared()
    time.sleep(0.1)
    lock.release()
    assert lock.held_s == 0
    for end in (lock.release, lock.to_shared):
        lock.to_exclusive()
        time.sleep(0.1)
        end()
    assert 0.2 <= lock.held_s < 1
    lock.close()


def test_two_that_both_want_to_time_do_not_block_each_other(lock_name: str) -> None:
    locks = [DeviceLock(lock_name) for _ in range(2)]
    both_check = threading.Barrier(2)
    turns: list[str] = []

    def work(lock: DeviceLock) -> None:
        lock.to_shared()
        both_check.wait(5)
        lock.to_exclusive()
        turns.append("in")
        time.sleep(0.05)
        turns.append("out")
        lock.release()

    threads = [threading.Thread(target=work, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert turns == ["in", "out"] * 2
    for lock in locks:
        lock.close()


def _hold(name: str, folder: str, held: "multiprocessing.synchronize.Event") -> None:
    devices.tempfile.tempdir = folder
    lock = DeviceLock(name)
    lock.to_exclusive()
    held.set()
    time.sleep(60)


def test_a_lock_ends_with_the_process_that_holds_it(lock_name: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold, args=(lock_name, str(tmp_path), held))
    holder.start()
    assert held.wait(30)
    holder.kill()
    holder.join()
    lock = DeviceLock(lock_name)
    lock.to_exclusive()
    lock.close()


def test_a_stream_of_work_does_not_keep_a_timing_waiting(lock_name: str) -> None:
    timer, workers = DeviceLock(lock_name), [DeviceLock(lock_name) for _ in range(3)]
    is_over = threading.Event()

    def work(lock: DeviceLock) -> None:
        while not is_over.is_set():
            lock.to_shared()
            time.sleep(0.02)

    threads = [threading.Thread(target=work, args=(lock,), daemon=True) for lock in workers]
    for thread in threads:
        thread.start()
    granted = threading.Event()
    waiting = threading.Thread(target=lambda: (timer.to_exclusive(), granted.set()), daemon=True)
    waiting.start()
    assert granted.wait(2)
    timer.release()
    is_over.set()
    for lock in workers:
        lock.release()


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "tpu"},
        {"device": "cuda:x"},
        {"slots": 0},
        {"sandbox": "chroot"},
        {"evaluation_s": 0},
        {"unheard": 1},
    ],
)
def test_settings_are_refused_when_wrong(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EvaluationSettings(**wrong)  # type: ignore[arg-type]
