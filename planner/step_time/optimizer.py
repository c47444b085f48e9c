"""Time of the optimizer's update: passes over memory, and for some the matmuls of a matrix."""

import numpy as np

from planner.core.term import Amount, Term, bytes_each, count, plain, rate, seconds, size
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.memory.ledger import stage_memory
from planner.parallel import partition
from planner.parallel.adapters import trained_parameters, trained_tensors
from planner.parallel.partition import Stage
from planner.step_time import compute, rates
from planner.step_time.offload import host_link_bytes_per_second
from planner.step_time.terms import StepTerm


def update(job: Job, s: Strategy, stage: Stage) -> Term:
    """The optimizer's update of the trained parameters that a rank owns, where the GPU makes it.

        seconds = passes * stepped_bytes * (D / N + E / M) / hbm + matmuls + paged_out / (f * pcie)

    Notation: hbm the rate of elementwise kernels, or of an update as timed on the user's own card; matmuls of Newton
    and Schulz, see `newton_schulz`; 0 for most optimizers. paged_out bytes of paged states that the rest drives out
    of the card in every step; f of the copies' rate, what pages come and go at.
    Source: the framework record's optimizer section.
    """
    dense, experts = trained_parameters(job, s, stage)
    shards = np.where(s.shards_optimizer, partition.dense_shards(s), 1)
    expert_shards = np.where(s.shards_optimizer, partition.expert_shards(s), 1)
    on_gpu = np.where(s.offloads_optimizer, 0, 1)
    parameters = on_gpu * (dense / shards + experts / expert_shards)
    each = plain(job.optimizer.passes, "passes") * bytes_each(job.precision.stepped_bytes)
    timed = job.cluster.gpu.optimizer_bytes_per_second
    bandwidth = rate(timed or rates.elementwise_bandwidth(job))
    passed = each * count(parameters, "parameters") / bandwidth
    if job.optimizer.newton_schulz_steps:
        matmuls = on_gpu * newton_schulz(job, s, stage)
        passed = passed + seconds(matmuls, "of Newton-Schulz matmuls")
    if job.optimizer.is_paged:
        out = stage_memory(job, s, stage.index).paged_out_bytes
        pages = rate(job.optimizer.page_link_fraction * host_link_bytes_per_second(job))
        passed = passed + size(out, "of states paged out and in") / pages
    return Term(
        name=StepTerm.OPTIMIZER,
        arithmetic=passed,
        source=job.optimizer.source,
    )


def newton_schulz(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Seconds in which a rank makes the matrices of its blocks orthogonal.

        seconds = sum over matrices of K (gemm(m, m, n) + gemm(m, m, m) + gemm(m, n, m)) / N

    Notation: K iterations; m the smaller and n the larger side of a matrix; gemm(rows, columns, depth)
    in bf16; N the ranks that deal the matrices out among them, where the optimizer's states are sharded.
    Source: torch.optim.Muon of PyTorch 2.13, _zeropower_via_newtonschulz; Jordan et al., Muon (2024).
    Leaves out: that a shard must be gathered first; that tensor parallelism cuts matrices into narrower
    ones, which it counts as a share of the whole.
    """
    steps = job.optimizer.newton_schulz_steps
    shards = np.where(s.shards_optimizer, partition.dense_shards(s), 1)
    spent: Amount = 0.0
    for part, number in partition.occurrences(job.model, stage):
        held = sum(partition.rank_parameters(part, s)) / max(1, part.parameters)
        for tensor in trained_tensors(job, part):
            if tensor.is_inner and tensor.columns > 1:
                narrow, wide = sorted((tensor.rows, tensor.columns))
                once = (
                    compute.gemm(job, narrow, narrow, wide, "bf16")
                    + compute.gemm(job, narrow, narrow, narrow, "bf16")
                    + compute.gemm(job, narrow, wide, narrow, "bf16")
                )
                spent = spent + number * held * tensor.count * steps * once
    return spent / shards
