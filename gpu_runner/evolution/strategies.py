"""What makes islands differ: a lens, a mix of operators, the kind of first candidate, a temperature."""

from collections.abc import Mapping
from types import MappingProxyType

from gpu_runner.evolution.types import Operator, Strategy


def _shares(**shares: float) -> Mapping[Operator, float]:
    return MappingProxyType({Operator(name): share for name, share in shares.items()})


STRATEGIES = (
    Strategy(
        name="fusion",
        lens="Do more per launch: fuse neighbouring operations so that intermediate results never reach memory.",
        shares=_shares(improve=3, repair=2, rewrite=4, tune=2, crossover=1, simplify=0.5),
        words=("fuse", "fusion", "epilogue", "prologue", "single pass", "online"),
        seeds=("person", "compiler", "catalogue", "retrieval", "model"),
        temperature=0.6,
    ),
    Strategy(
        name="tiling",
        lens="Use tensor cores well: tile shapes, the order of tiles, software pipelining, warps and stages.",
        shares=_shares(improve=3, repair=2, rewrite=2, tune=4, crossover=1.5, simplify=0.5),
        words=(
            "tile",
            "tiling",
            "tune",
            "warps",
            "stages",
            "dot",
            "tensor core",
            "swizzle",
            "group",
        ),
        seeds=("catalogue", "compiler", "retrieval", "model", "person"),
        temperature=0.7,
    ),
    Strategy(
        name="memory",
        lens="Move fewer bytes, and move them better: coalesced and wide accesses, one read of each input, no copies.",
        shares=_shares(improve=3, repair=2, rewrite=3, tune=3, crossover=1.5, simplify=1),
        words=(
            "memory",
            "vector",
            "coalesc",
            "row",
            "contiguous",
            "cache",
            "evict",
            "persistent",
            "mask",
        ),
        seeds=("retrieval", "compiler", "catalogue", "model", "person"),
        temperature=0.8,
    ),
    Strategy(
        name="algorithm",
        lens="Question the algorithm: online formulations, split reductions, folding of parameters, less work.",
        shares=_shares(improve=4, repair=2, rewrite=3, tune=1, crossover=1, simplify=1),
        words=("online", "split", "fold", "reduction", "algebra", "skip"),
        seeds=("model", "catalogue", "retrieval", "compiler", "person"),
        temperature=1.0,
    ),
    Strategy(
        name="numerics",
        lens="Spend precision only where the tolerance asks for it: accumulation types, fast functions, casts.",
        shares=_shares(improve=3, repair=3, rewrite=2, tune=2, crossover=1, simplify=1.5),
        words=("precision", "tf32", "exp2", "fast", "cast", "accumul", "reciprocal"),
        seeds=("compiler", "model", "catalogue", "retrieval", "person"),
        temperature=0.7,
    ),
)


def strategy_of(index: int) -> Strategy:
    """Strategies go round when there are more islands than lenses."""
    return STRATEGIES[index % len(STRATEGIES)]
