"""The Hugging Face guide's decision process for several nodes, as rules."""

from planner.advice.rules.base import Situation
from planner.advice.rules.sentences import said
from planner.advice.rules.single_node import ddp_does_not_do, fits_text, link, shortfall
from planner.core.units import format_rate
from planner.domain.job import Job

_KEPT_UP = 0.5
"""Share of a GPU's peak that training keeps up; judgement."""
_TOKENS = 8192
"""That a GPU computes on between two exchanges: a micro-batch of large models; judgement."""


def model_fits_on_one_gpu_of_many_nodes(situation: Situation) -> str | None:
    """The model fits onto one GPU, and the job spans nodes: DDP.

    Why: with DDP only gradients cross the network, once per step, and behind the backward pass.

    Instead: accumulation, hybrid sharding or local SGD where even those take too long.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy.
    """
    if not situation.is_multi_node or not situation.fits_on_one_gpu:
        return None
    otherwise = ddp_does_not_do(situation)
    return fits_text(situation) + (otherwise or said("MUL001.copies", links=_links(situation)))


def nodes_are_joined_by_a_fast_network(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and a fast network joins the nodes: ZeRO, or PP+TP+DP.

    Why: ZeRO asks for close to no changes to the model; pipeline, tensor and data parallelism
    together exchange less, and ask for many.

    Instead: hybrid sharding, which keeps the gathers inside a node where its memory suffices.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, multi
    node with fast links. Fast is a network that keeps up with the node's GPUs, see `fast_enough`.
    """
    if not _exceeds(situation) or not is_fast(situation):
        return None
    return shortfall(situation) + said("MUL002.fast", network=network(situation))


def nodes_are_joined_by_a_slow_network(situation: Situation) -> str | None:
    """The model does not fit onto one GPU, and a slow network joins the nodes: DP+PP+TP+ZeRO-1.

    Why: ZeRO-2 and 3 would send gradients or parameters through the network for every
    micro-batch; tensor parallelism stays inside the node, a pipeline sends activations alone.

    Instead: fewer nodes, or accumulation over many micro-batches.

    Source: Hugging Face, Efficient Training on Multiple GPUs, section Scalability strategy, multi
    node with slow links.
    """
    if not _exceeds(situation) or is_fast(situation):
        return None
    return shortfall(situation) + said("MUL003.slow", network=network(situation))


def is_fast(situation: Situation) -> bool:
    """Return whether the network is one that ZeRO can live on."""
    network = situation.job.cluster.inter_node
    return network is not None and network.bytes_per_second >= fast_enough(situation.job)


def fast_enough(job: Job) -> float:
    """Return the bytes per second of a node's network that hide ZeRO-3 behind what its GPUs compute.

        bytes per second = 3 * 2 * P / (6 * P * T / (share * peak)) = share * peak / T

    Notation: P parameters, which a node receives twice for each micro-batch, and once as gradients,
    2 bytes each, however many GPUs share them; T tokens that a GPU computes on meanwhile, 6 FLOPs
    per parameter each; peak of a GPU in the recipe's precision.
    Source: Rajbhandari et al., arXiv:2104.07857, section 4: arithmetic intensity against bandwidth.
    Leaves out: recompute, which computes a third more, and latencies.
    """
    return _KEPT_UP * job.peak_flops_per_second / _TOKENS


def network(situation: Situation) -> str:
    """Return what joins the nodes, with the speed that is judged: not a GPU's, which share it."""
    asked = format_rate(fast_enough(situation.job))
    return _between_nodes(situation, f", and its GPUs need {asked}")


def _between_nodes(situation: Situation, more: str = "") -> str:
    joins = situation.job.cluster.inter_node
    if joins is None:
        raise AssertionError("several nodes have a network")
    return f"{joins.name} ({format_rate(joins.bytes_per_second)} per node{more})"


def _links(situation: Situation) -> str:
    cluster = situation.job.cluster
    slower = (
        "" if cluster.slowest_link is cluster.inter_node else f" and {link(situation)} inside them"
    )
    return f"{_between_nodes(situation)}{slower}"


def _exceeds(situation: Situation) -> bool:
    return situation.is_multi_node and not situation.fits_on_one_gpu
