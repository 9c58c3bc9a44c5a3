"""Autotune under the interpreter: no benchmark, one configuration runs, and which one is noted in the launch.

The first of the configurations that the candidate's own pruning leaves; `session(config=i)` chooses another.
"""

from typing import Any

from triton.runtime import autotuner

from gpu_runner.evaluation.child import sessions

_chosen: list[dict[str, Any]] = []


def take_config() -> dict[str, Any] | None:
    """The configuration chosen for the launch that begins now; None when it is not autotuned."""
    config = _chosen[-1] if _chosen else None
    _chosen.clear()
    return config


def install() -> None:
    autotuner.Autotuner.run = _run


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    config = list(configs)[sessions.active().config_of(self.base_fn.__name__) % len(configs)]
    _refuse_conflicts(config, kwargs)
    self.best_config = config
    everything = {**self.nargs, **kwargs, **config.all_kwargs()}
    if len(self.configs) > 1:
        self.pre_hook(everything, reset_only=True)
    if config.pre_hook is not None:
        config.pre_hook(everything)
    _chosen.append(config.all_kwargs())
    try:
        return self.fn.run(*args, **kwargs, **config.all_kwargs())
    finally:
        self.nargs = None


def _refuse_conflicts(config: Any, kwargs: dict[str, Any]) -> None:
    conflicts = sorted(kwargs.keys() & config.kwargs.keys())
    if conflicts:
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(conflicts)}."
            " Make sure that you don't re-define auto-tuned symbols."
        )
