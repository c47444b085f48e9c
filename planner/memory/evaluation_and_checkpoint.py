"""Memory of what interrupts training: an evaluation, a checkpoint. Bytes of the busiest rank.

Neither is part of the training peak; either may exceed it. Notation as in `planner.memory.ledger`.
"""

from dataclasses import replace

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.strategy import ALL_LAYERS, Layout, Offload, Recompute, Strategy
from planner.memory import activations, ledger, loss
from planner.memory.sharding_buffers import communication_buffers, largest_matrix
from planner.parallel import partition
from planner.parallel.activations import gathers_parameters
from planner.parallel.frozen_weights import constant_bytes, frozen_bytes
from planner.parallel.partition import Stage


def evaluation_peak_bytes(job: Job, s: Strategy, micro_batch_size: int | None = None) -> float:
    """Return the peak of a forward pass without gradients, between two steps.

        bytes = parameters + optimizer states + gathered parameters + max(one block, logits)

    One block: its activations, which are freed before the logits, as at the end of forward, are
    there.

    Args:
        job: the model and what runs it.
        s: one layout.
        micro_batch_size: sequences of an evaluation batch; None for those of training.

    Source: torch.no_grad keeps nothing for backward.
    Leaves out: logits that an evaluation loop collects on the GPU over many batches.
    """
    evaluated = replace(
        s,
        micro_batch_size=micro_batch_size or s.micro_batch_size,
        recompute=Recompute.FULL,
        recompute_layers=ALL_LAYERS,
    )
    return max(
        float(
            _resident(job, s, stage)
            + communication_buffers(job, s, stage).forward.value
            + np.maximum(
                activations.recomputed_block(job, evaluated, stage).last_block.value,
                loss.logits_and_loss(job, evaluated, stage).forward.value,
            )
        )
        for stage in partition.heaviest_stages(job, s)
    )


def checkpoint_peak_bytes(job: Job, s: Strategy, *, is_full: bool) -> float:
    """Return the GPU's peak while a checkpoint is saved, between two steps.

        bytes = parameters + optimizer states, + stepped_bytes * the largest tensor with a full one

    A sharded checkpoint copies each rank's shares to host memory as they are; a full one gathers
    tensor by tensor, and rank 0 moves each to host memory.

    Args:
        job: the model and what runs it.
        s: one layout.
        is_full: one state dict on rank 0 (full_state_dict) in place of a share from every rank.

    Source: torch.distributed.checkpoint.state_dict, PyTorch 2.13.
    """
    gathers = is_full and bool(gathers_parameters(job, s) | s.shards_optimizer)
    gathered = job.precision.stepped_bytes * largest_matrix(job.model) if gathers else 0.0
    stages = partition.heaviest_stages(job, s)
    return gathered + max(float(_resident(job, s, stage)) for stage in stages)


def checkpoint_host_bytes(job: Job, s: Strategy, *, is_full: bool) -> float:
    """Return the host memory that a node needs for the copy that is written.

        full: stepped_bytes and the states, for every parameter that is trained, on the node of rank 0
        sharded: what the node's GPUs hold of parameters and states

    Source: as `checkpoint_peak_bytes`.
    Leaves out: a second copy where an asynchronous save still writes the previous one.
    """
    held = replace(s, offload=Offload.NONE)
    if is_full:
        alone = Layout()
        stage = partition.stage(job, alone, 0)
        return float(_written(job, alone, stage) - _frozen(job, alone, stage))
    stages = partition.heaviest_stages(job, held)
    return job.cluster.gpus_per_node * max(float(_written(job, held, stage)) for stage in stages)


def _written(job: Job, s: Strategy, stage: Stage) -> Amount:
    return _resident(job, s, stage) + ledger.paged_states(job, s, stage).value


def _frozen(job: Job, s: Strategy, stage: Stage) -> Amount:
    if job.recipe.lora is None:
        return 0.0
    return frozen_bytes(job, s, stage) + constant_bytes(job, s, stage)


def _resident(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the bytes of parameters and of states that do not give way, which stay on the GPU between steps."""
    terms = ledger.parameters(job, s, stage), ledger.optimizer_states(job, s, stage)
    return sum((term.forward.value for term in terms), 0.0)
