"""Rules about batch sizes: what must multiply, and what two tools say of the same."""

from collections.abc import Iterator
from typing import Any

from planner.catalog.configs import trainer_fields
from planner.configs.found import ACCELERATE, DEEPSPEED, LAUNCH, TRAINER, Found, Setting, Setup
from planner.configs.meaning import has_chosen_gpus, is_deepspeed, short, world
from planner.configs.rules.base import Fault, set_to
from planner.core.units import format_gpus

_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def batch_does_not_multiply(setup: Setup) -> Iterator[Fault]:
    """train_batch_size is not micro-batch x accumulation x data-parallel processes."""
    for config in setup.of(DEEPSPEED):
        total, micro, steps = (config.get(name) for name in _BATCH)
        if (
            total is None
            or total.whole is None
            or any(each is not None and each.whole is None for each in (micro, steps))
        ):
            continue
        ranks = _data_parallel(setup, config)
        at_once = (micro.whole or 0 if micro else 1) * (steps.whole or 0 if steps else 1)
        if at_once <= 0:
            continue
        wrong = total.whole % (at_once * (ranks or 1))
        if micro is not None and steps is not None and ranks is not None:
            wrong = total.whole != at_once * ranks
        if wrong:
            has_trainer = bool(setup.of(TRAINER))
            yield _product(total, micro, steps, ranks, may_be_auto=has_trainer)


def _product(
    total: Setting,
    micro: Setting | None,
    steps: Setting | None,
    ranks: int | None,
    *,
    may_be_auto: bool,
) -> Fault:
    factors = [
        f"{each.whole} {words}"
        for each, words in ((micro, "per GPU"), (steps, "accumulated"))
        if each is not None
    ]
    factors += [format_gpus(ranks)] if ranks else []
    product = (ranks or 1) * (micro.whole or 1 if micro else 1) * (steps.whole or 1 if steps else 1)
    if micro is not None and steps is not None and ranks is not None:
        message = f"train_batch_size is {total.whole}, but {' x '.join(factors)} is {product}"
        nearest = product
    else:
        message = f"train_batch_size {total.whole} is no multiple of {' x '.join(factors)}"
        nearest = max(1, round((total.whole or 0) / product)) * product
    if may_be_auto:
        return Fault(
            at=total,
            message=message,
            hint='"auto" is the product of the training arguments',
            edit=set_to(total, '"auto"'),
        )
    hint = f"train_batch_size {nearest} keeps the others"
    return Fault(at=total, message=message, hint=hint, edit=set_to(total, str(nearest)))


def _data_parallel(setup: Setup, config: Found) -> int | None:
    """Return over how many ranks DeepSpeed multiplies: those that see data of their own.

    A process per GPU of the machine that is named, whatever the files start: another rule sets that right.
    """
    ranks = (
        setup.cluster.world_size if setup.cluster and not has_chosen_gpus(setup) else world(setup)
    )
    if ranks is None:
        return None
    divided = setup.model_ranks or (config.whole("sequence_parallel_size") or 1) * (
        config.whole("tensor_parallel.autotp_size") or 1
    )
    return ranks // divided if ranks % divided == 0 else None


_SAME = {
    "train_micro_batch_size_per_gpu": ("per_device_train_batch_size",),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("max_grad_norm",),
    "optimizer.params.lr": ("learning_rate",),
    "optimizer.params.eps": ("adam_epsilon",),
    "optimizer.params.weight_decay": ("weight_decay",),
    "scheduler.params.warmup_max_lr": ("learning_rate",),
    "scheduler.params.warmup_num_steps": ("warmup_steps",),
    "scheduler.params.total_num_steps": ("max_steps",),
    "fp16.enabled": ("fp16", "fp16_full_eval"),
    "bf16.enabled": ("bf16", "bf16_full_eval"),
}
"""Keys of DeepSpeed, and the training arguments that must say the same."""


def deepspeed_and_trainer_disagree(setup: Setup) -> Iterator[Fault]:
    """The DeepSpeed configuration and the training arguments give different values for the same."""
    for config in setup.of(DEEPSPEED):
        for trainer in setup.of(TRAINER):
            for key, names in _SAME.items():
                setting = config.get(key)
                if setting is None or setting.is_auto or not _is_scalar(setting):
                    continue
                value, said = _trainer_value(trainer, names)
                if said and not _is_worked_out(names[0], value) and not _is_same(setting, value):
                    yield Fault(
                        at=setting,
                        message=f"{key} is {short(setting.value)}, but the training arguments have {said}",
                        hint='"auto" takes what they have',
                        edit=set_to(setting, '"auto"'),
                    )
    yield from _accelerate_differs(setup)


def _is_scalar(setting: Setting) -> bool:
    return not setting.is_unread and not isinstance(setting.value, dict)


def _is_worked_out(name: str, value: object) -> bool:
    if name == "max_steps":
        return value in {None, -1.0, -1}
    return name == "warmup_steps" and isinstance(value, int | float) and 0 < value < 1


_OF_PLUGIN = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
}
"""What accelerate's plugin writes into DeepSpeed's configuration, and the training arguments of it."""


def _accelerate_differs(setup: Setup) -> Iterator[Fault]:
    """Yield what accelerate's file or command tells DeepSpeed against the training arguments."""
    if not is_deepspeed(setup):
        return
    for name, argument in _OF_PLUGIN.items():
        told = next(setup.settings(LAUNCH, name), None) or next(
            setup.settings(ACCELERATE, f"deepspeed_config.{name}"), None
        )
        for trainer in setup.of(TRAINER) if told is not None and told.number is not None else ():
            value, said = _trainer_value(trainer, (argument,))
            if told is None or trainer.get("deepspeed") or not said or _is_same(told, value):
                continue
            yield Fault(
                at=told,
                message=f"{told.name} is {short(told.value)}, but the training arguments have {said}",
                hint="the same value here",
                edit=set_to(told, f"{value:g}") if isinstance(value, int | float) else None,
            )


def _trainer_value(trainer: Found, names: tuple[str, ...]) -> tuple[object, str]:
    """Return the value of an argument and its words; no words where it cannot be said."""
    settings = [each for each in (trainer.get(name) for name in names) if each is not None]
    if any(not each.text and not isinstance(each.value, bool) for each in settings):
        return None, ""
    on = [each for each in settings if each.truth]
    if isinstance(trainer_fields().defaults[names[0]], bool):
        if not settings and not trainer.is_whole:
            return None, ""
        return bool(on), f"{names[0]} {str(bool(on)).lower()}"
    if settings:
        return _at_least(names[0], settings[0].number), f"{names[0]} {short(settings[0].value)}"
    if not trainer.is_whole:
        return None, ""
    default = trainer_fields().defaults[names[0]]
    return _at_least(names[0], default), f"{names[0]} {default} by default"


def _at_least(name: str, value: Any) -> Any:
    """Return what the Trainer fills in for an argument: no warm-up is one step of it."""
    return 1 if name == "warmup_steps" and value == 0 else value


def _is_same(setting: Setting, value: object) -> bool:
    if isinstance(value, bool):
        return setting.truth is value
    return setting.number == value


def generations_do_not_divide(setup: Setup) -> Iterator[Fault]:
    """The completions of a generation are no multiple of num_generations."""
    for found in setup.of(TRAINER):
        each = found.get("num_generations", "trl.num_generations")
        micro = found.whole("per_device_train_batch_size")
        steps = found.get("steps_per_generation", "gradient_accumulation_steps")
        ranks = 1 if found.tool == "axolotl" else world(setup)
        passes = 1 if steps is None else steps.whole
        said = found.get("generation_batch_size", "trl.generation_batch_size")
        if said is not None and said.is_unread:
            continue
        whole = None if said is None else said.whole
        at_once = whole or (micro * ranks * passes if micro and ranks and passes else None)
        if each is None or not each.whole or each.whole < 1 or not at_once or at_once < 1:
            continue
        groups = each.whole * (world(setup) or 1)
        if found.tool == "axolotl" and not at_once % each.whole and at_once < groups:
            yield Fault(
                at=each,
                message=f"micro-batch x accumulation is {at_once}, and axolotl wants a group on each rank: {groups}",
                hint=f"micro_batch_size x gradient_accumulation_steps of {groups} or more",
            )
        if at_once % each.whole:
            right = [n for n in range(2, min(at_once, _MOST_GENERATIONS) + 1) if at_once % n == 0]
            yield Fault(
                at=each,
                message=f"{at_once} completions at once are no multiple of num_generations {each.whole}",
                hint=f"one of {', '.join(map(str, right[:8]))}" if right else "a larger batch",
            )


_MOST_GENERATIONS = 4096
"""Of a prompt, of which divisors are listed."""
