"""The interpreter's builder, instrumented: executes a program's operations on arrays and sees every access."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as base

from gpu_runner.evaluation.child import libdevice, sessions
from gpu_runner.evaluation.child.counting import TensorTraffic, sectors
from gpu_runner.evaluation.child.formats import (
    EIGHT_BITS,
    bfloat16_to_float32,
    dot_operand,
    float32_to_bfloat16,
    is_bfloat16,
    numeric_path,
    widened,
)
from gpu_runner.evaluation.child.ours_alone import OursAlone
from gpu_runner.evaluation.child.sessions import Launch, OutOfTime, Program, Unevaluable
from gpu_runner.evaluation.child.stand_in import candidate_line
from gpu_runner.evaluation.child.touching import Site
from gpu_runner.evaluation.child.traced_memory import (
    NOBODY,
    SEVERAL,
    Memory,
    Pointer,
    unseen_by_torch,
)

Handle = base.TensorHandle
MOST_SPINS = 2000

_PRECISIONS = {"TF32": "tf32", "TF32x3": "tf32x3", "IEEE": "ieee"}
_SPECIAL = frozenset(
    {
        np.divide,
        np.fmod,
        np.exp,
        np.exp2,
        np.log,
        np.log2,
        np.sin,
        np.cos,
        np.sqrt,
        np.power,
    }
)
_erf = libdevice.by_torch(torch.special.erf)

_APPROXIMATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}
_ATOMICS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ADD": np.add,
    "FADD": np.add,
    "MAX": np.maximum,
    "UMAX": np.maximum,
    "MIN": np.minimum,
    "UMIN": np.minimum,
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "XCHG": lambda old, new: new,
}
_ONE_INSTRUCTION = re.compile(r"^\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0\s*,\s*\$1\s*;?\s*$")


class Builder(base.InterpreterBuilder):  # type: ignore[misc]
    """Executes the operations of a program on arrays; knows which launch and program it is in."""

    memory: Any = OursAlone()
    session: Any = OursAlone()
    counts: Any = OursAlone()
    launch: Any = OursAlone()
    weight: float
    number: int
    is_synchronised: bool
    counts_sectors: bool
    deadline: float
    _spinning: tuple[int, int, int]
    _stretch: tuple[int, int]  # of the access at hand

    def enter_launch(self, launch: Launch, memory: Memory, session: sessions.Session) -> None:
        self.launch, self.memory, self.session = launch, memory, session
        self.counts = launch.counts
        self.weight = 1.0
        self.counts_sectors = False
        self.deadline = float("inf")

    def enter_program(self, program: Program, number: int, counts_sectors: bool) -> None:
        self.grid_idx = program
        self.number = number
        self.is_synchronised = False
        self.counts_sectors = counts_sectors
        self._spinning = (0, 0, 0)
        self._stretches: dict[str, tuple[int, int]] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            raise Unevaluable(f"the interpreter does not support {name.removeprefix('create_')}")
        raise AttributeError(name)

    def get_bf16(self, value: float) -> Any:
        return Handle(float32_to_bfloat16(np.array([value], np.float32)), tl.bfloat16)

    # memory -------------------------------------------------------------------------------------------------------

    def create_load(self, ptr: Any, cache: Any, eviction: Any, is_volatile: Any) -> Any:
        mask = Handle(np.ones(ptr.data.shape, bool), tl.int1)
        return self.create_masked_load(ptr, mask, None, cache, eviction, is_volatile)

    def create_store(self, ptr: Any, val: Any, cache: Any, eviction: Any) -> Any:
        mask = Handle(np.ones(ptr.data.shape, bool), tl.int1)
        return self.create_masked_store(ptr, val, mask, cache, eviction)

    def create_masked_load(
        self,
        ptrs: Any,
        mask: Any,
        other: Any,
        cache_modifier: Any,
        eviction_policy: Any,
        is_volatile: Any,
    ) -> Any:
        kind = ptrs.get_element_ty()
        array = array_type(kind)
        allowed, addresses, pointer = self._checked(ptrs, mask, array.itemsize, "load")
        if pointer is not None and addresses.size:
            self._count_traffic(pointer, addresses, array.itemsize, loads=True)
            self._note_read(pointer, addresses, array)
        fallback = np.zeros(ptrs.data.shape, array) if other is None else other.data
        if fallback.dtype != array:
            fallback = fallback.astype(array)
        out = base._interpreter.load(ptrs.data, allowed, fallback, array)
        if addresses.size == 1:
            self._note_spin(int(addresses[0]), out)
        else:
            self._spinning = (0, 0, 0)
        return Handle(out, kind, {"contiguous": _contiguous_axis(ptrs.data, array.itemsize)})

    def create_masked_store(
        self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any
    ) -> Any:
        array = array_type(ptrs.get_element_ty())
        allowed, addresses, pointer = self._checked(ptrs, mask, array.itemsize, "store")
        data = value.data if value.data.dtype == array else value.data.astype(array)
        data = np.broadcast_to(data, ptrs.data.shape)
        if pointer is not None and addresses.size:
            self._count_traffic(pointer, addresses, array.itemsize, loads=False)
            if addresses.size < ptrs.data.size:
                self.session.touched.note_masked_store(pointer.region)
            self._note_write(pointer, addresses, data, allowed)
        self._spinning = (0, 0, 0)
        stored = base._interpreter.store(ptrs.data, np.ascontiguousarray(data), allowed)
        if pointer is not None:
            self._check_lanes(pointer, addresses, data, allowed)
        return stored

    def create_atomic_rmw(
        self, rmw: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        self._before_atomic(ptr, mask, val.data)
        try:
            if is_bfloat16(val):
                raise ValueError("numpy has no bfloat16")
            guarded = Handle(self._allowed, tl.int1)
            whole = np.ascontiguousarray(np.broadcast_to(val.data, ptr.data.shape))
            out = super().create_atomic_rmw(rmw, ptr, Handle(whole, val.dtype), guarded, sem, scope)
        except ValueError:  # a type that Triton's interpreter has no atomics for
            out = self._atomic_one_by_one(rmw, ptr, val)
        self._after_atomic(out.data)
        return out

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        self._before_atomic(ptr, Handle(np.ones(ptr.data.shape, bool), tl.int1), val.data)
        if not self._allowed.all():
            return Handle(np.zeros(ptr.data.shape, cmp.data.dtype), cmp.dtype.scalar)
        out = super().create_atomic_cas(ptr, cmp, val, sem, scope)
        self._after_atomic(out.data)
        return out

    def _before_atomic(self, ptr: Any, mask: Any, data: np.ndarray) -> None:
        itemsize = array_type(ptr.get_element_ty()).itemsize
        self._allowed, addresses, pointer = self._checked(ptr, mask, itemsize, "atomic")
        self._atomic_addresses = addresses
        was_synchronised, self.is_synchronised = self.is_synchronised, True
        if pointer is None or not addresses.size:
            return
        self.counts.atomics += addresses.size * self.weight
        self.counts.atomic_bytes += addresses.size * itemsize * self.weight
        if self.counts_sectors:
            self._note_site(pointer, "atomic")
        region = pointer.region
        if not self.session.tracks or not region.is_small_enough:
            return
        elements = region.elements(addresses)
        if region.is_written and not was_synchronised:
            wrote = region.marks[0][elements]
            foreign = (wrote != NOBODY) & (wrote != self.number)
            if foreign.any():
                self._report_race(pointer, addresses, foreign, wrote, "write-atomic")
        region.note_atomic(elements, self.number)
        if region.shadow is not None:
            unwritten = ~region.shadow.written[elements]
            if unwritten.any():
                self._report_unwritten(pointer, addresses, unwritten, "atomic", certain=True)
            region.shadow.written[elements] = True

    def _after_atomic(self, out: np.ndarray) -> None:
        if self._atomic_addresses.size == 1:
            self._note_spin(int(self._atomic_addresses[0]), out)

    def _atomic_one_by_one(self, rmw: Any, ptr: Any, val: Any) -> Any:
        operation = _ATOMICS.get(str(rmw).rpartition(".")[2].upper())
        if operation is None:
            raise Unevaluable(f"the interpreter does not support the atomic {rmw}")
        values = np.broadcast_to(widened(val), ptr.data.shape)
        array = val.data.dtype
        before = np.zeros(ptr.data.shape, array)
        one = np.ones(1, bool)
        for place in zip(*np.nonzero(self._allowed), strict=True):
            address = ptr.data[place].reshape(1)
            old = base._interpreter.load(address, one, np.zeros(1, array), array)
            before[place] = old[0]
            wide = bfloat16_to_float32(old) if is_bfloat16(val) else old
            new = np.asarray(operation(wide, values[place]))
            new = float32_to_bfloat16(new) if is_bfloat16(val) else new.astype(array)
            base._interpreter.store(address, np.broadcast_to(new, (1,)).copy(), one)
        return Handle(before, val.dtype.scalar)

    def _checked(
        self, ptrs: Any, mask: Any, itemsize: int, access: str
    ) -> tuple[np.ndarray, np.ndarray, Pointer | None]:
        """(mask of the accesses that stay inside, their addresses, the argument they belong to)."""
        wanted = mask.data if isinstance(mask, Handle) else mask
        if wanted.dtype != bool:
            wanted = wanted.astype(bool)
        if wanted.shape != ptrs.data.shape:
            wanted = np.broadcast_to(wanted, ptrs.data.shape)
        addresses = ptrs.data.reshape(-1) if wanted.all() else ptrs.data[wanted]
        if time.thread_time() > self.deadline:
            raise OutOfTime
        if not addresses.size:
            return wanted, addresses, None
        name = ptrs.attr.get("argument")
        pointer = self.memory.pointers.get(name) if name else None
        lo, hi = int(addresses.min()), int(addresses.max()) + itemsize
        if pointer is None:
            pointer = self.memory.find(lo)
        if pointer is not None and pointer.region.contains(lo, hi):
            self._stretch = lo, hi
            if name and self.session.tracks and (lo < pointer.address or hi > pointer.end):
                self._report_outside_view(pointer, addresses, access)
            return wanted, addresses, pointer
        return self._without_strays(ptrs, wanted, addresses, itemsize, access, pointer)

    def _without_strays(
        self,
        ptrs: Any,
        wanted: np.ndarray,
        addresses: np.ndarray,
        itemsize: int,
        access: str,
        pointer: Pointer | None,
    ) -> tuple[np.ndarray, np.ndarray, Pointer | None]:
        """Mask off what leaves its region, and report it."""
        if ptrs.attr.get("argument"):
            assert pointer is not None
            region = pointer.region
            inside = (addresses >= region.lo) & (addresses <= region.hi - itemsize)
        else:
            inside = np.zeros(addresses.shape, bool)
            for known in list(self.memory.pointers.values()):
                region = known.region
                inside |= (addresses >= region.lo) & (addresses <= region.hi - itemsize)
        if inside.all():
            return wanted, addresses, pointer
        stray = int(addresses[~inside][0])
        owner = pointer or self.memory.nearest(stray)
        self.session.report(
            int((~inside).sum()),
            kind="out_of_bounds",
            access=access,
            tensor=owner.name if owner else None,
            index=(stray - owner.address) // owner.itemsize if owner else None,
            extent=(owner.region.hi - owner.address) // owner.itemsize if owner else None,
            certain=True,
            **self._here(),
        )
        allowed = wanted.copy()
        allowed[wanted] = inside
        self._stretch = (owner.region.lo, owner.region.lo) if owner else (0, 0)
        return allowed, addresses[inside], pointer

    def _report_outside_view(self, pointer: Pointer, addresses: np.ndarray, access: str) -> None:
        """Inside the memory that a view lies in, which may be meant: parts of one tensor share a pointer."""
        outside = addresses[(addresses < pointer.address) | (addresses >= pointer.end)]
        if not outside.size:
            return
        self.session.report(
            int(outside.size),
            kind="outside_view",
            access=access,
            tensor=pointer.name,
            index=(int(outside[0]) - pointer.address) // pointer.itemsize,
            extent=(pointer.end - pointer.address) // pointer.itemsize,
            certain=False,
            **self._here(),
        )

    def _here(self) -> dict[str, Any]:
        return {
            "kernel": self.launch.kernel,
            "line": candidate_line(sys._getframe(1)),
            "program": list(self.grid_idx),
        }

    def _note_site(self, pointer: Pointer, access: str) -> int | None:
        line = candidate_line(sys._getframe(1))
        site = Site(access, self.launch.kernel, line, pointer.name)
        self.session.touched.note(pointer.region, site)
        return line

    def _count_traffic(
        self, pointer: Pointer, addresses: np.ndarray, itemsize: int, *, loads: bool
    ) -> None:
        wanted = addresses.size * itemsize
        moved = wanted * self.weight
        traffic = self.counts.tensors.get(pointer.name)
        if traffic is None:
            traffic = self.counts.tensors[pointer.name] = TensorTraffic()
        pointer.note_access(addresses, *self._stretch)
        if self.counts_sectors:
            touched = sectors(addresses) * 32
            self.counts.wanted_bytes += wanted
            self.counts.sector_bytes += touched
            traffic.wanted += wanted
            traffic.sectors += touched
            line = self._note_site(pointer, "load" if loads else "store")
            traffic.note_line(line, moved if loads else 0.0, wanted, touched)
        lo, hi = self._stretches.get(pointer.name, self._stretch)
        lo, hi = min(lo, self._stretch[0]), max(hi, self._stretch[1])
        self._stretches[pointer.name] = lo, hi
        traffic.footprint = max(traffic.footprint, hi - lo)
        if loads:
            self.counts.loads += self.weight
            self.counts.load_bytes += moved
            traffic.loaded += moved
        else:
            self.counts.store_bytes += moved
            traffic.stored += moved

    def _note_read(self, pointer: Pointer, addresses: np.ndarray, array: np.dtype) -> None:
        region = pointer.region
        if not self.session.tracks or not region.is_small_enough:
            return
        elements = region.elements(addresses)
        writer, reader = region.marks
        if region.is_written and not self.is_synchronised:
            by = writer[elements]
            foreign = (by != NOBODY) & (by != self.number)
            if foreign.any():
                self._report_race(pointer, addresses, foreign, by, "read-write", certain=False)
        if region.shadow is not None:
            unwritten = ~region.shadow.written[elements]
            if unwritten.any():
                self._report_unwritten(pointer, addresses, unwritten, "load", certain=False)
        if not self.is_synchronised:
            before = reader[elements]
            mine = (before == NOBODY) | (before == self.number)
            reader[elements] = np.where(mine, self.number, SEVERAL)
        else:
            region.has_unmarked_reads = True

    def _note_write(
        self, pointer: Pointer, addresses: np.ndarray, data: np.ndarray, allowed: np.ndarray
    ) -> None:
        region = pointer.region
        if not self.session.tracks or not region.is_small_enough:
            return
        elements = region.elements(addresses)
        writer, reader = region.marks
        if not self.is_synchronised:
            self._check_atomics(pointer, addresses, elements)
            wrote, read = writer[elements], reader[elements]
            foreign_write = (wrote != NOBODY) & (wrote != self.number)
            foreign_read = (read != NOBODY) & (read != self.number)
            if foreign_write.any() or foreign_read.any():
                new = data.reshape(-1) if allowed.all() else data[allowed]
                ones = np.ones(addresses.shape, bool)
                old = base._interpreter.load(addresses, ones, np.zeros_like(new), new.dtype)
                changes = old.view(f"u{old.itemsize}") != new.view(f"u{new.itemsize}")
                if (foreign_write & changes).any():
                    self._report_race(
                        pointer, addresses, foreign_write & changes, wrote, "write-write"
                    )
                foreign_read &= changes & ~foreign_write
                if foreign_read.any():
                    self._report_race(
                        pointer, addresses, foreign_read, read, "read-write", certain=False
                    )
            writer[elements] = self.number
        else:
            writer[elements] = NOBODY
        region.is_written = True
        if region.shadow is not None:
            region.shadow.written[elements] = True

    def _check_atomics(self, pointer: Pointer, addresses: np.ndarray, elements: np.ndarray) -> None:
        """A plain store to what other programs change by atomic operations."""
        adders = pointer.region.adders
        if adders is None:
            return
        by = adders[elements]
        foreign = (by != NOBODY) & (by != self.number)
        if foreign.any():
            self._report_race(pointer, addresses, foreign, by, "write-atomic")

    def _check_lanes(
        self, pointer: Pointer, addresses: np.ndarray, data: np.ndarray, allowed: np.ndarray
    ) -> None:
        """After a store: an element that holds another value than a lane wrote had a second writer in the same store."""
        if not self.session.tracks or addresses.size < 2:
            return
        new = data.reshape(-1) if allowed.all() else data[allowed]
        ones = np.ones(addresses.shape, bool)
        now = base._interpreter.load(addresses, ones, np.zeros_like(new), new.dtype)
        lost = now.view(f"u{now.itemsize}") != np.ascontiguousarray(new).view(f"u{new.itemsize}")
        if lost.any():
            own = np.full(addresses.shape, self.number, np.int32)
            self._report_race(pointer, addresses, lost, own, "write-write", certain=False)

    def _report_race(
        self,
        pointer: Pointer,
        addresses: np.ndarray,
        where: np.ndarray,
        others: np.ndarray,
        access: str,
        certain: bool = True,
    ) -> None:
        other = int(others[where][0])
        self.session.report(
            int(where.sum()),
            kind="race",
            access=access,
            tensor=pointer.name,
            index=(int(addresses[where][0]) - pointer.address) // pointer.itemsize,
            extent=(pointer.region.hi - pointer.address) // pointer.itemsize,
            other_program=None if other < 0 else list(self._program_of(other)),
            certain=certain,
            **self._here(),
        )

    def _program_of(self, number: int) -> Program:
        nx, ny, _ = self.grid_dim
        return number % nx, number // nx % ny, number // (nx * ny)

    def _report_unwritten(
        self,
        pointer: Pointer,
        addresses: np.ndarray,
        where: np.ndarray,
        access: str,
        certain: bool,
    ) -> None:
        shadow = pointer.region.shadow
        self.session.report(
            int(where.sum()),
            kind=shadow.kind if shadow is not None else "unwritten",
            access=access,
            tensor=pointer.name,
            index=(int(addresses[where][0]) - pointer.address) // pointer.itemsize,
            extent=(pointer.region.hi - pointer.address) // pointer.itemsize,
            certain=certain,
            **self._here(),
        )

    def _note_spin(self, address: int, value: np.ndarray) -> None:
        """Reading one address again and again, always with the same result, is waiting for another program."""
        seen = hash(value.tobytes())
        before, result, times = self._spinning
        times = times + 1 if (before, result) == (address, seen) else 0
        self._spinning = (address, seen, times)
        if times > MOST_SPINS:
            raise Unevaluable(
                f"kernel {self.launch.kernel} waits for another program"
                f" (line {candidate_line(sys._getframe(1))}); the interpreter runs them one by one"
            )

    # pointers keep the name of the argument they come from -----------------------------------------------------------

    def create_addptr(self, ptr: Any, offset: Any) -> Any:
        width = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
        moved = ptr.data + np.uint64(width) * offset.data.astype(np.uint64)
        return Handle(moved, ptr.dtype, ptr.attr)

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        return self._as_argument(super().create_splat(ret_ty, arg), arg)

    def create_broadcast(self, arg: Any, shape: Any) -> Any:
        return self._as_argument(super().create_broadcast(arg, shape), arg)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        return self._as_argument(super().create_expand_dims(arg, axis), arg)

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: Any) -> Any:
        return self._as_argument(Handle(arg.data.reshape(shape), arg.dtype.scalar), arg)

    def create_trans(self, arg: Any, perm: Any) -> Any:
        out = self._as_argument(super().create_trans(arg, perm), arg)
        axis = arg.attr.get("contiguous")
        if axis is not None:
            out.attr = {"contiguous": list(perm).index(axis)}
        return out

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        return self._as_argument(super().create_bitcast(src, dst_type), src)

    @staticmethod
    def _as_argument(out: Any, arg: Any) -> Any:
        if arg.attr and "argument" in arg.attr:
            out.attr = arg.attr
        return out

    # arithmetic -----------------------------------------------------------------------------------------------------

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        kind = lhs.dtype.scalar
        narrow = is_bfloat16(lhs) or is_bfloat16(rhs)
        left, right = (widened(lhs), widened(rhs)) if narrow else (lhs.data, rhs.data)
        out = op(left, right)
        if out.dtype == bool:
            self.counts.flops += (
                out.size * self.weight if narrow or lhs.data.dtype.kind == "f" else 0
            )
            return Handle(out, tl.int1)
        if out.dtype.kind != "f":
            self.counts.integer_ops += out.size * self.weight
        elif op in _SPECIAL:
            self.counts.special += out.size * self.weight
        elif not (lhs.attr.get("dot") or rhs.attr.get("dot")):  # else the dot accumulates
            self.counts.flops += out.size * self.weight
            self._note_arithmetic(out, left, right)
        if narrow:
            out = float32_to_bfloat16(out)
        elif not base._validate_np_data_size(out, kind):
            out = out.astype(array_type(kind))
        return Handle(out, kind)

    def unary_op(self, arg: Any, op: Any) -> Any:
        if op in _SPECIAL:
            self.counts.special += arg.data.size * self.weight
            self._note_kind("math", arg)
        else:
            self.counts.flops += arg.data.size * self.weight
        if is_bfloat16(arg):
            return Handle(float32_to_bfloat16(op(widened(arg))), arg.dtype.scalar)
        out = op(arg.data)
        self._note_arithmetic(out, arg.data)
        return Handle(out, arg.dtype.scalar)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        if op is np.where or not is_bfloat16(other):
            return super().ternary_op(lhs, rhs, other, op)
        out = op(widened(lhs), widened(rhs), widened(other))
        return Handle(float32_to_bfloat16(out), other.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        out = widened(x) * widened(y) + widened(z)
        self.counts.flops += 2 * out.size * self.weight
        return Handle(float32_to_bfloat16(out) if is_bfloat16(z) else out, z.dtype.scalar)

    def _note_kind(self, kind: str, operand: Any) -> None:
        """Of blocks; what is done to one number may be known to the compiler."""
        if operand.data.size > 1:
            self.launch.computes.add(kind)

    def _note_arithmetic(self, out: np.ndarray, *operands: np.ndarray) -> None:
        """Of blocks, and where it makes a difference: times one the compiler leaves out."""
        if out.size == 1 or "float" in self.launch.computes:
            return
        if not any(np.array_equal(out, operand, equal_nan=True) for operand in operands):
            self.launch.computes.add("float")

    def create_erf(self, arg: Any) -> Any:
        self._note_kind("math", arg)
        self.counts.special += arg.data.size * self.weight
        return Handle(_erf(arg.data), arg.dtype.scalar)

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, _rsqrt)

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        out = self._cast(src, dst_type)
        if "contiguous" in src.attr:
            out.attr = src.attr
        return out

    def _cast(self, src: Any, dst_type: Any) -> Any:
        kind = dst_type.scalar
        if kind is tl.bfloat16 and not is_bfloat16(src):
            return Handle(float32_to_bfloat16(src.data.astype(np.float32)), kind)
        if is_bfloat16(src):
            if kind is tl.bfloat16:
                return src
            return Handle(widened(src).astype(array_type(dst_type)), kind)
        return Handle(src.data.astype(array_type(dst_type)), kind)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        kind = dst_type.scalar
        source = src.dtype.scalar
        if kind.name not in EIGHT_BITS and source.name not in EIGHT_BITS:
            return self.cast_impl(src, dst_type)
        if kind.name in EIGHT_BITS and source.name not in EIGHT_BITS:
            with unseen_by_torch():
                wide = torch.from_numpy(np.array(widened(src), np.float32))
                bits = wide.to(EIGHT_BITS[kind.name]).view(torch.uint8).numpy()
            return Handle(bits.reshape(src.data.shape), kind)
        wide = Handle(dot_operand(src, "ieee").reshape(src.data.shape), tl.float32)
        if kind.name in EIGHT_BITS:
            return self.create_fp_to_fp(wide, dst_type, rounding_mode)
        return self.cast_impl(wide, dst_type)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_imprecise: Any) -> Any:
        precision = _PRECISIONS.get(getattr(input_precision, "name", ""), "ieee")
        left, right = dot_operand(a, precision), dot_operand(b, precision)
        wide = np.int32 if d.data.dtype.kind == "i" else d.data.dtype
        if d.data.dtype == np.float16:
            wide = np.float32
        product = np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False))
        self._note_kind("dot", a)
        path = numeric_path(a.dtype.scalar, precision)
        flops = 2.0 * product.size * left.shape[-1] * self.weight
        self.counts.dot_calls += self.weight
        self.counts.dots[path] = self.counts.dots.get(path, 0.0) + flops
        order = f"{path} {_order(a, 1, 'k', 'm')}{_order(b, 0, 'k', 'n')}"
        self.counts.dot_orders[order] = self.counts.dot_orders.get(order, 0.0) + flops
        out = (product + d.data).astype(d.data.dtype, copy=False)
        return Handle(out, d.dtype.scalar, {"dot": True})

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Any:
        return Handle(np.arange(start, stop, dtype=np.int32), tl.int32)

    def create_extern_elementwise(
        self, lib: str, path: str, symbol: str, args: list[Any], ret_type: Any, is_pure: bool
    ) -> Any:
        function = libdevice.function_for(symbol)
        if function is None:
            raise Unevaluable(f"the interpreter has no {symbol}")
        array = array_type(ret_type)
        arrays = np.broadcast_arrays(*(arg.data for arg in args))
        out = np.asarray(function(*arrays))
        self.counts.special += out.size * self.weight
        self._note_kind("math", args[0])
        return Handle(out.astype(array, copy=False).reshape(arrays[0].shape), ret_type.scalar)

    def create_inline_asm(
        self, asm: str, constraints: str, values: list[Any], kinds: Any, is_pure: bool, pack: int
    ) -> Any:
        if "griddepcontrol" in asm:
            return _Results([Handle(np.zeros(1, np.int32), tl.int32)])
        match = _ONE_INSTRUCTION.match(asm)
        if match and match[1] in _APPROXIMATIONS and len(values) == 1:
            return _Results([self.unary_op(values[0], _APPROXIMATIONS[match[1]])])
        raise Unevaluable("inline assembly")

    def create_print(self, prefix: str, hex: bool, values: Any, is_signed: Any) -> None:
        return

    def create_assume(self, condition: Any) -> None:
        if not condition.data.all():
            raise AssertionError("tl.assume of a condition that does not hold")


def _contiguous_axis(addresses: np.ndarray, itemsize: int) -> int | None:
    """The axis of a block of two or three dimensions along which its elements lie side by side."""
    if addresses.ndim < 2:
        return None
    first = (0,) * addresses.ndim
    for axis in range(addresses.ndim - 1, -1, -1):
        second = tuple(int(i == axis) for i in range(addresses.ndim))
        if addresses.shape[axis] > 1 and addresses[second] - addresses[first] == itemsize:
            return axis
    return None


def _order(operand: Any, along: int, yes: str, no: str) -> str:
    """Whether a dot's operand lies contiguous along K (its axis `along`, of the last two); "r" from registers."""
    axis = operand.attr.get("contiguous")
    if axis is None:
        return "r"
    return yes if axis - (operand.data.ndim - 2) == along else no


class _Results:
    """What the real builder returns for inline assembly: an operation with results."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def get_result(self, i: int) -> Any:
        return self._handles[i]


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return (1.0 / np.sqrt(x)).astype(x.dtype)


class Induction(int):
    """A loop variable: an int that can also be cast as the int32 tensor it is in a compiled kernel."""

    dtype = tl.int32

    def to(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return base.interpreter_semantic.to_tensor(int(self), False).to(dtype)


def _index(bound: Any) -> int:
    return bound.value if isinstance(bound, tl.constexpr) else bound.__index__()


def kernel_range(arg1: Any, arg2: Any = None, step: Any = None, **_: Any) -> Iterator[int]:
    """`range`, `tl.range` and `tl.static_range` in a kernel; sampled when the session samples."""
    start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
    whole = range(_index(start), _index(stop), 1 if step is None else _index(step))
    sampling = sessions.active().sampling
    if sampling is None or len(whole) <= sampling.iterations + 1:
        return map(Induction, whole)
    return _some_of(whole, sampling.iterations)


def _some_of(whole: range, first: int) -> Iterator[int]:
    """The first few iterations, standing for all but the last, and the last."""
    builder: Builder = base.interpreter_builder
    outer = builder.weight
    try:
        builder.weight = outer * (len(whole) - 1) / first
        for i in whole[:first]:
            yield Induction(i)
        builder.weight = outer
        yield Induction(whole[-1])
    finally:
        builder.weight = outer


def _combine(combine_fn: Any, left: list[Any], right: list[Any]) -> list[np.ndarray]:
    out = combine_fn.fn(*left, *right)
    out = out if isinstance(out, tuple) else (out,)
    return [
        np.broadcast_to(o.handle.data, like.handle.data.shape).astype(like.handle.data.dtype)
        if isinstance(o, tl.core.tensor)
        else np.full(like.handle.data.shape, o, like.handle.data.dtype)
        for o, like in zip(out, left, strict=True)
    ]


def reduce_by_halves(self: Any, input: tuple[Any, ...]) -> list[Any]:
    """A generic reduction as a tree over slices, as the hardware does it: log2(n) steps of whole arrays."""
    kinds = [arg.dtype for arg in input]
    axis = self.axis
    arrays = [arg.handle.data for arg in input]
    rank = arrays[0].ndim
    if axis is None:
        arrays, axis = [a.reshape(-1) for a in arrays], 0
    arrays = [np.moveaxis(a, axis, 0) for a in arrays]
    while arrays[0].shape[0] > 1:
        size = arrays[0].shape[0]
        half = size // 2
        left = [self.to_tensor(a[: 2 * half : 2], k) for a, k in zip(arrays, kinds, strict=True)]
        right = [self.to_tensor(a[1 : 2 * half : 2], k) for a, k in zip(arrays, kinds, strict=True)]
        paired = _combine(self.combine_fn, left, right)
        arrays = [np.concatenate([p, a[2 * half :]]) for p, a in zip(paired, arrays, strict=True)]
    out = []
    for a, kind in zip(arrays, kinds, strict=True):
        value = a[0]
        if self.keep_dims:
            shape = [1] * rank if self.axis is None else None
            value = value.reshape(shape) if shape else np.expand_dims(value, axis)
        out.append(self.to_tensor(value if value.shape else value.item(), kind))
    return out


def scan_by_doubling(self: Any, input: list[Any]) -> list[Any]:
    """A generic scan in log2(n) steps: each element combined with the one 1, 2, 4, ... before it."""
    kinds = [arg.dtype for arg in input]
    arrays = [np.moveaxis(arg.handle.data, self.axis, 0).copy() for arg in input]
    size, step = arrays[0].shape[0], 1
    while step < size:
        # Whole arrays, rotated: a block's shape must be a power of two. The first `step` elements have no partner.
        before = [
            self.to_tensor(np.roll(a, step, axis=0), k) for a, k in zip(arrays, kinds, strict=True)
        ]
        now = [self.to_tensor(a, k) for a, k in zip(arrays, kinds, strict=True)]
        joined = _combine(self.combine_fn, before, now)
        arrays = [np.concatenate([a[:step], j[step:]]) for a, j in zip(arrays, joined, strict=True)]
        step *= 2
    return [
        self.to_tensor(np.moveaxis(a, 0, self.axis), k) for a, k in zip(arrays, kinds, strict=True)
    ]


_plain_reduce = base.ReduceOps.apply_impl


def counted_reduce(self: Any, input: tuple[Any, ...]) -> Any:
    builder: Builder = base.interpreter_builder
    handle = input[0].handle
    builder.counts.flops += handle.data.size * builder.weight
    if self.axis is None or handle.data.shape[self.axis] > 1:
        builder._note_kind("reduce", handle)
    if is_bfloat16(handle):
        return self.generic_reduce(input)  # numpy would add the bits
    return _plain_reduce(self, input)


def _by_the_function(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A scan that numpy does by itself, save for bfloat16, whose bits it would take for integers."""

    def scan(self: Any, input: Any) -> Any:
        return self.generic_scan([input]) if is_bfloat16(input.handle) else plain(self, input)

    return scan


def _keeping_argument(materialize: Callable[..., Any]) -> Callable[..., Any]:
    def with_argument(self: Any, *args: Any) -> Any:
        pointers, masks = materialize(self, *args)
        pointers.attr = self.base.attr
        return pointers, masks

    return with_argument


_ARRAYS = {
    "int1": np.dtype(bool),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
    **{
        f"{sign}int{bits}": np.dtype(f"{sign or 'i'}{bits // 8}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


def array_type(kind: Any) -> np.dtype:
    """The numpy type that holds elements of a Triton type: addresses are uint64, bfloat16 is uint16."""
    scalar = kind.scalar
    if isinstance(scalar, tl.pointer_type):
        return np.dtype(np.uint64)
    return _ARRAYS.get(scalar.name) or np.dtype(np.uint8)


def install() -> None:
    """Make the process's interpreter use the instrumented builder, reductions and scans."""
    machine = base.interpreter_builder
    machine.__class__ = Builder
    machine.options = base.InterpreterOptions(sanitize_overflow=False)
    machine.enter_launch(Launch("", None, (1, 1, 1), [], {}, {}), Memory(), sessions.active())
    base._get_np_dtype = array_type
    base.ReduceOps.generic_reduce = reduce_by_halves
    base.ReduceOps.apply_impl = counted_reduce
    base.ScanOps.generic_scan = scan_by_doubling
    base.ScanOps.cumsum = _by_the_function(base.ScanOps.cumsum)
    base.ScanOps.cumprod = _by_the_function(base.ScanOps.cumprod)
    for handle in (base.BlockPointerHandle, base.TensorDescHandle):
        handle.materialize_pointers = _keeping_argument(handle.materialize_pointers)
