"""Rules about what trains: number formats, DeepSpeed and FSDP, the Trainer; which exclude each other, or do nothing."""

import re
from collections.abc import Iterator

from planner.catalog.configs import layer_classes
from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    MEGATRON,
    TRAINER,
    Found,
    Setting,
    Setup,
)
from planner.configs.meaning import (
    fsdp_option,
    fsdp_sections,
    is_deepspeed,
    is_fsdp,
    is_older,
    world,
)
from planner.configs.rules.base import Fault, off, set_to

_AMPERE = "8.0"


def both_half_precisions(setup: Setup) -> Iterator[Fault]:
    """fp16 and bf16 are both on."""
    for found in setup.of(TRAINER, MEGATRON):
        one, other = found.get("fp16"), found.get("bf16")
        is_chosen = found.tool == "axolotl"  # which takes bf16: CFG087
        if one is not None and other is not None and one.truth and other.truth and not is_chosen:
            yield _both(one, other, setup)
    for found in setup.of(DEEPSPEED):
        one, other = found.get("fp16.enabled"), found.get("bf16.enabled")
        if one is not None and other is not None and one.truth and other.truth:
            yield _both(one, other, setup)


def _both(fp16: Setting, bf16: Setting, setup: Setup) -> Fault:
    gpu = setup.gpu
    has_bf16 = gpu is None or not is_older(gpu, _AMPERE)
    wrong, kept = (fp16, bf16) if has_bf16 else (bf16, fp16)
    at = max(fp16, bf16, key=lambda each: each.line)
    return Fault(
        at=at,
        message=f"{fp16.key} and {bf16.key} are both on",
        hint=f"leave {wrong.key} out"
        + (f": {gpu.name} has {kept.key.partition('.')[0]}" if gpu else ""),
        edit=set_to(wrong, off(wrong)),
    )


def shards_of_hpz_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """zero_hpz_partition_size does not divide the processes, or is no node's GPUs."""
    for config in setup.of(DEEPSPEED):
        setting = config.get("zero_optimization.zero_hpz_partition_size")
        size, ranks = (setting.whole if setting else None), world(setup)
        if setting is None or size is None or size <= 1 or ranks is None:
            continue
        per_node = setup.cluster.gpus_per_node if setup.cluster else None
        if ranks % min(size, ranks):
            yield Fault(
                at=setting,
                message=f"zero_hpz_partition_size {size} does not divide {ranks} processes",
                hint=f"{per_node}, the GPUs of a node" if per_node else "the GPUs of a node",
                edit=set_to(setting, str(per_node)) if per_node else None,
            )


def two_engines_at_once(setup: Setup) -> Iterator[Fault]:
    """DeepSpeed and FSDP are both asked for."""
    if not (is_deepspeed(setup) and is_fsdp(setup)):
        return
    for found in setup.of(TRAINER):
        setting = found.get("fsdp", "fsdp_config")
        if any(each.is_unread for each in (setting, found.get("deepspeed")) if each is not None):
            return
        if setting is not None and setting.value not in (None, "", False):
            yield Fault(
                at=setting,
                message="FSDP is asked for here, and DeepSpeed too: only one can run",
                hint="leave one out",
            )
            return
    for found in setup.of(ACCELERATE):
        setting = found.get("distributed_type")
        if setting is not None:
            other = "DeepSpeed" if setting.text == "FSDP" else "FSDP"
            yield Fault(
                at=setting,
                message=f"distributed_type is {setting.text}, and {other} is asked for too: only one can run",
                hint="leave one out",
            )
            return


def section_is_ignored(setup: Setup) -> Iterator[Fault]:
    """An accelerate file configures an engine that its distributed_type does not start."""
    wanted = {
        "deepspeed_config": "DEEPSPEED",
        "fsdp_config": "FSDP",
        "megatron_lm_config": "MEGATRON_LM",
    }
    for config in setup.of(ACCELERATE):
        kind = config.get("distributed_type")
        for section, name in wanted.items():
            setting = config.get(section)
            is_filled = any(key.startswith(f"{section}.") for key in config.settings)
            if kind is None or setting is None or not is_filled or kind.text in {name, ""}:
                continue
            yield Fault(
                at=kind,
                message=f"distributed_type is {kind.text}, so {section} (line {setting.line}) does nothing",
                hint=f"{name}, or no {section}",
                edit=set_to(kind, name),
            )


_KIND_OF_LAYER = re.compile(r"(DecoderLayer|EncoderLayer|VisionBlock|Layer|(?<!Moe)Block|Stage)$")
_OF_TORCH = ("Embedding", "Linear", "LayerNorm", "RMSNorm", "Dropout", "Conv1d", "Conv2d")
"""Classes of torch.nn that models of any family may have."""


def wrap_class_is_not_the_models(setup: Setup) -> Iterator[Fault]:
    """fsdp_transformer_layer_cls_to_wrap names a class that the model does not have."""
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


def saves_do_not_meet_evaluations(setup: Setup) -> Iterator[Fault]:
    """load_best_model_at_end is on, but the model is not saved when it is evaluated."""
    for trainer in setup.of(TRAINER):
        best = trainer.get("load_best_model_at_end")
        if best is None or not best.truth:
            continue
        evaluated, saved = trainer.get("eval_strategy"), trainer.get("save_strategy")
        words = evaluated.text if evaluated else "no", saved.text if saved else "steps"
        is_said = trainer.is_whole or (evaluated is not None and saved is not None)
        if "best" in words[1:] or not is_said or any(not each for each in words):
            continue
        if words[0] != words[1]:
            yield Fault(
                at=saved or best,
                message=f'load_best_model_at_end: eval_strategy is "{words[0]}", save_strategy "{words[1]}"',
                hint=f'save_strategy "{words[0]}", as eval_strategy'
                if words[0] != "no"
                else _strategy_to_take(words[1]),
            )
        elif words[0] == "steps":
            yield from _multiples(trainer)


def _strategy_to_take(saved: str) -> str:
    """Return when to evaluate where nobody does: as often as is saved."""
    is_both = saved in {"steps", "epoch"}
    return f'eval_strategy "{saved}", as save_strategy' if is_both else 'eval_strategy "epoch"'


def _multiples(trainer: Found) -> Iterator[Fault]:
    every = trainer.get("eval_steps", "logging_steps")
    saves = trainer.get("save_steps")
    evaluations = every.whole if every else 500
    steps = saves.whole if saves else 500
    if (saves is None and every is None) or not evaluations or not steps:
        return
    at = saves or every
    if at is not None and steps % evaluations:
        yield Fault(
            at=at,
            message=f"load_best_model_at_end: save_steps {steps} is no multiple of eval_steps {evaluations}",
            hint=f"save_steps {max(1, round(steps / evaluations)) * evaluations}",
            edit=None
            if saves is None
            else set_to(saves, str(max(1, round(steps / evaluations)) * evaluations)),
        )


def warm_up_outlasts_the_run(setup: Setup) -> Iterator[Fault]:
    """The learning rate is warmed up for as many steps as the run has, or more."""
    for trainer in setup.of(TRAINER):
        warm, steps = trainer.get("warmup_steps"), trainer.get("max_steps")
        if warm is None or steps is None or warm.number is None or not (steps.whole or 0) > 0:
            continue
        if warm.number >= (steps.whole or 0):
            yield Fault(
                at=warm,
                message=f"warmup_steps {warm.text} of max_steps {steps.whole}: learning_rate is never reached",
                hint="a share, such as 0.03",
                edit=set_to(warm, "0.03"),
            )
