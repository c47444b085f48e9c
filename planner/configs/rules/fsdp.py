"""Rules about FSDP's options: the wrapped class, the version, what is saved."""

import re
from collections.abc import Iterator

from planner.catalog.configs import layer_classes
from planner.configs.found import ACCELERATE, TRAINER, Setup
from planner.configs.meaning import (
    CHECKPOINTING,
    fsdp_option,
    fsdp_sections,
    fsdp_version,
    is_fsdp,
)
from planner.configs.rules.base import Fault, removed, renamed, set_to

_KIND_OF_LAYER = re.compile(r"(DecoderLayer|EncoderLayer|VisionBlock|Layer|Block|Stage)$")
_OF_TORCH = ("Embedding", "Linear", "LayerNorm", "RMSNorm", "Dropout", "Conv1d", "Conv2d")
"""Classes of torch.nn that models of any family may have."""
_STRATEGIES_OF_ONE = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "HYBRID_SHARD_ZERO2",
)
_SECOND = 2
"""FSDP 2."""
_AS_BOOL = {"FULL_SHARD": "true", "SHARD_GRAD_OP": "false", "1": "true", "2": "false"}


def wrap_class_is_not_the_models(setup: Setup) -> Iterator[Fault]:
    """fsdp_transformer_layer_cls_to_wrap names a class that the model does not have.

    Why: accelerate looks the class up by name in the model and raises "Could not find the transformer
    layer class"; configurations are copied from one family to another.

    Instead: the class that the message names; or none, then the model's own _no_split_modules are wrapped.

    Source: accelerate.utils.dataclasses, set_auto_wrap_policy (1.15.0); data/configs/layer_classes.toml.
    """
    if setup.model is None:
        return
    right = layer_classes().get(setup.model.model_type)
    for config, prefix in fsdp_sections(setup):
        setting = fsdp_option(config, prefix, "transformer_layer_cls_to_wrap")
        if setting is None or right is None:
            continue
        values = setting.value if isinstance(setting.value, list) else setting.text.split(",")
        wrong = [
            name for name in map(str, values) if name.strip() and not _is_class(name.strip(), right)
        ]
        if wrong:
            names = " and ".join(right)
            yield Fault(
                at=setting,
                message=f"{setup.model.name} has no {wrong[0][:60].strip()}: its layers are {names}",
                edit=set_to(setting, ",".join(right))
                if not isinstance(setting.value, list)
                else None,
            )


def _is_class(name: str, right: tuple[str, ...]) -> bool:
    if name in right:
        return True
    families = {_KIND_OF_LAYER.sub("", each) for each in right}
    is_relative = any(name.startswith(family) for family in families)
    if name.lower() in {each.lower() for each in right}:
        return False
    is_layer = _KIND_OF_LAYER.search(name) is not None
    return (is_relative and not is_layer) or name in _OF_TORCH


def option_is_of_the_other_version(setup: Setup) -> Iterator[Fault]:
    """An option of FSDP 1 stands in a configuration of FSDP 2.

    Why: accelerate drops use_orig_params, sync_module_states and backward_prefetch with a warning,
    sharding_strategy without one; the last is why a job that should shard less shards all.

    Instead: fsdp_reshard_after_forward: true is FULL_SHARD, false is SHARD_GRAD_OP; the others have no
    counterpart. `accelerate to-fsdp2` rewrites a file.

    Source: accelerate.utils.dataclasses, FullyShardedDataParallelPlugin.__post_init__ (1.15.0).
    """
    for config, prefix in fsdp_sections(setup):
        if fsdp_version(config, prefix) != _SECOND:
            continue
        strategy = fsdp_option(config, prefix, "sharding_strategy")
        if strategy is not None:
            value = _AS_BOOL.get(strategy.text.upper())
            yield Fault(
                at=strategy,
                message=f"{strategy.name} does nothing in FSDP 2",
                hint=f"fsdp_reshard_after_forward: {value}"
                if value
                else "FSDP 2 shards in full or until backward",
                edit=removed(strategy),
            )
        for name in ("use_orig_params", "sync_module_states", "backward_prefetch"):
            setting = fsdp_option(config, prefix, name)
            if (
                setting is not None
                and setting.value is not None
                and setting.text.upper() != "NO_PREFETCH"
            ):
                yield Fault(
                    at=setting,
                    message=f"{setting.name} does nothing in FSDP 2",
                    hint="leave it out",
                    edit=removed(setting),
                )


def option_is_refused_by_fsdp2(setup: Setup) -> Iterator[Fault]:
    """FSDP 2 is given a value that only FSDP 1 takes.

    Why: reshard_after_forward must be a truth value there, forward_prefetch is not written yet,
    LOCAL_STATE_DICT does not exist, and the Trainer takes no hybrid_shard: each raises an error.

    Instead: what the message names.

    Source: accelerate.utils.dataclasses, FullyShardedDataParallelPlugin (1.15.0); transformers.training_args,
    _apply_legacy_fsdp_to_config (5.23.0).
    """
    for config, prefix in fsdp_sections(setup):
        if fsdp_version(config, prefix) != _SECOND:
            continue
        reshard = fsdp_option(config, prefix, "reshard_after_forward")
        if reshard is not None and reshard.text.upper() in _STRATEGIES_OF_ONE:
            value = _AS_BOOL.get(reshard.text.upper())
            yield Fault(
                at=reshard,
                message=f"{reshard.name} is {reshard.text}, and FSDP 2 takes true or false",
                hint=value or "true",
                edit=set_to(reshard, value) if value else None,
            )
        forward = fsdp_option(config, prefix, "forward_prefetch")
        if forward is not None and config.kind != TRAINER and forward.truth:
            yield Fault(
                at=forward,
                message="forward_prefetch is not written for FSDP 2 and raises an error",
                hint="leave it out",
                edit=removed(forward),
            )
        states = fsdp_option(config, prefix, "state_dict_type")
        if states is not None and states.text == "LOCAL_STATE_DICT":
            yield Fault(
                at=states,
                message="FSDP 2 has no LOCAL_STATE_DICT",
                hint="SHARDED_STATE_DICT",
                edit=set_to(states, "SHARDED_STATE_DICT"),
            )
    yield from _hybrid(setup)


def _hybrid(setup: Setup) -> Iterator[Fault]:
    for trainer in setup.of(TRAINER):
        setting = trainer.get("fsdp")
        words = (
            setting.value
            if setting and isinstance(setting.value, list)
            else (setting.text.split() if setting else [])
        )
        hybrid = next(
            (
                word
                for word in words
                if str(word).lower() in {"hybrid_shard", "hybrid_shard_zero2", "no_shard"}
            ),
            None,
        )
        if setting is not None and hybrid and fsdp_version(trainer, "fsdp_config.") == _SECOND:
            yield Fault(
                at=setting,
                message=f"fsdp {hybrid} exists in FSDP 1 only, and the Trainer takes FSDP 2",
                hint="full_shard; hybrid sharding by ParallelismConfig(dp_replicate_size, dp_shard_size)",
            )


def weights_are_saved_in_shards(setup: Setup) -> Iterator[Fault]:
    """The state dict is saved in shards, so save_model at the end writes no model.

    Why: the Trainer writes weights under FULL_STATE_DICT alone; shards are fast to save and to resume
    from, and from_pretrained does not read them.

    Instead: SHARDED_STATE_DICT while training, and `accelerate merge-weights` afterwards, or
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT") before the last save.

    Source: transformers.trainer, save_model (5.23.0); accelerate merge-weights (1.15.0).
    """
    for config, prefix in fsdp_sections(setup):
        setting = fsdp_option(config, prefix, "state_dict_type")
        if setting is not None and setting.text == "SHARDED_STATE_DICT" and _trains(setup):
            yield Fault(
                at=setting,
                message="save_model() writes no weights under SHARDED_STATE_DICT",
                hint="`accelerate merge-weights` on the checkpoint, or FULL_STATE_DICT before the last save",
            )


def _trains(setup: Setup) -> bool:
    """Return whether transformers' Trainer saves; with accelerate alone, or the planner's, the script decides."""
    return bool(setup.of(TRAINER)) and setup.model_ranks is None


def weights_are_read_but_not_spread(setup: Setup) -> Iterator[Fault]:
    """fsdp_cpu_ram_efficient_loading is on without fsdp_sync_module_states.

    Why: only rank 0 reads the weights then, and nobody hands them to the others; accelerate launch
    raises ValueError. FSDP 2 spreads them itself.

    Instead: both on.

    Source: accelerate.utils.launch, prepare_multi_gpu_env (1.15.0).
    """
    for config, prefix in fsdp_sections(setup):
        loading = fsdp_option(config, prefix, "cpu_ram_efficient_loading")
        states = fsdp_option(config, prefix, "sync_module_states")
        if config.kind == TRAINER or loading is None or not loading.truth:
            continue
        if states is not None and states.truth is False:
            yield Fault(
                at=states,
                message="with cpu_ram_efficient_loading only rank 0 has weights: sync_module_states must be on",
                hint="true",
                edit=set_to(states, "true"),
            )


def recomputed_twice(setup: Setup) -> Iterator[Fault]:
    """FSDP's activation checkpointing and the Trainer's are both on.

    Why: the Trainer raises ValueError: each would run the forward pass again.

    Instead: FSDP's alone.

    Source: transformers.trainer, create_accelerator_and_postprocess (5.23.0).
    """
    for config, prefix in fsdp_sections(setup):
        sharded = fsdp_option(config, prefix, "activation_checkpointing")
        for setting in setup.settings(TRAINER, *CHECKPOINTING):
            if sharded is not None and sharded.truth and setting.truth:
                off = "False" if setting.file.endswith(".py") else "false"
                yield Fault(
                    at=setting,
                    message=f"{setting.name} and FSDP's activation_checkpointing are both on",
                    hint="FSDP's alone",
                    edit=set_to(setting, off),
                )


def model_is_one_unit(setup: Setup) -> Iterator[Fault]:
    """FSDP wraps the whole model as one unit.

    Why: without a wrap policy all parameters are gathered at once, so the peak is that of a whole
    model, and nothing overlaps. accelerate's own default is NO_WRAP.

    Instead: fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP.

    Source: accelerate.utils.dataclasses, FullyShardedDataParallelPlugin, auto_wrap_policy (1.15.0).
    """
    for config in setup.of(ACCELERATE):
        kind = config.get("distributed_type")
        if kind is None or kind.text != "FSDP":
            continue
        policy = config.get("fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.auto_wrap_policy")
        if policy is None or policy.text.upper() == "NO_WRAP":
            yield Fault(
                at=policy or config.get("fsdp_config") or kind,
                message="no wrap policy: FSDP gathers the whole model at once",
                hint="fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
                edit=None if policy is None else set_to(policy, "TRANSFORMER_BASED_WRAP"),
            )


def fsdp_config_is_ignored(setup: Setup) -> Iterator[Fault]:
    """TrainingArguments has an fsdp_config, but fsdp is off.

    Why: without fsdp the Trainer never looks at fsdp_config: every GPU holds a whole replica (DDP).
    An accelerate file that starts FSDP makes up for it.

    Instead: fsdp=True.

    Source: transformers.training_args, _process_fsdp_args (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        setting = trainer.get("fsdp_config")
        is_given = setting is not None and setting.value not in (None, "")
        if setting is not None and is_given and trainer.is_whole and not is_fsdp(setup):
            yield Fault(
                at=setting,
                message="fsdp_config does nothing without fsdp: every GPU holds the whole model",
                hint="fsdp=True",
            )


def version_is_going(setup: Setup) -> Iterator[Fault]:
    """FSDP 1 is asked for, which the Trainer calls deprecated.

    Why: transformers removes it in 5.20 by its own words, and PyTorch writes FSDP 2 on only.

    Instead: version 2: reshard_after_forward in place of sharding_strategy, none of use_orig_params,
    sync_module_states, backward_prefetch.

    Source: transformers.training_args, _process_fsdp_args (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        setting = fsdp_option(trainer, "fsdp_config.", "version")
        if setting is not None and setting.whole == 1:
            yield Fault(
                at=setting,
                message="FSDP 1 is deprecated in the Trainer",
                hint="version 2",
                edit=set_to(setting, "2"),
            )


def name_is_of_another_tool(setup: Setup) -> Iterator[Fault]:
    """An option of FSDP has the name that another tool gives it, and is ignored.

    Why: accelerate copies fsdp_config key by key onto its flags: a name that no flag has changes nothing
    and is not refused. The Trainer's cpu_offload is fsdp_offload_params there.

    Instead: the name that the message has.

    Source: accelerate.commands.launch, _validate_launch_command (1.15.0).
    """
    names = {
        "cpu_offload": "offload_params",
        "offload": "offload_params",
        "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
    }
    for config in setup.of(ACCELERATE):
        for wrong, right in names.items():
            setting = fsdp_option(config, "fsdp_config.", wrong)
            if setting is not None:
                yield Fault(
                    at=setting,
                    message=f"{setting.name} does nothing: accelerate calls it fsdp_{right}",
                    hint=f"fsdp_{right}",
                    edit=renamed(setting, f"fsdp_{right}"),
                )
