"""What the optimizer holds and is given: parameters from before they were sharded, gradients that are still scaled."""

import ast
from collections.abc import Iterator

from planner.core.python_source import Called
from planner.doctor.scripts.reading import Script, Spot

_SHARDS = ("fully_shard", "FullyShardedDataParallel")
_CLIPS = ("clip_grad_norm_", "clip_grad_value_")


def optimizer_is_older_than_the_shards(script: Script) -> Iterator[Spot]:
    """The optimizer is made before the model is sharded."""
    shards = [call for call in script.called(*_SHARDS) if call.node.args]
    for made in script.calls:
        model = _model_of_optimizer(script, made)
        later = [
            call
            for call in shards
            if script.dotted(call.node.args[0]) == model
            and call.node.lineno > made.node.lineno
            and script.scope(call.node) is script.scope(made.node)
        ]
        if model and later and later[0].said("use_orig_params") is not True:
            yield Spot(
                made.node,
                f"the optimizer has {model}'s parameters from before {later[0].last} (line {later[0].node.lineno})",
                also=(later[0].node.lineno,),
            )


def _model_of_optimizer(script: Script, call: Called) -> str:
    """Return whose parameters() an optimizer of torch is made of; "" of anything else."""
    is_optimizer = "optim" in call.name and call.last[:1].isupper() and call.node.args
    given = call.node.args[0] if is_optimizer else None
    if isinstance(given, ast.Call) and script.dotted(given.func).endswith(".parameters"):
        return script.dotted(given.func).removesuffix(".parameters")
    return ""


def scaled_gradients_are_clipped(script: Script) -> Iterator[Spot]:
    """Gradients are clipped while the GradScaler's factor is still on them."""
    scalers = [call for call in script.called("GradScaler") if call.said("enabled") is not False]
    if not scalers or script.mentions("unscale_", "unscale_gradients", "Accelerator"):
        return
    loops = {script.loop(call.node) for call in script.called("scale") if call.node.args}
    for clip in script.called(*_CLIPS):
        if script.loop(clip.node) in loops - {None}:
            yield Spot(clip.node, f"{clip.last} without scaler.unscale_ clips scaled gradients")
