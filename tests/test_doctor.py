"""The doctor on this machine, and what it advises on worse ones."""

import shutil
from collections import namedtuple

import pytest

from gpu_runner import doctor
from gpu_runner.doctor import report


@pytest.mark.sandbox
def test_this_machine_is_fit_and_every_way_of_running_a_kernel_was_tried() -> None:
    checks = {check.name: check for check in report()}
    assert [check for check in checks.values() if not check.ok] == []
    assert checks["triton interpreter"].detail == "1000 sums are right"
    assert checks["triton compiler for sm_90"].detail.endswith("bytes of machine code")
    assert set(checks) >= {"python", "torch", "triton", "libcst", "bubblewrap", "sandbox", "gpu"}


def test_a_missing_bubblewrap_comes_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    checks = {check.name: check for check in report()}
    assert not checks["bubblewrap"].ok
    assert "apt-get install bubblewrap" in checks["bubblewrap"].advice
    assert not checks["sandbox"].ok
    assert "triton interpreter" not in checks


@pytest.mark.parametrize(
    ("found", "ok"), [("2.13.0+cpu", True), ("2.11.0", True), ("2.10.1", False), (None, False)]
)
def test_versions_are_compared_by_number(
    found: str | None, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "package_version", lambda name: found)
    check = doctor._package("torch")
    assert check.ok is ok
    assert bool(check.advice) is not ok


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 5 << 20))
    check = doctor._disk()
    assert not check.ok
    assert "free at least 2 GB" in check.advice
