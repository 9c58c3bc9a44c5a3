"""Which lines of which kernels read and write a call's tensors, and which elements no kernel reads.

Lines are noted for the first programs of a launch only: later ones run the same text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpu_runner.core.findings import Evidence
from gpu_runner.evaluation.child.regions import region_of
from gpu_runner.evaluation.child.traced_memory import Region
from gpu_runner.evaluation.protocol import Touch

MOST_SITES = 8


@dataclass(frozen=True)
class Site:
    """An access in the candidate's source; `tensor` is the kernel's argument."""

    access: str
    kernel: str
    line: int | None
    tensor: str


class Touched:
    """What the launches of a session did to the storages that they reach, by address."""

    def __init__(self) -> None:
        self._sites: dict[int, dict[Site, None]] = {}
        self._read: dict[int, np.ndarray] = {}
        self._masked: set[int] = set()

    def note(self, region: Region, site: Site) -> None:
        self._sites.setdefault(region.lo, {})[site] = None

    def note_masked_store(self, region: Region) -> None:
        self._masked.add(region.lo)

    def note_reads(self, regions: Iterable[Region]) -> None:
        """Once a launch has ended: which elements it read."""
        for region in regions:
            read = region.read_elements
            if read is None:
                continue
            known = self._read.get(region.lo)
            is_alike = known is not None and known.shape == read.shape
            self._read[region.lo] = read | known if is_alike else read

    def of(self, name: str, tensor: torch.Tensor) -> list[Touch]:
        """What is known of one input or output, one entry a site."""
        lo = tensor.untyped_storage().data_ptr()
        unread = self._unread(lo, tensor)
        return [
            Touch(
                name=name,
                access=site.access,
                kernel=site.kernel[:200],
                line=site.line,
                tensor=site.tensor[:200],
                unread=unread if site.access == "load" else "",
                is_masked=lo in self._masked,
            )
            for site in list(self._sites.get(lo, ()))[:MOST_SITES]
        ]

    def _unread(self, lo: int, tensor: torch.Tensor) -> str:
        """Where the elements lie that no kernel reads, in words; empty if all or none are read."""
        read = self._read.get(lo)
        if read is None or tensor.numel() < 2:
            return ""
        flags = torch.from_numpy(read)
        first = tensor.storage_offset()
        if first + 1 + sum(
            (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
        ) > len(flags):
            return ""
        unread = ~flags.as_strided(tensor.size(), tensor.stride(), first)
        return region_of(unread)[:200] if bool(unread.any()) and not bool(unread.all()) else ""


def evidence_of(touches: Sequence[Touch], output: str) -> Evidence:
    """For a wrong output: who stores it, with or without lanes masked off; and which inputs are read in part only."""
    stores = [t for t in touches if t.name == output and t.access != "load"]
    unread = [t for t in touches if t.unread]
    evidence: Evidence = {}
    if stores:
        evidence["stored_by"] = list(dict.fromkeys(t.kernel for t in stores))
        evidence["stored_at"] = list(dict.fromkeys(t.line for t in stores if t.line))
        evidence["stores_are_masked"] = any(t.is_masked for t in stores)
    if unread:
        evidence["unread"] = f"{unread[0].unread} of {unread[0].tensor}"
        evidence["unread_at"] = [t.line for t in unread if t.line]
    return evidence
