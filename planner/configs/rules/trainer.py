"""Rules about TrainingArguments: what excludes each other, what is overruled in silence."""

from collections.abc import Iterator

from planner.configs.found import TRAINER, Found, Setup
from planner.configs.meaning import CHECKPOINTING, fsdp_option, fsdp_sections, is_deepspeed, is_fsdp
from planner.configs.rules.base import Fault, removed, set_to


def saves_do_not_meet_evaluations(setup: Setup) -> Iterator[Fault]:
    """load_best_model_at_end is on, but the model is not saved when it is evaluated.

    Why: the best checkpoint must exist: the Trainer raises ValueError unless both strategies are the
    same, and save_steps a multiple of eval_steps. The defaults are eval_strategy "no" and
    save_strategy "steps".

    Instead: the same strategy for both, or save_strategy="best".

    Source: transformers.training_args, _validate_args (5.23.0).
    """
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


def epochs_are_overruled(setup: Setup) -> Iterator[Fault]:
    """max_steps and num_train_epochs are both given.

    Why: max_steps wins. It counts optimizer steps of all GPUs together, so more GPUs see more data
    in as much time, and the run gets no shorter.

    Instead: one of them; with max_steps, divide it by how much the global batch has grown.

    Source: transformers.training_args, max_steps (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        steps, epochs = trainer.get("max_steps"), trainer.get("num_train_epochs")
        if steps is not None and epochs is not None and (steps.whole or 0) > 0:
            yield Fault(
                at=epochs,
                message=f"num_train_epochs does nothing beside max_steps {steps.whole}",
                hint="leave one of them out",
                edit=removed(epochs),
            )


def warm_up_outlasts_the_run(setup: Setup) -> Iterator[Fault]:
    """The learning rate is warmed up for as many steps as the run has, or more.

    Why: it never reaches learning_rate.

    Instead: a share of the steps: warmup_steps below 1 is one, such as 0.03.

    Source: transformers.training_args, get_warmup_steps (5.23.0); transformers.optimization.
    """
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


def prefetch_without_workers(setup: Setup) -> Iterator[Fault]:
    """dataloader_prefetch_factor is set, but there are no workers to prefetch.

    Why: the Trainer raises ValueError.

    Instead: dataloader_num_workers of at least 1.

    Source: transformers.training_args, _validate_args (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        factor, workers = (
            trainer.get("dataloader_prefetch_factor"),
            trainer.get("dataloader_num_workers"),
        )
        if factor is None or factor.value is None:
            continue
        if (workers is None and trainer.is_whole) or (workers is not None and workers.whole == 0):
            yield Fault(
                at=factor,
                message="dataloader_prefetch_factor needs dataloader_num_workers above 0",
                hint="dataloader_num_workers 4",
                edit=None if workers is None else set_to(workers, "4"),
            )


def batches_are_made_between_steps(setup: Setup) -> Iterator[Fault]:
    """dataloader_num_workers is 0.

    Why: each process then makes its batches between two steps, and the GPU waits; several processes
    on a node do so at the same time.

    Instead: a few workers for each process, all together no more than the cores of the node.

    Source: PyTorch, Performance Tuning Guide, asynchronous data loading.
    """
    for trainer in setup.of(TRAINER):
        workers = trainer.get("dataloader_num_workers")
        has_prefetch = trainer.get("dataloader_prefetch_factor") is not None
        if workers is not None and workers.whole == 0 and not has_prefetch:
            yield Fault(
                at=workers,
                message="dataloader_num_workers 0: the GPU waits while batches are made",
                hint="a few for each process, at most the node's cores in all",
                edit=set_to(workers, "4"),
            )


def reentrant_recompute_with_unused_parameters(setup: Setup) -> Iterator[Fault]:
    """Reentrant checkpointing and ddp_find_unused_parameters are both on.

    Why: DDP walks the graph for unused parameters before backward, and reentrant checkpointing
    builds parts of it in backward: "Expected to mark a variable ready only once".

    Instead: use_reentrant false, which is what transformers takes where nothing is said.

    Source: run with torch 2.13.0: only this pair of the four fails; transformers.modeling_utils,
    activation_checkpointing_enable (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        unused = trainer.get("ddp_find_unused_parameters")
        on = trainer.get(*CHECKPOINTING)
        reentrant = trainer.get(*(f"{name}_kwargs.use_reentrant" for name in CHECKPOINTING))
        if unused is None or on is None or reentrant is None or is_deepspeed(setup):
            continue
        if unused.truth and on.truth and reentrant.truth:
            off = "False" if reentrant.file.endswith(".py") else "false"
            yield Fault(
                at=reentrant,
                message="use_reentrant with ddp_find_unused_parameters: DDP marks a variable ready twice",
                hint="use_reentrant false",
                edit=set_to(reentrant, off),
            )


def cache_is_kept_while_recomputing(setup: Setup) -> Iterator[Fault]:
    """use_cache and gradient checkpointing are both on.

    Why: keys and values kept for generation are of no use in training; the layers turn the cache
    off under checkpointing and warn at every start.

    Instead: use_cache off.

    Source: transformers.modeling_layers, GradientCheckpointingLayer (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        cache, on = trainer.get("use_cache"), trainer.get(*CHECKPOINTING)
        if cache is not None and on is not None and cache.truth and on.truth:
            off = "False" if cache.file.endswith(".py") else "false"
            yield Fault(
                at=cache,
                message=f"use_cache is turned off by {on.name}",
                hint="use_cache false",
                edit=set_to(cache, off),
            )


def recompute_gathers_again(setup: Setup) -> Iterator[Fault]:
    """Under FSDP, checkpointing is asked of the Trainer and not of FSDP.

    Why: the Trainer's own gathers the parameters once more in backward; transformers warns.

    Instead: activation_checkpointing in fsdp_config.

    Source: transformers.training_args, _process_fsdp_args (5.23.0); transformers#30404.
    """
    if not is_fsdp(setup):
        return
    sharded = (
        fsdp_option(each, prefix, "activation_checkpointing")
        for each, prefix in fsdp_sections(setup)
    )
    if any(each is not None and each.truth for each in sharded):
        return
    for setting in setup.settings(TRAINER, *CHECKPOINTING):
        if setting.truth:
            yield Fault(
                at=setting,
                message=f"{setting.name} under FSDP gathers the parameters twice in backward",
                hint="activation_checkpointing: true in fsdp_config, and this off",
            )


def best_model_cannot_be_loaded(setup: Setup) -> Iterator[Fault]:
    """save_only_model and load_best_model_at_end are both on, under DeepSpeed or FSDP.

    Why: the best model is loaded from the engine's own checkpoint, which save_only_model leaves out;
    the Trainer raises ValueError.

    Instead: one of them.

    Source: transformers.trainer, create_accelerator_and_postprocess (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        only = trainer.get("save_only_model")
        is_sharded = is_deepspeed(setup) or is_fsdp(setup)
        if (
            only is not None
            and only.truth
            and trainer.truth("load_best_model_at_end")
            and is_sharded
        ):
            yield Fault(
                at=only,
                message="save_only_model leaves out what load_best_model_at_end reads under DeepSpeed and FSDP",
                hint="leave one of them out",
                edit=removed(only),
            )


def plateau_is_never_measured(setup: Setup) -> Iterator[Fault]:
    """The learning rate falls on a plateau of the evaluation, and nothing is evaluated.

    Why: reduce_lr_on_plateau needs an eval_strategy; the Trainer raises ValueError.

    Instead: eval_strategy "steps" or "epoch".

    Source: transformers.training_args, _validate_args (5.23.0).
    """
    for trainer in setup.of(TRAINER):
        scheduler, evaluated = trainer.get("lr_scheduler_type"), trainer.get("eval_strategy")
        is_never = evaluated.text == "no" if evaluated else trainer.is_whole
        if scheduler is not None and scheduler.text == "reduce_lr_on_plateau" and is_never:
            yield Fault(
                at=scheduler,
                message="reduce_lr_on_plateau needs an eval_strategy",
                hint='eval_strategy "steps" or "epoch"',
            )
