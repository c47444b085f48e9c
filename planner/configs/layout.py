"""What a setup amounts to, as the planner's request: recipe and strategy, as far as its files say."""

from typing import Any, TypeAlias

from planner.catalog.configs import trainer_fields
from planner.configs.adapters import adapter_fields
from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    MEGATRON,
    TORCHTITAN,
    TRAINER,
    Found,
    Setting,
    Setup,
)
from planner.configs.meaning import (
    BLOCK,
    CHECKPOINTING,
    LENGTHS,
    fsdp_option,
    fsdp_sections,
    is_deepspeed,
    is_fsdp,
    learned_positions,
    offloads,
    stages,
    world,
)
from planner.configs.sizes import Sizes, size, sizes
from planner.domain.recompute_modules import MODULES

Fields: TypeAlias = dict[str, Any]

_ALL = 3
"""The stage that divides parameters too."""
_FUSED_LOSS = ("use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy")


def framework(setup: Setup) -> str:
    """Return the framework that the files are for."""
    if setup.of(MEGATRON):
        return "megatron"
    if setup.of(TORCHTITAN):
        return "torchtitan"
    if is_deepspeed(setup):
        return "deepspeed"
    return "accelerate" if setup.of(ACCELERATE, TRAINER) else "torch"


def recipe_fields(setup: Setup) -> Fields:
    """Return what the files say of the run, whatever its layout: precision, optimizer, sequence length."""
    fields: Fields = {"framework": framework(setup)}
    precision = _precision(setup)
    if precision:
        fields["precision"] = precision
    optimizer = _optimizer(setup)
    if optimizer:
        fields["optimizer"] = optimizer
    length = _length(setup)
    if length:
        fields["sequence_length"] = length
    if any(each.truth for each in setup.settings(TRAINER, "flash_attention")):
        fields["attention"] = "flash"
    if any(found.truth(name) for found in setup.of(TRAINER) for name in _FUSED_LOSS):
        fields["loss"] = "fused"
    for setting in setup.settings(TRAINER, "attn_implementation", "flash_attn"):
        if setting.text in trainer_fields().attentions:
            fields["attention"] = trainer_fields().attentions[setting.text]
    if any(each.truth for each in setup.settings(TRAINER, "torch_compile")):
        fields["compile"] = True
    return fields | adapter_fields(setup)


def _precision(setup: Setup) -> str:
    for found in setup.of(MEGATRON):
        if found.get("fp8_format"):
            return "fp8"
    for found in setup.of(TORCHTITAN):
        is_full = found.get("training.mixed_precision_param")
        return "fp32" if is_full is not None and is_full.text == "float32" else "bf16-mixed"
    names = [
        name
        for name in ("bf16", "fp16")
        for found in setup.of(TRAINER, DEEPSPEED, MEGATRON)
        if found.truth(f"{name}.enabled" if found.kind == DEEPSPEED else name)
    ]
    mixed = [
        setting.text
        for kind in (LAUNCH, ACCELERATE)
        for setting in setup.settings(kind, "mixed_precision")
        if setting.text in {"bf16", "fp16", "fp8"}
    ]
    named = [*names, *mixed]
    if named:
        return named[0] if named[0] == "fp8" else f"{named[0]}-mixed"
    if any(each.truth for each in setup.settings(TRAINER, "tf32")):
        return "tf32"
    is_said = bool(setup.of(TRAINER, MEGATRON)) or any(
        setup.settings(ACCELERATE, "mixed_precision")
    )
    return "fp32" if is_said else ""


def _optimizer(setup: Setup) -> str:
    known = trainer_fields().optimizers
    for found in setup.of(DEEPSPEED):
        kind = found.get("optimizer.type")
        if kind is not None:
            return known.get(kind.text.lower(), "")
    for setting in setup.settings(TRAINER, "optim", "optimizer"):
        return known.get(setting.text, "")
    return ""


def _length(setup: Setup) -> int | None:
    of_titan = [each.whole for each in setup.settings(TORCHTITAN, "training.seq_len")]
    of_megatron = [each.whole for each in setup.settings(MEGATRON, "seq_length")]
    of_trainer = [each.whole for each in setup.settings(TRAINER, *LENGTHS)]
    blocks = [each.whole for each in setup.settings(TRAINER, BLOCK)]
    blocks = [min(each, learned_positions(setup) or each) for each in blocks if each]
    said = (*of_titan, *of_megatron, *of_trainer, *blocks)
    return next((each for each in said if each and each > 0), None)


def strategy_fields(setup: Setup, gpus: int, nodes: int) -> Fields:
    """Return the layout on these GPUs; what the files leave open is left out."""
    divided = next(sizes(setup), None)
    if setup.of(MEGATRON) and divided is not None:
        return _megatron(divided, gpus)
    if setup.of(TORCHTITAN) and divided is not None:
        return _torchtitan(divided, gpus)
    fields = _data_parallel(setup, gpus, nodes, divided)
    micro, steps = _batch(setup, gpus // (divided.model_parallel if divided else 1))
    if micro:
        fields["micro_batch_size"] = micro
    if steps:
        fields["gradient_accumulation_steps"] = steps
    fields["recompute"] = "full" if _recomputes(setup) else "none"
    return fields


def _recomputes(setup: Setup) -> bool:
    """Return whether activations are recomputed, as LLaMA-Factory does unless told otherwise."""
    for found in setup.of(TRAINER):
        if found.get("finetuning_type") is not None:
            return not found.truth("disable_gradient_checkpointing")
    by_trainer = any(each.truth for each in setup.settings(TRAINER, *CHECKPOINTING))
    options = (
        fsdp_option(found, prefix, "activation_checkpointing")
        for found, prefix in fsdp_sections(setup)
    )
    return by_trainer or any(each is not None and each.truth is True for each in options)


def _data_parallel(setup: Setup, gpus: int, nodes: int, divided: Sizes | None) -> Fields:
    ranks = gpus // (divided.model_parallel if divided else 1)
    fields: Fields = {}
    if divided is not None:
        fields = {
            "tensor_parallel_size": size(divided.tensor),
            "context_parallel_size": size(divided.context) * size(divided.sequence),
        }
        if size(divided.replicas) > 1:
            fields["data_parallel_replicate_size"] = size(divided.replicas)
            fields["data_parallel_shard_size"] = max(1, ranks // size(divided.replicas))
    found = stages(setup)
    if is_fsdp(setup) and not found:
        return fields | _sharded(setup, gpus, nodes)
    stage = (
        found[0][0] if found else (0 if not setup.of(ACCELERATE) or not is_deepspeed(setup) else 2)
    )
    fields["zero_stage"] = min(3, max(0, stage))
    fields["offload"] = _offload(setup, stage)
    return fields


def _offload(setup: Setup, stage: int) -> str:
    devices = {
        what: any(offloads(found, f"offload_{what}") for found in setup.of(DEEPSPEED))
        or any(
            each.text in {"cpu", "nvme"}
            for each in setup.settings(ACCELERATE, f"deepspeed_config.offload_{what}_device")
        )
        for what in ("param", "optimizer")
    }
    if devices["param"] and stage == _ALL:
        return "optimizer+parameters"
    return "optimizer" if devices["optimizer"] and stage > 0 else "none"


def _sharded(setup: Setup, gpus: int, nodes: int) -> Fields:
    fields: Fields = {"zero_stage": 3, "offload": "none"}
    words: list[str] = []
    for found, prefix in fsdp_sections(setup):
        strategy = fsdp_option(found, prefix, "sharding_strategy")
        reshard = fsdp_option(found, prefix, "reshard_after_forward")
        words += [each.text.upper() for each in (strategy, reshard) if each is not None]
        if reshard is not None and reshard.truth is False:
            fields["zero_stage"] = 2
        offload = fsdp_option(found, prefix, "offload_params") or fsdp_option(
            found, prefix, "cpu_offload"
        )
        if offload is not None and offload.truth:
            fields["offload"] = "optimizer+parameters"
    for setting in setup.settings(TRAINER, "fsdp"):
        listed = setting.value if isinstance(setting.value, list) else setting.text.split()
        words += [str(each).upper() for each in listed]
    if "OFFLOAD" in words:
        fields["offload"] = "optimizer+parameters"
    named = next((word for word in words if word in trainer_fields().shardings), "")
    if named:
        fields["zero_stage"] = trainer_fields().shardings[named]
    if named.startswith("HYBRID") and nodes > 1 and gpus % nodes == 0:
        fields |= {"data_parallel_replicate_size": nodes, "data_parallel_shard_size": gpus // nodes}
    return fields


def _batch(setup: Setup, ranks: int) -> tuple[int | None, int | None]:
    """Return micro-batch and accumulation: DeepSpeed's numbers, or the training arguments'."""
    micro = steps = None
    for trainer in setup.of(TRAINER):
        micro = trainer.whole("micro_batch_size") or _whole(trainer, "per_device_train_batch_size")
        steps = _whole(trainer, "gradient_accumulation_steps")
    for found in setup.of(DEEPSPEED):
        micro = found.whole("train_micro_batch_size_per_gpu") or micro
        steps = found.whole("gradient_accumulation_steps") or steps
        total = found.whole("train_batch_size")
        if total and micro and not steps and total % (micro * ranks) == 0:
            steps = total // (micro * ranks)
        elif total and not micro and total % (ranks * (steps or 1)) == 0:
            micro = total // (ranks * (steps or 1))
    for setting in setup.settings(ACCELERATE, "deepspeed_config.gradient_accumulation_steps"):
        steps = setting.whole or steps
    return micro, steps or (1 if micro else None)


def _whole(trainer: Found, name: str) -> int | None:
    setting: Setting | None = trainer.get(name)
    if setting is not None:
        return setting.whole
    default = trainer_fields().defaults[name]
    return int(default) if trainer.is_whole else None


def _megatron(divided: Sizes, gpus: int) -> Fields:
    found = divided.found
    ranks = max(1, gpus // divided.model_parallel)
    micro, total = found.whole("micro_batch_size") or 1, found.whole("global_batch_size")
    fields: Fields = {
        "tensor_parallel_size": size(divided.tensor),
        "pipeline_parallel_size": size(divided.pipeline),
        "context_parallel_size": size(divided.context),
        "expert_parallel_size": size(divided.expert),
        "sequence_parallel": found.truth("sequence_parallel") and size(divided.tensor) > 1,
        "zero_stage": 1 if found.truth("use_distributed_optimizer") else 0,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": max(1, (total or micro * ranks) // (micro * ranks)),
        "recompute": _granularity(found),
    }
    modules = _modules(found)
    if modules and fields["recompute"] == "selective":
        fields["recompute_modules"] = modules
    chunks = found.whole("num_virtual_stages_per_pipeline_rank")
    if chunks and chunks > 1:
        fields |= {"virtual_pipeline_size": chunks, "pipeline_schedule": "interleaved-1f1b"}
    return fields


def _granularity(found: Found) -> str:
    said = found.get("recompute_granularity")
    if said is not None and said.text in {"full", "selective"}:
        return said.text
    return "selective" if found.truth("recompute_activations") else "none"


def _modules(found: Found) -> list[str]:
    said = found.get("recompute_modules")
    named = said.value if said is not None and isinstance(said.value, list) else []
    named = [said.text] if said is not None and not named else named
    return [name for name in MODULES if name in named]


def _torchtitan(divided: Sizes, gpus: int) -> Fields:
    found = divided.found
    ranks = max(1, gpus // divided.model_parallel)
    replicas = size(divided.replicas)
    local = found.whole("training.local_batch_size", "training.batch_size") or 8
    total = found.whole("training.global_batch_size")
    stages = size(divided.pipeline)
    micro = (
        found.whole("parallelism.pipeline_parallel_microbatch_size") or 1 if stages > 1 else local
    )
    passes = (total if total and total > 0 else local * ranks) // (micro * ranks)
    mode = found.get("activation_checkpoint.mode")
    return {
        "tensor_parallel_size": size(divided.tensor),
        "pipeline_parallel_size": stages,
        "context_parallel_size": size(divided.context),
        "data_parallel_replicate_size": replicas,
        "data_parallel_shard_size": max(1, ranks // replicas),
        "sequence_parallel": size(divided.tensor) > 1,
        "zero_stage": 3 if ranks // replicas > 1 else 0,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": max(1, passes),
        "recompute": mode.text
        if mode is not None and mode.text in {"none", "full"}
        else "selective",
    }


def cluster_fields(setup: Setup, nodes: int | None = None) -> Fields:
    """Return the GPUs that the files start processes on, {} where they do not say how many.

    Args:
        setup: the files.
        nodes: where they were said; the files' own else.
    """
    ranks = world(setup)
    if ranks is None:
        return {}
    count = nodes or num_nodes(setup) or 1
    count = count if ranks % count == 0 else 1
    return {"gpus_per_node": ranks // count, "nodes": count}


def num_nodes(setup: Setup) -> int | None:
    """Return how many nodes the files are for; None where they do not say."""
    nodes = (
        found.whole("nnodes", "num_machines", "num_nodes") for found in setup.of(LAUNCH, ACCELERATE)
    )
    return next((each for each in nodes if each and each > 0), None)
