"""What a reference model takes beside the policy that is trained: bytes per rank.

Notation: D dense and E experts' parameters on a rank, O those outside the blocks, B those of the largest block;
N, M ranks that share them; b bytes of a weight as it is multiplied; T tokens of a micro-batch, both of a pair.
"""

import numpy as np

from planner.core.term import (
    NOTHING,
    Expression,
    bytes_each,
    count,
    greatest,
    only_where,
    ranks,
)
from planner.domain.job import HALF_BYTES, Job
from planner.domain.strategy import Strategy
from planner.memory.phases import PhasedTerm, always
from planner.parallel import partition
from planner.parallel.activations import gathers_parameters, tokens
from planner.parallel.partition import Stage

_SOURCE = "TRL 1.16, trainer/dpo_trainer.py: _compute_loss, and the reference model of __init__"
_WIDE = ("bf16", "fp16", "fp8")


def reference_weights(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """The weights of a reference model of its own: frozen, so no gradients and no states.

        bytes = b * (D / N + E / M), N = M = 1 where the framework does not shard parameters; b = 2, or 4 in fp32

    They are loaded in the dtype that they are multiplied in, as nothing is added to them, and wait in host memory
    where the policy's do.
    Source: TRL 1.16, trainer/dpo_trainer.py and models/utils.py: prepare_deepspeed shards with ZeRO-3 alone; the
    written script shards as accelerate does the policy.
    """
    if job.recipe.reference_model != "loaded":
        return always("reference_weights", NOTHING, _SOURCE)
    is_sharded = gathers_parameters(job, s)
    dense, experts = partition.stage_parameters(job, s, stage)
    shards = np.where(is_sharded, partition.dense_shards(s), 1)
    shares: Expression = count(dense, "frozen parameters") / ranks(shards)
    if job.model.has_experts:
        own = np.where(is_sharded, partition.expert_shards(s), 1)
        shares = shares + count(experts, "of experts") / ranks(own)
    held = only_where(np.logical_not(s.offloads_parameters), _weight(job) * shares)
    return always("reference_weights", held, _SOURCE)


def reference_forward(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """What the reference's forward holds, after the policy's and before any backward.

        bytes = b * T * (2 H + 3 F) + b * (O + 2 B) where parameters are gathered

    Notation: H hidden size, F the widest output of a block's matmuls: no gradients are taken, so one block at a time
    has its input, its state and the three factors of its activation.
    Source: TRL 1.16, trainer/dpo_trainer.py: torch.no_grad after the policy's forward; FSDP gathers a block ahead.
    Leaves out: eager attention's scores, and tiles of logits, which are below those of the policy's loss.
    """
    if not job.recipe.runs_reference:
        return PhasedTerm(name="reference_forward", source=_SOURCE)
    widths = (
        max((layer.out_features * layer.experts_per_token for layer in part.linears), default=0)
        for part in job.model.blocks
    )
    width = 2 * job.model.hidden_size + 3 * max(widths, default=0)
    held = _weight(job) * count(tokens(job, s), "tokens") * count(width, "wide")
    parts = partition.occurrences(job.model, stage)
    outer = sum(
        n * sum(partition.rank_parameters(part, s)) for part, n in parts if not part.is_block
    )
    block = greatest(sum(partition.rank_parameters(part, s)) for part in job.model.blocks)
    gathered = count(outer + 2 * block, "gathered parameters")
    held = held + only_where(gathers_parameters(job, s), _weight(job) * gathered)
    return PhasedTerm(name="reference_forward", forward=held, source=_SOURCE)


def _weight(job: Job) -> Expression:
    is_half = job.precision.wide_matmul_dtype in _WIDE
    return bytes_each(HALF_BYTES if is_half else 2 * HALF_BYTES)
