"""What goes wrong between a process and its GPU: whose rank names it, which dtype its weights have."""

import ast
from collections.abc import Iterator

from planner.core.python_source import Called, constant
from planner.doctor.scripts.reading import Script, Spot

_FOLLOWED = 3
"""Names that are followed from where a device is named to where it comes from."""
_HALF = frozenset({"torch.float16", "torch.half", "float16", "fp16", "half"})
_ADAPTERS = (
    *("get_peft_model", "peft_config", "LoraConfig", "PeftModel"),
    *("load_in_4bit", "load_in_8bit", "BitsAndBytesConfig", "quantization_config"),
)
"""Where the trained weights are others than the loaded ones."""


def global_rank_names_a_gpu(script: Script) -> Iterator[Spot]:
    """The rank among the processes of all nodes is taken for the number of a GPU of this node."""
    for call in script.called("set_device", "to", "cuda", "device", "DistributedDataParallel"):
        if any(_is_global_rank(script, each, call.node) for each in _devices(call)):
            yield Spot(call.node, "the rank of all nodes is taken for a GPU of this one")
            return


def _devices(call: Called) -> Iterator[ast.expr]:
    """Yield what a call names as a device, or may."""
    listed = call.keyword("device_ids")
    yield from listed.elts if isinstance(listed, ast.List) else ()
    for value in call.node.args if call.last != "DistributedDataParallel" else ():
        if isinstance(value, ast.JoinedStr):
            yield from (part.value for part in value.values if isinstance(part, ast.FormattedValue))
        else:
            yield value


def _is_global_rank(script: Script, value: ast.expr | None, place: ast.AST) -> bool:
    for _ in range(_FOLLOWED):
        if not isinstance(value, ast.Name):
            break
        value = script.assigned(value.id, place)
    if not isinstance(value, ast.Call):
        return False
    name = script.dotted(value.func)
    if name.endswith("get_rank") and not value.args and not value.keywords:
        return True
    return name == "int" and any(constant(each) == "RANK" for each in ast.walk(value))


def half_weights_are_scaled(script: Script) -> Iterator[Spot]:
    """All weights are loaded in fp16, and trained with fp16's loss scaling."""
    loaded = [call for call in script.called("from_pretrained") if _is_half(script, call)]
    if loaded and _is_scaled(script) and not script.mentions(*_ADAPTERS):
        yield Spot(
            loaded[0].node, "weights of fp16 under loss scaling: their gradients are refused"
        )


def _is_half(script: Script, call: Called) -> bool:
    value = call.keyword("dtype") or call.keyword("torch_dtype")
    return (constant(value) or script.dotted(value)) in _HALF


def _is_scaled(script: Script) -> bool:
    """Return whether the loss is scaled for fp16: by the Trainer, Accelerate, or a scaler of the script."""
    arguments = (call for call in script.calls if call.last.endswith(("Arguments", "Config")))
    asks = any(call.said("fp16") is True for call in arguments)
    makers = script.called("Accelerator")
    is_mixed = any(call.said("mixed_precision") == "fp16" for call in makers)
    return asks or is_mixed or bool(script.called("GradScaler"))
