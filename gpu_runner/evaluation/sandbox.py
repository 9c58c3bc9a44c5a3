"""The bubblewrap recipe in which zygotes live, and what a child may see of the host.

Bound read only: the system's programs and libraries, the Python environment, and this package.
Everything else of the host (its /etc, home folders, network, processes, other devices) does not
exist inside. The zygote keeps the capabilities of its own user namespace to isolate each child
once more; a child keeps none (see `child.zygote`).
"""

import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import gpu_runner
from gpu_runner.evaluation.errors import SandboxMissing

Mode = Literal["bwrap", "none"]

CODE: Final = "/foundry"
"""Where this package, and whatever else children import of ours, is bound inside."""

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives")
_LAUNCHER_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH")
_CPU_TOPOLOGY: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")


@dataclass(frozen=True)
class Sandbox:
    """How zygotes are started.

    Args:
        mode: "none" forks the same way without any isolation; results must say so.
        extra_code: files or folders that children can import beside this package, by their name.
    """

    mode: Mode = "bwrap"
    extra_code: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise `SandboxMissing` where bubblewrap is wanted but not installed."""
        if self.mode == "bwrap" and shutil.which("bwrap") is None:
            raise SandboxMissing(
                "bubblewrap (bwrap) is not installed, so submitted code cannot be isolated. Install"
                " it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap),"
                " or accept the risk with --sandbox=none."
            )

    def command(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        devices: Sequence[str] = (),
        info_fd: int | None = None,
    ) -> list[str]:
        """The command line that runs `python ARGUMENTS` in here, with only these device nodes.

        bubblewrap writes the host's id of the first process inside to `info_fd`.
        """
        python = [sys.executable, *arguments]
        if self.mode == "none":
            return python
        self.check()
        binds = (option for path in _readable() for option in ("--ro-bind", path, path))
        info = () if info_fd is None else ("--info-fd", str(info_fd))
        return [
            *("bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0"),
            *("--cap-drop", "ALL", "--cap-add", "ALL", "--new-session", "--clearenv"),
            *(f for item in environment.items() for f in ("--setenv", *item)),
            *("--tmpfs", "/tmp"),  # first: what is bound may lie below it
            *binds,
            *(f for path in _SYSTEM_FILES for f in ("--ro-bind-try", path, path)),
            *(f for path in self._code() for f in ("--ro-bind", str(path), f"{CODE}/{path.name}")),
            *("--dev", "/dev", "--proc", "/proc"),
            *(f for path in _sys_folders(devices) for f in ("--ro-bind-try", path, path)),
            *(f for node in devices for f in ("--dev-bind", node, node)),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *info,
            "--",
            *python,
        ]

    def launcher_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What `command` itself is started with: where bubblewrap and its libraries lie, no more.

        bubblewrap clears it for what runs inside.
        """
        if self.mode == "none":
            return dict(environment)
        return {name: os.environ[name] for name in _LAUNCHER_VARIABLES if name in os.environ}

    def visible(self) -> list[str]:
        """Everything of the host that children can read, by the names it has inside."""
        code = [f"{CODE}/{path.name}" for path in self._code()]
        return [*_readable(), *_SYSTEM_FILES, *code]

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """All variables of a child: a short fixed list and `settings`; nothing of the host's."""
        return {
            "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "USER": "foundry",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            "PYTHONPATH": os.pathsep.join(self._import_path()),
            "PYTHONDONTWRITEBYTECODE": "1",
            **settings,
        }

    def _code(self) -> tuple[Path, ...]:
        return (_package(), *self.extra_code)

    def _import_path(self) -> list[str]:
        if self.mode == "bwrap":
            return [CODE, *_extra_site_folders()]
        return [*dict.fromkeys(str(path.parent) for path in self._code())]


def _package() -> Path:
    return Path(gpu_runner.__file__).resolve().parent


def _readable() -> list[str]:
    """Folders bound under their own names, none inside another."""
    environment = [sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()]
    executable = str(Path(sys.executable).resolve().parent.parent)
    wanted = [*_SYSTEM, *environment, executable, *_extra_site_folders()]
    found = [path for path in dict.fromkeys(wanted) if os.path.isdir(path) and path != "/"]
    return [path for path in found if not any(_is_below(path, other) for other in found)]


def _extra_site_folders() -> list[str]:
    """Folders of installed packages outside the prefixes, such as a user's own site-packages."""
    folders = {
        str(Path(s.origin).parents[1])
        for s in map(find_spec, ("torch", "triton", "pydantic", "libcst"))
        if s and s.origin
    }
    outside = [site.getusersitepackages(), *sorted(folders)]
    prefixes = (sys.prefix, sys.base_prefix, "/usr")
    return [
        path
        for path in dict.fromkeys(outside)
        if path in sys.path and not any(_is_below(path, prefix) for prefix in prefixes)
    ]


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def _sys_folders(devices: Sequence[str]) -> Sequence[str]:
    return ("/sys",) if devices else _CPU_TOPOLOGY
