"""Seconds in which the trainer's new weights reach the engine, once a step.

Every rank of the trainer gathers each tensor whole, one after the other, and loads it into the engine beside it; of an
engine on GPUs of its own, the trainer's first rank sends it on.
"""

from planner.catalog.rollout import EngineRecord
from planner.collectives.operations import all_gather
from planner.core.term import Term, count, gpus, rate, seconds, size
from planner.domain.cluster import Cluster, Group, Link
from planner.domain.model import Model, Part
from planner.rollout.engine import weight_bytes

_SOURCE = "TRL 1.16, vllm_generation.py, sync_weights; planner/collectives"


def tensors(model: Model) -> int:
    """Return how many tensors are handed over, one after the other: each expert's weights are some of their own."""
    return sum(part.count * _of(part) for part in model.parts)


def _of(part: Part) -> int:
    matrices = sum(layer.num_experts for layer in part.linears)
    return matrices + len(part.tables) + len(part.vectors)


def loading(model: Model, record: EngineRecord) -> Term:
    """Return the seconds in which the engine takes the tensors in, by name, shape and shard.

    tensors x tensor_seconds
    """
    return Term(
        name="weight_loading",
        arithmetic=count(tensors(model), "tensors") * seconds(record.tensor_seconds),
        source=record.source,
    )


def gathering(model: Model, trainer: Cluster) -> tuple[Term, ...]:
    """Return the seconds in which the trainer's ranks gather the weights; none of one GPU.

    Leaves out: that DDP holds them whole already; adapters that are merged first, which is a pass over the weights.
    """
    ranks = trainer.world_size
    if ranks == 1:
        return ()
    each = all_gather(trainer, Group(ranks=ranks), weight_bytes(model), tensors(model))
    return (
        Term(
            name="weight_gather",
            arithmetic=seconds(float(each)),
            note=(
                size(weight_bytes(model)),
                " in ",
                count(tensors(model), "tensors among "),
                gpus(ranks),
            ),
            source=_SOURCE,
        ),
    )


def sending(model: Model, link: Link) -> Term:
    """Return the seconds in which the first rank sends the weights to an engine on other GPUs.

    bytes / link + tensors x latency

    Source: NCCL's broadcast is a chain: its time does not grow with the engine's ranks.
    """
    return Term(
        name="weight_transfer",
        arithmetic=size(weight_bytes(model)) / rate(link.bytes_per_second)
        + count(tensors(model), "tensors") * seconds(link.latency_seconds),
        note=(f"over {link.name}",),
        source=_SOURCE,
    )
