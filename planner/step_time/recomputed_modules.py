"""What recompute repeats of a block where not all of it: single modules, or all but its end. Seconds per micro-batch."""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.model import Part
from planner.domain.strategy import Strategy
from planner.parallel.activations import part_tokens
from planner.parallel.adapters import adapted_linears
from planner.parallel.recomputed_modules import repeated_modules
from planner.step_time import communication, compute, elementwise


def compute_again(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds of the modules' forward: matmuls, elementwise work, and the permutation of what routes tokens.

        seconds = sum over modules (matmuls + T * p * freed / (hbm_fraction * hbm) + routing)

    Notation: p passes over what a module leaves in forward, freed its bytes per token on a rank; of norms what they
    keep, their input. A module within another one is repeated twice.
    Source: Megatron-LM, core/tensor_parallel/random.py: checkpoint and CheckpointWithoutOutput run a module's
    forward again whole.
    """
    seconds: Amount = 0.0
    for module, is_repeated in repeated_modules(s, part):
        again = (
            compute.matmuls(job, s, module.repeated)
            + elementwise.forward(job, s, module.repeated, numerics)
            + compute.routing(job, s, module.repeated)
        )
        seconds = seconds + np.where(is_repeated, again, 0.0)
    return seconds


def exchanges_again(job: Job, s: Strategy, part: Part) -> tuple[Amount, Amount]:
    """Seconds of the modules' exchanges in one more forward: of tensor parallelism, and of experts.

    Leaves out: latents that sequence parallelism gathers for the projections that grow out of them.
    """
    tensor: Amount = 0.0
    expert: Amount = 0.0
    for module, is_repeated in repeated_modules(s, part):
        summed = communication.tensor_parallel(job, s, module.repeated)
        dealt = communication.expert_parallel(job, s, module.repeated)
        tensor = tensor + np.where(is_repeated, summed, 0.0)
        expert = expert + np.where(is_repeated, dealt, 0.0)
    return tensor, expert


def left_off(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of the block's last matmul, where recompute="full" ends before it.

    Backward reads what enters that matmul, and nothing that leaves it: no dropout, norm or router's weight
    follows. What a kernel of its own keeps (fp8, 4 bit) is there when it is done, and adapters read their own
    input after the matmul beside them.
    Source: torch/utils/checkpoint.py, set_checkpoint_early_stop: on by default since PyTorch 2.1 in checkpoints
    that are not reentrant. gpt-3 sized blocks of MosaicML's tables took 6 to 10 % less since then.
    Leaves out: the launch, what tensor parallelism sums after it, and memory.
    """
    if not _ends_before_last(job, part):
        return 0.0
    dtype = job.precision.matmul_dtype
    return compute.linear(job, s, part.linears[-1], part_tokens(job, s, part), dtype)


def exchange_left_off(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of the way back from the experts, where recompute="full" ends before their last matmul."""
    is_left_off = part.leaves_last_to_router and _ends_before_last(job, part)
    return communication.expert_parallel(job, s, part) / 2 if is_left_off else 0.0


def _ends_before_last(job: Job, part: Part) -> bool:
    is_fused = job.precision.sharded_numerics == Numerics.FUSED
    is_unread = part.leaves_last_unread or (part.leaves_last_to_router and is_fused)
    lora, last = job.recipe.lora, part.linears[-1] if part.linears else None
    is_kept = job.precision.matmul_dtype == "fp8" or (
        lora is not None and (lora.is_quantised or last in adapted_linears(job, part))
    )
    return is_unread and job.framework.activations.recompute_stops_early and not is_kept
