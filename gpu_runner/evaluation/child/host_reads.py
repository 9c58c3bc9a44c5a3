"""Ways by which a tensor's values reach Python that neither dispatch nor torch's functions show.

Each is wrapped once, before the guard's snapshot, and tells the recorder of the call that is being watched.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from gpu_runner.evaluation.child.dispatch import unwatched
from gpu_runner.evaluation.child.launches import LaunchTap

_STORAGE_READERS = ("__getitem__", "__iter__", "tolist", "_write_file", "copy_", "clone", "cpu")
_CAPSULES = ("_to_dlpack", "_to_dlpack_versioned")


def install(tap: LaunchTap) -> None:
    """Wrap them for this process; the tap knows which call is watched."""
    for name in _CAPSULES:
        real = getattr(torch._C, name, None)
        if real is not None:
            replace_everywhere(real, _telling_of_tensor(real, tap))
    for name in _STORAGE_READERS:
        real = getattr(torch.UntypedStorage, name)
        setattr(torch.UntypedStorage, name, _telling_of_storage(real, name, tap))
    torch.save = _telling_of_save(torch.save, tap)


def replace_everywhere(real: Any, wrapped: Any) -> None:
    """In torch's modules, those included that imported it by name."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "torch" and module is not None:
            for key, value in list(vars(module).items()):
                if value is real:
                    setattr(module, key, wrapped)


def _telling_of_tensor(real: Callable[..., Any], tap: LaunchTap) -> Callable[..., Any]:
    def told(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(tap, tensor, "__dlpack__")
        return real(tensor, *args, **kwargs)

    return told


def _telling_of_storage(real: Callable[..., Any], name: str, tap: LaunchTap) -> Callable[..., Any]:
    def told(storage: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = tap.recorder
        if recorder is None:
            return real(storage, *args, **kwargs)
        nbytes = 4 if name == "__getitem__" else storage.nbytes()
        recorder.storage_read(storage._cdata, "untyped_storage", nbytes // 4, nbytes)
        tap.recorder = None  # a list is made item by item, and is told of as a whole
        try:
            with unwatched():
                return real(storage, *args, **kwargs)
        finally:
            tap.recorder = recorder

    return told


def _telling_of_save(real: Callable[..., Any], tap: LaunchTap) -> Callable[..., Any]:
    def told(value: Any, *args: Any, **kwargs: Any) -> Any:
        for tensor in _tensors_in(value):
            _tell(tap, tensor, "save")
        return real(value, *args, **kwargs)

    return told


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for item in value for t in _tensors_in(item)]
    return []


def _tell(tap: LaunchTap, tensor: Any, name: str) -> None:
    if tap.recorder is not None and isinstance(tensor, torch.Tensor):
        tap.recorder.read_by_host(tensor, name)
