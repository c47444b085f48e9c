"""DeepSpeed, MaxText, nanoGPT, nanotron and NeMo: what their logs say beyond `data/logs`."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.line_formats import line_format
from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import StepLog, count, number, numbered

_STAGES = ("disabled", "optimizer_states", "gradients", "weights")
"""As newer Pythons print DeepSpeed's; older ones print their numbers."""
_NUMBERS = {str(stage): stage for stage in range(len(_STAGES))}
_PRECISION = re.compile(r"\b(?P<name>bfloat16|fp16)_enabled \.* (?P<value>True|False)$")
_PRECISIONS = {"bfloat16": "bf16-mixed", "fp16": "fp16-mixed"}


def _stage(text: str) -> int | None:
    name = text.removeprefix("ZeroStageEnum.")
    return _STAGES.index(name) if name in _STAGES else _NUMBERS.get(text)


def _take_precision(lines: Sequence[str], log: StepLog) -> None:
    for line in lines:
        if said := _PRECISION.search(line):
            log.understood.add(line)
            if said["value"] == "True":
                log.said["recipe.precision"] = _PRECISIONS[said["name"]]


DEEPSPEED = line_format("deepspeed", {"zero_optimization_stage": _stage}, also=_take_precision)
"""What the engine prints, every `steps_per_print`; its GB are 2^30 bytes."""

_SECONDS = numbered(r"seconds:\s{0,20}")
_RATE = numbered("Tokens/s/device: ")
_WEIGHTS = numbered("total_weights: ")
_ROUNDED_SECONDS = 0.0005


def _tokens_of_a_rank(lines: Sequence[str]) -> tuple[PerStep, ...]:
    """Return the last step's tokens with a loss, of which there may be more without, and a device's tokens."""
    found = [
        None if match is None else number(match[1])
        for match in (
            pattern.search(lines[-1] if lines else "") for pattern in (_WEIGHTS, _RATE, _SECONDS)
        )
    ]
    weights, rate, seconds = found
    said = [] if weights is None else [PerStep(amount=weights, of="tokens", is_least=True)]
    if rate is not None and seconds is not None:
        apart = 0.01 + _ROUNDED_SECONDS / seconds
        said.append(PerStep(amount=rate * seconds, of="tokens of a rank", apart=apart))
    return tuple(said)


MAXTEXT = line_format("maxtext", per_step=_tokens_of_a_rank)
"""Steps are timed where they are launched: single ones say little, their median does."""

_TOKENS = numbered(r"tokens per iteration will be: ")


def _take_tokens(lines: Sequence[str], log: StepLog) -> None:
    for line in lines:
        if (tokens := _TOKENS.search(line)) and (amount := number(tokens[1])):
            log.per_step = (PerStep(amount=amount, of="tokens"),)
            log.tokens_per_step = count(tokens[1])
            log.understood.add(line)


NANOGPT = line_format("nanogpt", also=_take_tokens)
"""An iteration is an optimizer step, and one with an evaluation takes longer."""

_BATCH = numbered("global_batch_size: ", r" \|")


def _batch(lines: Sequence[str]) -> tuple[PerStep, ...]:
    """Return the last step's batch, in figures of three digits; releases count sequences or tokens."""
    batch = _BATCH.search(lines[-1]) if lines else None
    amount = number(batch[1]) if batch else None
    return () if amount is None else (PerStep(amount=amount, of="either"),)


NANOTRON = line_format("nanotron", per_step=_batch)

_STEP = numbered("global_step(?:=|: )")
_CONSUMED = numbered("consumed_samples(?:=|: )")
_DIGITS = 0.005
"""By which a bar's three digits may be off."""


def _samples(lines: Sequence[str]) -> tuple[PerStep, ...]:
    half = lines[len(lines) // 2 - 1 :] if len(lines) > 1 else ()
    points = [
        (step, consumed)
        for line in half
        if (at := _STEP.search(line)) and (until := _CONSUMED.search(line))
        if (step := number(at[1], -1)) is not None and (consumed := number(until[1])) is not None
    ]
    if not points or points[0][0] >= points[-1][0] or points[0][1] >= points[-1][1]:
        return ()
    (first, before), (last, after) = points[0], points[-1]
    apart = 0.01 + _DIGITS * (before + after) / (after - before)
    return (PerStep(amount=(after - before) / (last - first), of="sequences", apart=apart),)


NEMO = line_format("nemo", per_step=_samples)
"""NeMo runs on Megatron Core; its first version has a bar, its second a line per step."""
