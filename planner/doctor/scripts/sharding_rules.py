"""What goes wrong beside ZeRO-3, FSDP 2 and tensor parallelism: models made too early, weights gathered for each token, optimizers."""

import ast
import re
from collections.abc import Iterator

from planner.core.python_source import Called, constant
from planner.doctor.scripts.reading import Script, Spot

_STAGE_3 = re.compile(r"(?:zero|stage|(?<![a-z])z)[_-]?3", re.IGNORECASE)
_OF_A_MODEL = re.compile(r"Model|For[A-Z]")
_FSDP_2 = 2
_LOADS = ("from_pretrained", "from_config")
_DTENSORS = ("fully_shard", "parallelize_module", "ParallelismConfig")
_BITSANDBYTES = re.compile(r"(?:paged_\w+|\w+_8bit|\w*bnb\w*)")


def model_is_made_before_its_arguments(script: Script) -> Iterator[Spot]:
    """Under ZeRO-3 the model is loaded before the arguments that say so are made."""
    if script.mentions("HfDeepSpeedConfig", "Init"):
        return
    for made in script.calls:
        if not _is_stage_3(made.keyword("deepspeed")):
            continue
        early = [
            call
            for call in script.called(*_LOADS)
            if _OF_A_MODEL.search(call.owner)
            and call.node.lineno < made.node.lineno
            and script.scope(call.node) is script.scope(made.node)
        ]
        for call in early:
            yield Spot(
                call.node,
                f"the model is loaded before {made.last} (line {made.node.lineno}) says ZeRO-3: whole, on every rank",
                also=(made.node.lineno,),
            )


def _is_stage_3(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Dict):
        pairs = [
            (constant(key), constant(value))
            for each in ast.walk(node)
            if isinstance(each, ast.Dict)
            for key, value in zip(each.keys, each.values, strict=True)
        ]
        return ("stage", 3) in pairs
    value = constant(node)
    return isinstance(value, str) and _STAGE_3.search(value) is not None


def weights_are_gathered_for_each_token(script: Script) -> Iterator[Spot]:
    """ds3_gather_for_generation is off, so that ZeRO-3 gathers all weights for every token that is generated."""
    for call in script.calls:
        is_off = call.said("ds3_gather_for_generation") is False
        if is_off and call.said("use_vllm") is not True:
            yield Spot(
                call.node, "ds3_gather_for_generation=False: all weights travel for every token"
            )


def optimizer_takes_no_dtensors(script: Script) -> Iterator[Spot]:
    """An optimizer of bitsandbytes is to step what FSDP 2 or tensor parallelism divides."""
    is_divided = bool(script.called(*_DTENSORS)) or any(
        call.said("fsdp_version") == _FSDP_2
        or call.said("tp_plan") == "auto"
        or _is_fsdp_2(call.keyword("fsdp_config"))
        for call in script.calls
    )
    for call in script.calls if is_divided else ():
        name = _of_bitsandbytes(call)
        if name:
            yield Spot(
                call.node, f"{name} of bitsandbytes reads whole tensors, and these are DTensors"
            )


def _is_fsdp_2(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Dict) and any(
        constant(key) in {"version", "fsdp_version"} and constant(value) == _FSDP_2
        for key, value in zip(node.keys, node.values, strict=True)
    )


def _of_bitsandbytes(call: Called) -> str:
    if call.name.startswith(("bitsandbytes.", "bnb.")) and ".optim." in call.name:
        return call.last
    named = call.said("optim")
    is_theirs = isinstance(named, str) and _BITSANDBYTES.fullmatch(named)
    return str(named) if is_theirs and "torch" not in str(named) else ""
