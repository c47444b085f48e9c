"""What a setup amounts to, as the planner's request: recipe and strategy, as far as its files say."""

from collections.abc import Iterator
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
from planner.configs.jobs import job_fields
from planner.configs.meaning import (
    BLOCK,
    CHECKPOINTING,
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

_OFFLOADS = frozenset({"optimizer", "optimizer+parameters"})
_ALL = 3
"""The stage that divides parameters too."""


def framework(setup: Setup) -> str:
    """Return the framework that the files are for."""
    if setup.of(MEGATRON):
        is_sharded = any((found.whole("zero_stage") or 0) > 1 for found in setup.of(MEGATRON))
        return "torchtitan" if is_sharded else "megatron"
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
    of_job = job_fields(setup)
    for loss in () if of_job else ("fused", "chunked"):
        if any(found.truth(f"{loss}_loss") for found in setup.found):
            fields["loss"] = loss
    for setting in setup.settings(TRAINER, "attn_implementation"):
        if setting.text in trainer_fields().attentions:
            fields["attention"] = trainer_fields().attentions[setting.text]
    if any(found.truth("torch_compile") for found in setup.found):
        fields["compile"] = True
    for setting in setup.settings(TRAINER, "weights"):
        fields["weights_dtype"] = setting.text
    return fields | adapter_fields(setup) | of_job


def _precision(setup: Setup) -> str:
    for found in setup.of(MEGATRON):
        if found.get("fp8_format"):
            return "fp8"
    for found in setup.of(TORCHTITAN):
        is_full = found.get("training.mixed_precision_param")
        return "fp32" if is_full is not None and is_full.text == "float32" else "bf16-mixed"
    names = list(_half_precisions(setup))
    mixed = [
        setting.text
        for kind in (LAUNCH, ACCELERATE)
        for setting in setup.settings(kind, "mixed_precision")
        if setting.text in {"bf16", "fp16", "fp8"}
    ]
    named = [*names, *mixed]
    if named:
        return named[0] if named[0] == "fp8" else f"{named[0]}-mixed"
    if unread_precision(setup) is not None:
        return ""
    if any(each.truth for each in setup.settings(TRAINER, "tf32")):
        return "tf32"
    is_said = bool(setup.of(TRAINER, MEGATRON, DEEPSPEED)) or any(
        setup.settings(ACCELERATE, "mixed_precision")
    )
    return "fp32" if is_said else ""


def _half_precisions(setup: Setup) -> Iterator[str]:
    """Yield the formats that are on: what is said before what a tool does by default."""
    every = setup.of(TRAINER, DEEPSPEED, MEGATRON)
    for found in every:
        for name in ("bf16", "fp16"):
            if found.truth(f"{name}.enabled" if found.kind == DEEPSPEED else name):
                yield name
    for found in every:
        default = found.counting("bf16")
        if default is not None and default.line == 0 and default.truth:
            yield "bf16"


def unread_precision(setup: Setup) -> Setting | None:
    """Return where a format is on or off by what only the run knows, or another program fills in."""
    settings = (
        each
        for found in setup.of(TRAINER, DEEPSPEED, MEGATRON)
        for name in ("bf16", "fp16")
        if (each := found.get(f"{name}.enabled" if found.kind == DEEPSPEED else name)) is not None
        and each.truth is None
        and each.value is not None
        and not (each.is_auto and setup.of(TRAINER))
    )
    return next(settings, None)


def optimizer_setting(setup: Setup) -> Setting | None:
    """Return where an optimizer is named."""
    of_deepspeed = setup.settings(DEEPSPEED, "optimizer.type")
    others = (each for found in setup.found if (each := found.get("optim")) is not None)
    return next(of_deepspeed, None) or next(others, None)


def _optimizer(setup: Setup) -> str:
    said = optimizer_setting(setup)
    return "" if said is None else trainer_fields().optimizers.get(said.text.lower(), "")


def _length(setup: Setup) -> int | None:
    of_titan = [each.whole for each in setup.settings(TORCHTITAN, "training.seq_len")]
    of_megatron = [each.whole for each in setup.settings(MEGATRON, "seq_length")]
    of_trainer = [
        each.whole for found in setup.of(TRAINER) if (each := found.counting("max_length"))
    ]
    blocks = [each.whole for each in setup.settings(TRAINER, BLOCK)]
    blocks = [min(each, learned_positions(setup) or each) for each in blocks if each]
    said = (*of_titan, *of_megatron, *blocks, *of_trainer)
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
    """Return whether activations are recomputed, as some tools do unless told otherwise."""
    said = (each.counting(name) for each in setup.of(TRAINER) for name in CHECKPOINTING)
    by_trainer = any(each is not None and each.truth for each in said)
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
            "expert_parallel_size": size(divided.expert),
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
    said = next(setup.settings(TRAINER, "offload"), None)
    if said is not None and said.text in _OFFLOADS:
        return said.text
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
        micro = _whole(trainer, "per_device_train_batch_size")
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
    setting = trainer.counting(name)
    return None if setting is None else setting.whole


def _megatron(divided: Sizes, gpus: int) -> Fields:
    found = divided.found
    ranks = max(1, gpus // divided.model_parallel)
    micro, total = found.whole("micro_batch_size") or 1, found.whole("global_batch_size")
    fields: Fields = {
        "tensor_parallel_size": size(divided.tensor),
        "pipeline_parallel_size": size(divided.pipeline),
        "context_parallel_size": size(divided.context),
        "expert_parallel_size": size(divided.expert),
        **_expert_tensor(divided),
        "sequence_parallel": found.truth("sequence_parallel") and size(divided.tensor) > 1,
        "zero_stage": found.whole("zero_stage")
        or (1 if found.truth("use_distributed_optimizer") else 0),
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


def _expert_tensor(divided: Sizes) -> Fields:
    """Return over how many GPUs each expert is divided, where there are experts to divide."""
    is_said = divided.expert_tensor is not None and size(divided.expert) > 1
    return {"expert_tensor_parallel_size": size(divided.expert_tensor)} if is_said else {}


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
    local = found.whole("training.local_batch_size") or 8
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
        "expert_parallel_size": size(divided.expert),
        **_expert_tensor(divided),
        "sequence_parallel": size(divided.tensor) > 1,
        "zero_stage": (found.whole("zero_stage") or 3) if ranks // replicas > 1 else 0,
        "offload": offload.text if (offload := found.get("offload")) else "none",
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


def links_left(setup: Setup) -> Fields:
    """Return what NCCL is left with where the environment switches InfiniBand or peer-to-peer off."""
    fields: Fields = {}
    for launch in setup.of(LAUNCH):
        if launch.truth("environment.NCCL_IB_DISABLE"):
            fields["inter_node"] = _SOCKETS
        if launch.truth("environment.NCCL_P2P_DISABLE"):
            fields["peer_to_peer"] = False
    return fields


_SOCKETS = "ethernet-100g"
"""What a node with InfiniBand has besides, at best."""
