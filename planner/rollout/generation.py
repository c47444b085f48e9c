"""Seconds until the last completion of a step is written: prompts, then one token at a time.

Notation: n sequences of one engine, of P prompt and m tokens in the mean; L tokens of the longest; t its tensor
parallel size; h hbm_share; c sequences that the cache holds at once, half written in the mean. The slowest engine has as many sequences as any, and the longest completion.
"""

import math

from planner.catalog.rollout import EngineRecord
from planner.collectives.operations import all_reduce
from planner.core.frozen import frozen
from planner.core.term import (
    Expression,
    Term,
    count,
    gpus,
    largest,
    percent,
    plain,
    rate,
    seconds,
    size,
)
from planner.domain.cluster import Cluster, Group
from planner.domain.job import Job
from planner.domain.model import Model
from planner.rollout.engine import (
    Engine,
    cache_bytes_per_token,
    read_bytes,
    sequences_at_once,
)
from planner.rollout.lengths import Lengths

_EXCHANGES = 2
"""Of tensor parallelism in a block: after attention, and after what follows."""
_BYTES = 2


@frozen
class Prompts:
    """What is to be answered in a step."""

    completions: int
    generations: int
    """Of each prompt."""
    prompt_tokens: int
    lengths: Lengths

    @property
    def held_tokens(self) -> float:
        """Return the tokens of a sequence's cache while it is written, in the mean over what runs at once."""
        return self.prompt_tokens + self.lengths.mean_square / (2 * self.lengths.mean)

    @property
    def longest_tokens(self) -> int:
        """Return the tokens that a sequence may come to."""
        return self.prompt_tokens + self.lengths.most


@frozen
class Generation:
    """The seconds of one step's generation, and how they came about."""

    terms: tuple[Term, ...]
    sequences: int
    """Of one engine."""
    at_once: int
    """Of them, those that its cache has room for."""
    steps: int
    """Tokens that an engine writes one after the other."""

    @property
    def total_seconds(self) -> float:
        """Return the seconds of all terms."""
        return sum(float(term.amount) for term in self.terms)

    @property
    def waves(self) -> int:
        """Return how often the cache is filled anew."""
        return math.ceil(self.sequences / max(1, self.at_once))


def sequences_of(engine: Engine, prompts: Prompts) -> int:
    """Return the completions of the engine that has as many as any."""
    return math.ceil(prompts.completions / engine.replicas)


def generate(job: Job, engine: Engine, prompts: Prompts) -> Generation | None:
    """Return what one step's generation takes with vLLM; None where an engine has no room for one sequence.

        steps = L + (n / c - 1) m;  a step reads weights and cache, exchanges, waits for the host

    Leaves out: rewards; prompts that share more than the group's own prefix; speculative decoding.
    """
    sequences = sequences_of(engine, prompts)
    if sequences_at_once(job.model, engine, prompts.longest_tokens) == 0:
        return None
    at_once = min(sequences, sequences_at_once(job.model, engine, prompts.held_tokens))
    longest = prompts.lengths.longest_of(prompts.completions)
    steps = math.ceil(longest + (sequences / at_once - 1) * prompts.lengths.mean)
    alive = sequences * prompts.lengths.mean / steps
    terms = (
        _prefill(job, engine, prompts, sequences),
        _weights(job, engine, steps, alive),
        _cache(job.model, job.cluster, engine, prompts, sequences),
        *_exchanges(job, engine, steps, alive),
        _host(engine.record, steps, alive),
    )
    return Generation(terms=terms, sequences=sequences, at_once=at_once, steps=steps)


def _peak(job: Job) -> float:
    peaks = job.cluster.gpu.peak_flops
    return peaks.get("bf16") or peaks.get("fp16") or peaks["fp32"]


def _matmul_rate(job: Job, engine: Engine) -> Expression:
    """Return what an engine multiplies in a second, in TFLOPs."""
    share = percent(engine.record.matmul_share)
    return share * plain(_peak(job) / 1e12, "TFLOPs/s") * gpus(engine.tensor_parallel_size)


def _prefill(job: Job, engine: Engine, prompts: Prompts, sequences: int) -> Term:
    """Seconds until the prompts are read, each once for its group: the forward pass of their tokens.

        2 FLOPs x active parameters x prompts' tokens / (share x peak x t)

    Source: Kaplan et al., arXiv:2001.08361, table 1; vLLM shares the prefix of a group (enable_prefix_caching).
    """
    groups = math.ceil(sequences / prompts.generations)
    tflops = 2 * job.model.active_parameters / 1e12
    work = count(groups * prompts.prompt_tokens, "tokens") * plain(tflops, "TFLOPs a token")
    return Term(
        name="prefill",
        arithmetic=work / _matmul_rate(job, engine),
        source="Kaplan et al., arXiv:2001.08361",
    )


def _weights(job: Job, engine: Engine, steps: float, alive: float) -> Term:
    """Seconds of the weights: read for every token, or multiplied where that takes longer.

        steps x max(bytes / (h x HBM x t), 2 FLOPs x active parameters x sequences / (share x peak x t))

    Source: Pope et al., Efficiently Scaling Transformer Inference, arXiv:2211.05102, section 2.
    """
    record, t = engine.record, engine.tensor_parallel_size
    read = size(read_bytes(job.model, alive)) / (
        percent(record.hbm_share) * rate(job.cluster.gpu.hbm_bytes_per_second) * gpus(t)
    )
    tflops = plain(2 * job.model.active_parameters / 1e12, "TFLOPs a token")
    multiplied = plain(alive, "sequences") * tflops / _matmul_rate(job, engine)
    return Term(
        name="decode_weights",
        arithmetic=count(steps, "tokens") * largest(read, multiplied),
        note=("in the mean ", plain(round(alive, 1), "sequences of an engine are being written")),
        source=f"arXiv:2211.05102; {record.source}",
    )


def _cache(
    model: Model, cluster: Cluster, engine: Engine, prompts: Prompts, sequences: int
) -> Term:
    """Seconds in which each new token reads the keys and values of all before it.

    n x (P m + mean square / 2) x cache of a token / (h x HBM)
    """
    record, lengths = engine.record, prompts.lengths
    read = prompts.prompt_tokens * lengths.mean + lengths.mean_square / 2
    each = cache_bytes_per_token(model, engine.tensor_parallel_size)
    bandwidth = percent(record.hbm_share) * rate(cluster.gpu.hbm_bytes_per_second)
    return Term(
        name="decode_cache",
        arithmetic=count(sequences, "sequences")
        * count(read, "cached tokens read")
        * size(each, "each")
        / bandwidth,
        source=record.source,
    )


def _exchanges(job: Job, engine: Engine, steps: float, alive: float) -> tuple[Term, ...]:
    """Seconds of tensor parallelism's all-reduces: two in a block, for every token.

    Source: planner/collectives; Megatron-LM, arXiv:1909.08053, section 3.
    """
    t, model = engine.tensor_parallel_size, job.model
    if t == 1:
        return ()
    operations = _EXCHANGES * model.num_blocks
    moved = alive * model.hidden_size * _BYTES * operations
    each = all_reduce(job.cluster, Group(ranks=t), moved, operations)
    return (
        Term(
            name="decode_exchange",
            arithmetic=count(steps, "tokens") * seconds(float(each)),
            note=(count(operations, "all-reduces a token among "), gpus(t)),
            source="planner/collectives/operations.py",
        ),
    )


def _host(record: EngineRecord, steps: float, alive: float) -> Term:
    """Seconds in which the GPU waits for the scheduler and the sampler.

    steps x (step + sequences x sequence)
    """
    each = seconds(record.step_seconds) + plain(alive, "sequences") * seconds(
        record.sequence_seconds
    )
    return Term(name="decode_host", arithmetic=count(steps, "tokens") * each, source=record.source)
