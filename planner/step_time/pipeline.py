"""Seconds that stages idle while a pipeline fills and drains, and that handing on from one to the next takes.

Notation: A micro-batches of a step; p stages, v chunks of layers on each; t tensor parallel size; T tokens of a
micro-batch on a rank; h hidden size; a bytes per element.
"""

import numpy as np

from planner.collectives import operations
from planner.collectives.timed import known_or_timed_slowdown
from planner.core.term import (
    Amount,
    RowWords,
    Term,
    count,
    micro_batches,
    only_where,
    percent,
    seconds,
)
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.strategy import Layout, PipelineSchedule, Strategy, Table
from planner.parallel.activations import hidden_state_bytes, sequence_split
from planner.parallel.partition import tied_parameters
from planner.parallel.pipeline_schedules import MicroBatchSeconds, idle_share, last_stage
from planner.step_time import communication
from planner.step_time.micro_batch import Aside, MicroBatch
from planner.step_time.terms import StepTerm


def terms(job: Job, s: Strategy, whole: MicroBatch, slowest: MicroBatch) -> tuple[Term, ...]:
    """Return the bubble and the hand-overs; nothing where no layout has stages.

    Args:
        job: that is trained.
        s: one layout, or a table of them.
        whole: seconds of a micro-batch through all stages.
        slowest: through the slowest one.
    """
    if np.all(np.asarray(s.pipeline_parallel_size) == 1):
        return ()
    return _bubble(s, whole, slowest), _hand_overs(job, s, slowest)


def _bubble(s: Strategy, whole: MicroBatch, slowest: MicroBatch) -> Term:
    """What the slowest stage idles while the pipeline fills and drains.

        1f1b: (whole - slowest) / v;  naive: A * (whole - slowest)
        zb-h1: (whole - slowest) * (whole - 2 W) / whole
        zbv: (whole - slowest) * max(F / 2, B / 2, B - W) / whole

    Notation: F, B, W of the whole: forward, backward and the weight gradients that zero-bubble schedules put off.
    Source: Narayanan et al., arXiv:2104.04473, section 2.2; Qi et al., arXiv:2401.10241, table 1; for zbv what
    `planner.parallel.schedule` simulates (Qi et al., arXiv:2405.15362, has the order).
    """
    through = MicroBatchSeconds(
        total=whole.seconds, forward=whole.forward, weight=whole.of(Aside.PUT_OFF)
    )
    idle = seconds(whole.seconds, "through all stages") - seconds(slowest.seconds, "on the slowest")
    is_pipelined = s.pipeline_parallel_size > 1
    share = percent(idle_share(s, through), "of it idle")
    return Term(
        name=StepTerm.PIPELINE_BUBBLE,
        arithmetic=only_where(is_pipelined, idle * share),
        note=_schedule_words(s),
        source="Narayanan et al., arXiv:2104.04473, section 2.2",
        applies=is_pipelined,
    )


def _hand_overs(job: Job, s: Strategy, slowest: MicroBatch) -> Term:
    """What stages wait for each other's hidden states and gradients.

        one chunk on each stage: 2 (A + p - 1) * send, and (A + 1) * send of two stages under 1f1b
        several: 2 v (p - 1) * send + A * max(0, all - slowest) + l * max(0, A * min(all, slowest) - 2 v (p - 1) * send)
        and once a step what `tied_gradients` says

    Notation: all = (2 v - ends) * send, what a micro-batch's hand-overs take a stage; ends: 1 of two stages, whose
    chunks have nothing before the first or after the last, else 0; l what compute loses beside a hand-over.
    Of two stages under 1f1b each micro-batch's way there travels together with the way back of the one before.
    With several chunks there is another to work on while a hand-over travels, but for filling and draining, and as
    long as a micro-batch's hand-overs are quicker than its compute: a stage sends one per chunk forward and one
    backward, over the same port.
    Source: PyTorch's Schedule1F1B and Megatron-LM's send_forward_recv_backward, for two stages; Megatron-LM
    overlaps the interleaved schedule's hand-overs (--no-overlap-p2p-communication turns it off).
    Leaves out: l where the user's own machine does not say it. Cores send their own messages, a GPU's copies are
    done beside its kernels.
    """
    virtual, filling = s.virtual_pipeline_size, s.pipeline_parallel_size - 1
    one, steps = transfer(job, s), s.gradient_accumulation_steps
    has_chunks = np.asarray(virtual) > 1
    is_paired = np.equal(s.pipeline_parallel_size, 2) & np.equal(
        s.pipeline_schedule, PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    )
    ways = np.where(is_paired, 1, 2)
    times = np.where(has_chunks, 2 * virtual * filling, ways * (steps + filling))
    sent = (2 * virtual - np.equal(s.pipeline_parallel_size, 2)) * one
    behind = np.where(has_chunks, np.maximum(0.0, sent - slowest.seconds), 0.0)
    late = seconds(behind, "that chunks' hand-overs take longer than they compute")
    handed = count(times, "hand-overs") * seconds(one) + micro_batches(steps) * late
    lost = slowdown(job, s)
    if np.any(lost):
        hidden = np.where(has_chunks, np.maximum(0.0, steps * (sent - behind) - times * one), 0.0)
        handed += percent(lost, "lost beside") * seconds(hidden, "of chunks' hand-overs")
    tied = tied_gradients(job, s)
    if np.any(tied):
        handed += seconds(tied, "to add up what tied embeddings were given on both ends")
    return Term(
        name=StepTerm.PIPELINE_TRANSFER,
        arithmetic=handed,
        source="planner/step_time/pipeline.py",
        applies=s.pipeline_parallel_size > 1,
    )


def slowdown(job: Job, s: Strategy) -> Amount:
    """Return the seconds that compute loses per second of a hand-over beside it, as the user's machine was timed; else 0."""
    return known_or_timed_slowdown(job.cluster, group(job, s), "send", 0.0)


def _schedule_words(s: Strategy) -> tuple[str | RowWords, ...]:
    if isinstance(s, Table):
        return (RowWords(lambda row: _words_of_schedule(s.at(row))),)
    return (_words_of_schedule(s),) if isinstance(s, Layout) else ()


def _words_of_schedule(s: Layout) -> str:
    chunks = f", {s.virtual_pipeline_size} chunks a stage" if s.virtual_pipeline_size > 1 else ""
    return f"{s.pipeline_schedule}{chunks}"


def group(job: Job, s: Strategy) -> Group:
    """Return the ranks of a pipeline up to the first hop that leaves a node, the slowest of its hops."""
    replica = communication.replica_group(s)
    stride = replica.ranks * replica.stride
    in_node = np.maximum(1, job.cluster.joined_gpus // stride)
    return Group(ranks=np.minimum(s.pipeline_parallel_size, in_node + 1), stride=stride)


def transfer(job: Job, s: Strategy) -> Amount:
    """Seconds to hand one micro-batch's hidden state to the next stage.

        send(a T h / q), q as sequence parallelism divides
        where tensor-parallel ranks each send their share: send(a T h / t) + all_gather(a T h)

    Under autocast the stream between blocks is fp32, and so is what is handed on.
    Source: Narayanan et al., arXiv:2104.04473, section 4.1, for the shares; the dtypes that
    torch.distributed.pipelining sends, PyTorch 2.13.
    """
    share = hidden_state_bytes(job, s)
    gathered: Amount = 0.0
    if job.framework.pipeline.scatters_transfers:
        is_whole = np.logical_not(s.sequence_parallel)
        size = share * sequence_split(s)
        share = size / s.tensor_parallel_size
        gathered = np.where(
            is_whole, operations.all_gather(job.cluster, communication.tensor_group(s), size), 0.0
        )
    hop = operations.send(job.cluster, group(job, s), share)
    return np.where(s.pipeline_parallel_size > 1, hop + gathered, 0.0)


def tied_gradients(job: Job, s: Strategy) -> Amount:
    """Seconds to add up, once a step, the gradients of a head tied to the embeddings, which two stages hold.

        all_reduce(bytes * V h / t) between the first and the last stage

    One stage has both without a pipeline, or where the chunks run in a V. Frozen ones have no gradients.
    Source: Megatron-LM core/distributed/finalize_model_grads.py, _allreduce_word_embedding_grads.
    """
    hops, tied = last_stage(s), tied_parameters(job, s)
    if job.recipe.lora is not None or not np.any(tied * hops):
        return 0.0
    size = job.precision.reduce_bytes * tied
    added = operations.all_reduce(job.cluster, _ends_of_pipeline(job, s, hops), size)
    return np.where(hops > 0, added, 0.0)


def _ends_of_pipeline(job: Job, s: Strategy, hops: Amount) -> Group:
    """Return a group of two that leaves a node where first and last stage, so many hops apart, do; of one, of no hop."""
    replica = communication.replica_group(s)
    stride = replica.ranks * replica.stride
    leaves = stride * (hops + 1) > job.cluster.joined_gpus
    half = np.maximum(1, np.floor_divide(hops + 1 + leaves, 2))
    return Group(ranks=np.where(hops > 0, 2, 1), stride=stride * half)
