"""How a global batch is divided, the steps of a run with it, and the learning rate that follows it.

Notation: m micro-batch, A accumulation steps, d data-parallel ranks, B = m * A * d the global batch.
"""

import math

from planner.advice.rules.batch import FEWEST_STEPS, GROWN
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.strategy import divisors

LARGEST_BATCH = 2**24
WARMUP_FRACTION = 0.03
"""Of the steps: Ivison et al., arXiv:2311.10702; data/recipes/learning_rates.toml has 0.01 to 0.1."""
_ANY_BATCH = "a global batch needs --global-batch-size, or --micro-batch-size"


@frozen
class BatchSplit:
    """One way to make a global batch."""

    micro_batch_size: int
    gradient_accumulation_steps: int
    data_parallel_size: int

    @property
    def global_batch_size(self) -> int:
        """Return the samples of an optimizer step: m * A * d."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.data_parallel_size


@frozen
class RunSteps:
    """The optimizer steps of a data set, as Trainer and accelerate count them."""

    samples: int
    epochs: float
    steps_per_epoch: int
    steps: int
    last_step_samples: int
    """Of an epoch's last step, without what pads it."""
    padded_samples: int
    """Seen twice in an epoch, so that all ranks have as many batches."""


@frozen
class ScaledRate:
    """A learning rate for another batch, by a rule of thumb."""

    rule: str
    factor: float
    learning_rate: float
    source: str


def splits(
    ranks: int,
    *,
    global_batch_size: int | None = None,
    micro_batch_size: int | None = None,
    accumulation_steps: int | None = None,
) -> tuple[BatchSplit, ...]:
    """Return every way to make a batch of what is given, the largest micro-batch first.

        m * A = B / d for a given B; B = m * A * d for a given m, with A = 1 where it is not given

    Args:
        ranks: data-parallel ranks.
        global_batch_size: samples of an optimizer step.
        micro_batch_size: samples of a rank and pass.
        accumulation_steps: passes of a step; chunks of a pipeline are the same number.

    Raises:
        InvalidInputError: the batch does not divide, or neither it nor a micro-batch is given.
    """
    if global_batch_size is None:
        if micro_batch_size is None:
            raise InvalidInputError(_ANY_BATCH, field="recipe.global_batch_size")
        made = BatchSplit(
            micro_batch_size=micro_batch_size,
            gradient_accumulation_steps=accumulation_steps or 1,
            data_parallel_size=ranks,
        )
        _check_size(made.global_batch_size)
        return (made,)
    at_once = ranks * (micro_batch_size or 1) * (accumulation_steps or 1)
    if global_batch_size % at_once:
        raise _undivided(global_batch_size, at_once, ranks)
    per_rank = global_batch_size // ranks
    found = (
        BatchSplit(
            micro_batch_size=size,
            gradient_accumulation_steps=per_rank // size,
            data_parallel_size=ranks,
        )
        for size in reversed(divisors(per_rank))
        if micro_batch_size in {None, size} and accumulation_steps in {None, per_rank // size}
    )
    made_of = tuple(found)
    if not made_of:
        raise _undivided(global_batch_size, at_once, ranks)
    return made_of


def _check_size(global_batch_size: int) -> None:
    if global_batch_size > LARGEST_BATCH:
        raise InvalidInputError(
            f"a global batch of {global_batch_size:,} samples",
            hint=f"at most {LARGEST_BATCH:,}",
            field="recipe.global_batch_size",
        )


def _undivided(batch: int, at_once: int, ranks: int) -> InvalidInputError:
    below = batch // at_once * at_once
    near = f"{below:,} or {below + at_once:,}" if below else f"{at_once:,}"
    hint = f"nearest that do: {near}"
    if batch % ranks == 0:
        sizes = ", ".join(f"{size:,}" for size in reversed(divisors(batch // ranks)[-6:]))
        hint += f"; micro-batches that divide {batch:,} over {ranks:,} ranks: {sizes}"
    return InvalidInputError(
        f"{batch:,} samples do not divide into passes of {at_once:,} over {ranks:,} ranks",
        hint=hint,
        field="recipe.global_batch_size",
    )


def run_steps(split: BatchSplit, samples: int, epochs: float) -> RunSteps:
    """Return the optimizer steps of a data set.

        passes = ceil(samples / (m * d)); steps_per_epoch = ceil(passes / A)
        steps = ceil(epochs * steps_per_epoch)

    The same of every way to make a batch: steps_per_epoch is ceil(samples / B).
    Source: transformers 5.23 Trainer.set_initial_training_values; accelerate 1.15.0
    BatchSamplerShard with even_batches; PyTorch 2.13 DistributedSampler, drop_last=False.
    Leaves out: drop_last, which leaves out an epoch's last pass where it is not full.
    """
    at_once = split.micro_batch_size * split.data_parallel_size
    passes = math.ceil(samples / at_once)
    steps_per_epoch = math.ceil(passes / split.gradient_accumulation_steps)
    in_full_steps = (steps_per_epoch - 1) * split.global_batch_size
    return RunSteps(
        samples=samples,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        steps=math.ceil(epochs * steps_per_epoch),
        last_step_samples=samples - in_full_steps,
        padded_samples=-samples % split.data_parallel_size,
    )


def warmup_steps(run: RunSteps, fraction: float) -> int:
    """Return the steps over which the rate rises: ceil(fraction * steps), as Trainer rounds it."""
    return math.ceil(fraction * run.steps)


def scaled_rates(learning_rate: float, from_batch: int, to_batch: int) -> tuple[ScaledRate, ...]:
    """Return a rate for another batch by the two rules in use: heuristics, to be tried.

    linear: rate * k; square root: rate * sqrt(k), for k = to_batch / from_batch
    """
    factor = to_batch / from_batch
    linear = "Goyal et al., arXiv:1706.02677, section 2.1: SGD, with a warm-up, to 8,192 images"
    root = "Malladi et al., arXiv:2205.10287: Adam and RMSprop follow the square root of the batch"
    rules = (("square root", math.sqrt(factor), root), ("linear", factor, linear))
    return tuple(
        ScaledRate(rule=rule, factor=times, learning_rate=learning_rate * times, source=source)
        for rule, times, source in rules
    )


def scheduler_end(calls: int, ranks: int) -> int:
    """Return at which call a schedule of that many steps ends, that accelerate steps once per rank.

        ceil(calls / d)

    Source: accelerate 1.15.0 AcceleratedScheduler.step: num_processes steps, without split_batches.
    """
    return math.ceil(calls / ranks)


def batch_warnings(
    split: BatchSplit, run: RunSteps | None, *, from_batch: int | None, max_steps: int | None
) -> tuple[str, ...]:
    """Return what is likely to go wrong with a batch: few steps, a large step, max_steps."""
    found = []
    if run is not None and run.steps < FEWEST_STEPS:
        found.append(
            f"{run.steps:,} optimizer step{'' if run.steps == 1 else 's'} in all, fewer than {FEWEST_STEPS} (BAT002): where 16 times"
            " the accumulation left BERT-large about 160, its F1 fell from 88.6 to 84.4, and on a tenth"
            " of the data from 77.8 to 15.9; take a smaller global batch, or more epochs"
        )
    if from_batch is not None and split.global_batch_size > GROWN * from_batch:
        found.append(
            f"{split.global_batch_size / from_batch:.3g} times the batch that was tuned: at the same epochs"
            " and rate quality falls; retune the rate, lengthen the warm-up, or compare a short run"
        )
    if max_steps is not None:
        seen = max_steps * split.global_batch_size
        of_data = f" ({seen / run.samples:.2f} epochs)" if run is not None else ""
        found.append(
            f"max_steps {max_steps:,} counts optimizer steps and overrides the epochs: it trains on"
            f" {seen:,} samples{of_data}, and takes as long on any number of GPUs; for the samples that"
            f" one GPU sees in as many steps, give {math.ceil(max_steps / split.data_parallel_size):,}"
        )
    return tuple(found)
