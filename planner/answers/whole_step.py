"""A plan of GRPO, whose chosen layout is the training of its step alone -> the whole step: seconds, bytes, the run.

It is read from an answer's JSON, which anybody may have written: what is no number stays as it is, or is None, for
whoever takes it to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from planner.rollout.step import GENERATION, TRAINING
from planner.search.training_run import HOUR_SECONDS

if TYPE_CHECKING:
    from planner.answers.shapes import PhaseMemory, TermAnswer, TrainingAnswer, WholeStepAnswer

_STEPS = {"seconds": "step_seconds", "low_seconds": "low_seconds", "high_seconds": "high_seconds"}
"""Of a run, which seconds of a step it counts."""
_LARGEST = 1e30
"""Of any amount of a plan."""


def whole_step(answer: Mapping[str, Any]) -> WholeStepAnswer:
    """Return time, memory, run and speed of all phases, by the names that a layout has for its own.

    Args:
        answer: a plan with its `rollout`.
    """
    rollout, memory = _key(answer, "rollout"), _key(answer, "chosen", "memory")
    phases = {
        GENERATION: _generating(rollout),
        TRAINING: _training(memory, rollout),
    }
    held = {name: each["reserved_bytes"] for name, each in phases.items()}
    wrong = [name for name, amount in held.items() if not _is_amount(amount)]
    fuller = wrong[0] if wrong else max(held, key=held.__getitem__)
    step = {name: _key(rollout, name) for name in _STEPS.values()}
    return {
        "time": {
            "step_seconds": step["step_seconds"],
            "low_seconds": step["low_seconds"],
            "high_seconds": step["high_seconds"],
            "terms": _terms(_key(rollout, "phases")),
        },
        "memory": {
            "reserved_bytes": held[fuller],
            "usable_bytes": _key(memory, "usable_bytes"),
            "phase": fuller,
            "phases": phases,
        },
        "training": _run(answer, step),
        "tokens_per_second_per_gpu": _quotient(_key(rollout, "tokens_per_second"), _gpus(rollout)),
    }


def _generating(rollout: Any) -> PhaseMemory:
    """Return what a GPU holds while it generates: vLLM takes its share whole, whatever it needs of it."""
    held = _key(rollout, "generating_bytes")
    return {
        "gpus": _key(rollout, "generation_gpus"),
        "peak_bytes": held,
        "reserved_bytes": held,
        "low_bytes": held,
        "high_bytes": held,
        "peak_low_bytes": held,
        "peak_high_bytes": held,
    }


def _training(memory: Any, rollout: Any) -> PhaseMemory:
    """Return what a GPU holds while it trains: a vLLM that sleeps meanwhile is beside it, and in none of its tensors."""
    held = _key(rollout, "training_bytes")
    asleep = _sum(held, _key(memory, "reserved_bytes"), sign=-1)
    return {
        "gpus": _key(rollout, "training_gpus"),
        "peak_bytes": _key(memory, "peak_bytes"),
        "reserved_bytes": held,
        "low_bytes": _sum(_key(memory, "low_bytes"), asleep),
        "high_bytes": _sum(_key(memory, "high_bytes"), asleep),
        "peak_low_bytes": _key(memory, "peak_low_bytes"),
        "peak_high_bytes": _key(memory, "peak_high_bytes"),
    }


def _terms(phases: Any) -> list[TermAnswer]:
    """Return each phase as a term of the step; its own are the rollout's."""
    named = phases.items() if isinstance(phases, Mapping) else ()
    return [
        {
            "name": str(name),
            "seconds": _total(parts),
            "how": " + ".join(str(_key(part, "name")) for part in _list(parts)) or "nothing",
            "source": "planner/rollout/step.py",
        }
        for name, parts in named
    ]


def _run(answer: Mapping[str, Any], step: Mapping[str, Any]) -> TrainingAnswer | None:
    """Return a run of whole steps, on all GPUs: as many as those of the training, each longer."""
    run, trained = _key(answer, "chosen", "training"), _key(answer, "chosen", "time")
    if not isinstance(run, Mapping):
        return None
    steps = _key(run, "steps")
    longer = {
        name: _sum(_key(run, name), _product(steps, _sum(step[of], _key(trained, of), sign=-1)))
        for name, of in _STEPS.items()
    }
    hours = _quotient(longer["seconds"], HOUR_SECONDS)
    paid = _quotient(_key(answer, "rollout", "nodes"), _key(answer, "job", "cluster", "nodes"))
    price = _product(_key(run, "usd"), _quotient(longer["seconds"], _key(run, "seconds")))
    return {
        "tokens": _key(run, "tokens"),
        "steps": steps,
        "seconds": longer["seconds"],
        "start_up_seconds": _key(run, "start_up_seconds"),
        "low_seconds": longer["low_seconds"],
        "high_seconds": longer["high_seconds"],
        "gpu_hours": _product(hours, _gpus(_key(answer, "rollout"))),
        "usd": _product(price, paid),
        "price_date": _key(run, "price_date"),
    }


def _gpus(rollout: Any) -> Any:
    """Return how many GPUs train or generate."""
    trains, generates = (_key(rollout, name) for name in ("training_gpus", "generation_gpus"))
    return _sum(trains, generates if _key(rollout, "mode") == "server" else 0)


def _key(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_amount(value: Any) -> bool:
    return type(value) in {int, float} and abs(value) <= _LARGEST


def _total(parts: Any) -> Any:
    amounts = [_key(part, "seconds") for part in _list(parts)]
    return sum(amounts) if all(map(_is_amount, amounts)) else None


def _sum(one: Any, other: Any, sign: int = 1) -> Any:
    return one + sign * other if _is_amount(one) and _is_amount(other) else None


def _product(one: Any, other: Any) -> Any:
    return one * other if _is_amount(one) and _is_amount(other) else None


def _quotient(one: Any, other: Any) -> Any:
    return one / other if _is_amount(one) and _is_amount(other) and other > 0 else None
