"""torch.nn.DataParallel: one process, a thread per GPU, GPU 0 in the middle; only to compare DDP with it."""

from planner.collectives import operations
from planner.core.errors import InvalidInputError
from planner.core.term import Term, plain, rate, size
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.step_time.ledger import estimate_step_time
from planner.step_time.terms import StepTerm

EXCHANGES = (
    "scatter_tokens",
    "broadcast_parameters",
    "gather_outputs",
    "scatter_losses",
    "reduce_gradients",
)
"""Of a pass, in order."""
_TOKEN_BYTES = 8
_LOGIT_BYTES = 4
_OF_DDP = {StepTerm.GRADIENT_REDUCTION, StepTerm.OVERLAP_SLOWDOWN, StepTerm.PARAMETER_GATHER}


def data_parallel_step(job: Job, s: Layout) -> tuple[Term, ...]:
    """Return the ledger of a step of nn.DataParallel, in seconds: DDP's compute, five exchanges.

        exchange = (n - 1) * send(bytes), for tokens out, parameters out, outputs in, losses out,
        gradients in; nothing hides them

    Notation: n GPUs, each with a micro-batch; outputs the logits in fp32.
    Source: torch/nn/parallel/data_parallel.py: scatter, replicate, gather, and their backward.
    Leaves out: Python threads that wait for each other; GPU 0's own memory traffic.

    Raises:
        InvalidInputError: the layout is not plain data parallelism on one node.
    """
    if job.cluster.nodes > 1 or s.data_parallel_replicate_size != job.cluster.world_size:
        raise InvalidInputError(
            "nn.DataParallel runs in one process: one node, and nothing but replicas",
            hint="DDP runs on any number of nodes",
            field="strategy",
        )
    computed = tuple(t for t in estimate_step_time(job, s).terms if t.name not in _OF_DDP)
    tokens = s.micro_batch_size * job.recipe.sequences_per_sample * job.recipe.sequence_length
    parameters = job.model.parameters
    sizes = (
        _TOKEN_BYTES * tokens,
        job.precision.parameter_bytes * parameters,
        _LOGIT_BYTES * tokens * job.model.vocab_size,
        _LOGIT_BYTES,
        job.precision.gradient_bytes * parameters,
    )
    times = s.gradient_accumulation_steps * (job.cluster.world_size - 1)
    exchanged = (
        _exchange(job, name, size, times) for name, size in zip(EXCHANGES, sizes, strict=True)
    )
    return (*computed, *exchanged)


def _exchange(job: Job, name: str, bytes_sent: float, times: int) -> Term:
    one = float(operations.send(job.cluster, Group(ranks=2), bytes_sent))
    exchange = size(bytes_sent) / rate(bytes_sent / one, "between one GPU and another")
    return Term(
        name=name,
        arithmetic=plain(times) * exchange,
        source="torch/nn/parallel/data_parallel.py",
    )
