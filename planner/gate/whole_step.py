"""A plan of GRPO, whose chosen layout is the training of its step alone -> figures of the whole step in their place."""

from collections.abc import Mapping
from typing import Any

_PER_GPU = ("gpu_hours", "usd")
"""Of a run, those that count all GPUs."""


def whole_step(layout: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layout with the step, memory, speed and run of all its phases; what is no number stays, to be refused.

    The memory is that of the fuller phase, on whichever GPU; MFU is of training alone, and left out.
    """
    step = rollout.get("step_seconds")
    time, memory = (_mapping(layout.get(name)) for name in ("time", "memory"))
    held: list[Any] = [rollout.get(name) for name in ("training_bytes", "generating_bytes")]
    odd = [each for each in (step, *held) if not _is_amount(each)]
    trains, generates = (rollout.get(name) for name in ("training_gpus", "generation_gpus"))
    is_apart = rollout.get("mode") == "server"
    gpus = _sum(trains, generates if is_apart else 0)
    return {
        **layout,
        "rollout": rollout,
        "time": {**time, "step_seconds": step},
        "memory": {**memory, "reserved_bytes": odd[0] if odd else max(held)},
        "tokens_per_second_per_gpu": _quotient(rollout.get("tokens_per_second"), gpus),
        "model_flops_utilization": None,
        "training": _run(
            _mapping(layout.get("training")),
            _quotient(step, time.get("step_seconds")),
            _quotient(gpus, trains),
        ),
    }


def _run(training: Mapping[str, Any], longer: Any, more: Any) -> dict[str, Any]:
    """Return a run whose steps take longer, on more GPUs."""
    if not (_is_amount(longer) and _is_amount(more)):
        return dict(training)
    factors = {"seconds": longer, **dict.fromkeys(_PER_GPU, longer * more)}
    return {
        name: value * factors[name] if name in factors and _is_amount(value) else value
        for name, value in training.items()
    }


def _is_amount(value: Any) -> bool:
    return type(value) in {int, float}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sum(one: Any, other: Any) -> Any:
    return one + other if _is_amount(one) and _is_amount(other) else None


def _quotient(one: Any, other: Any) -> Any:
    return one / other if _is_amount(one) and _is_amount(other) and other > 0 else None
