"""Shared memory that no device has, told before LLVM is asked: for blocks that are far too large it would take minutes."""

import tempfile
from typing import Any

from triton._C.libtriton import ir, nvidia, passes
from triton.backends.nvidia import compiler
from triton.runtime.errors import OutOfResources

from gpu_runner.core.targets import Target

_make_llir = compiler.CUDABackend.make_llir


def install(target: Target) -> None:
    """Once per process that compiles for the target."""

    def checked(self: Any, src: Any, metadata: Any, options: Any, capability: int) -> Any:
        needed = _shared_bytes(self, src, options, capability)
        if needed > target.shared_per_block:
            raise OutOfResources(needed, target.shared_per_block, "shared memory")
        return _make_llir(self, src, metadata, options, capability)

    compiler.CUDABackend.make_llir = checked


def _shared_bytes(backend: Any, module: Any, options: Any, capability: int) -> int:
    """What Triton's own pass allocates, on a copy of the module: the first steps of `make_llir`."""
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(str(module))
        file.flush()
        copy = ir.parse_mlir_module(file.name, module.context)
    copy.context = module.context
    steps = ir.pass_manager(copy.context)
    passes.ttgpuir.add_combine_tensor_select_and_if(steps)
    passes.ttgpuir.add_allocate_warp_groups(steps)
    passes.convert.add_scf_to_cf(steps)
    ptx = compiler.get_ptx_version_from_options(options, backend.target.arch)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(steps, capability, ptx)
    steps.run(copy, "shared memory")
    return int(copy.get_int_attr("ttg.shared") or 0)
