"""Which GPU becomes which rank, and which ranks form which group."""

from collections.abc import Mapping, Sequence
from math import gcd

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.cluster import Gpu
from planner.domain.topology import Topology
from planner.hardware.group_links import node_links
from planner.hardware.rank_order import LARGEST_EXACT, RankOrderSearch

KINDS = ("tensor", "context", "expert", "data", "pipeline")
"""Of groups of ranks."""
LARGEST_PICTURE = 16
"""GPUs that a picture still shows."""
_MOST_RANKS = 2**20
"""Ranks whose groups are listed."""

Groups = tuple[tuple[int, ...], ...]


def order(
    topology: Topology | None,
    gpus_per_node: int,
    gpu: Gpu,
    *,
    peer_to_peer: bool | None = None,
) -> tuple[int, ...]:
    """Return the physical GPU of each local rank, so that near ranks sit on fast links.

    Blocks of 2, 4, 8 ... consecutive ranks, where tensor parallelism goes first, get the fastest
    links that the node has; of a node with more GPUs than are used, the best ones are taken. In
    index order where all pairs are alike or nothing was read. Exact for a topology of up to 8
    GPUs, grown from pairs beyond.

    Raises:
        InvalidInputError: the topology shows fewer GPUs than the node has.
    """
    in_index_order = tuple(range(gpus_per_node))
    if topology is None or gpus_per_node == 1:
        return in_index_order
    node = node_links(gpu, gpus_per_node, topology, peer_to_peer=peer_to_peer)
    search = RankOrderSearch(node=node, topology=topology, num_used=gpus_per_node)
    if search.all_pairs_are_equal():
        return in_index_order
    return search.exact() if topology.num_gpus <= LARGEST_EXACT else search.grown()


def cuda_visible_devices(gpu_order: Sequence[int]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for that order, "" where none is needed."""
    if tuple(gpu_order) == tuple(range(len(gpu_order))):
        return ""
    return ",".join(map(str, gpu_order))


@frozen
class Coordinates:
    """Where one rank stands in each kind of parallelism."""

    tensor: int
    context: int
    expert: int
    data: int
    pipeline: int


@frozen
class RankGrid:
    """All ranks of a job by their coordinates, tensor parallelism innermost.

        rank = tensor + tp * (context + cp * (data + dp * pipeline))

    Notation: tp, cp, dp the sizes. Experts are spread over context and data: blocks of ep
    consecutive ones of the cp * dp ranks that share tensor and pipeline coordinates; where those do not
    suffice, over tensor too (`planner.domain.expert_ranks`).
    Source: Megatron-LM's default order tp-cp-ep-dp-pp (megatron/core/parallel_state.py).
    """

    tensor: int
    context: int
    expert: int
    data: int
    pipeline: int
    gpus_per_node: int
    gpu_order: tuple[int, ...] = ()
    ranks_per_expert: int = 0
    """That share each expert; 0 for as many as dealing the experts leaves."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def _expert_stride(self) -> int:
        """Return the ranks that share each expert: neighbours."""
        folded = gcd(self.tensor, self.tensor * self.context * self.data // self.expert)
        return self.ranks_per_expert or folded

    def coordinates(self, rank: int) -> Coordinates:
        """Return where a rank stands."""
        rest, tensor = divmod(rank, self.tensor)
        pipeline, sample = divmod(rest, self.context * self.data)
        data, context = divmod(sample, self.context)
        return Coordinates(
            tensor=tensor,
            context=context,
            expert=rank // self._expert_stride % self.expert,
            data=data,
            pipeline=pipeline,
        )

    def place(self, rank: int) -> tuple[int, int]:
        """Return the node of a rank and its physical GPU there."""
        node, local = divmod(rank, self.gpus_per_node)
        return node, self.gpu_order[local] if self.gpu_order else local

    def groups(self, kind: str) -> Groups:
        """Return the groups of ranks that differ in one coordinate only.

        Args:
            kind: "tensor", "context", "expert", "data" or "pipeline".

        Raises:
            InvalidInputError: there is no such kind, or there are too many ranks to list.
        """
        strides = self._sizes_and_strides()
        if kind not in strides:
            raise _no_such_kind(kind)
        if self.world_size > _MOST_RANKS:
            raise InvalidInputError(
                f"{self.world_size:,} ranks are too many to list",
                hint=f"at most {_MOST_RANKS:,}",
                field="cluster.nodes",
            )
        size, stride = strides[kind]
        return tuple(
            tuple(range(first + offset, first + size * stride, stride))
            for first in range(0, self.world_size, size * stride)
            for offset in range(stride)
        )

    def strides(self) -> dict[str, str]:
        """Return, for each kind with several ranks, the first of its groups in words."""
        return {
            kind: f"{size} ranks, {stride} apart: {self._first(size, stride)}"
            for kind, (size, stride) in self._sizes_and_strides().items()
            if size > 1
        }

    def _first(self, size: int, stride: int) -> str:
        ranks = [str(rank * stride) for rank in range(min(size, 3))]
        return ", ".join([*ranks, *(["..."] if size > len(ranks) else [])])

    def _sizes_and_strides(self) -> dict[str, tuple[int, int]]:
        return {
            "tensor": (self.tensor, 1),
            "context": (self.context, self.tensor),
            "expert": (self.expert, self._expert_stride),
            "data": (self.data, self.tensor * self.context),
            "pipeline": (self.pipeline, self.tensor * self.context * self.data),
        }

    def picture(self) -> str:
        """Return a text picture: a row per copy of the model, a column per pipeline stage.

        A cell lists the GPUs that share a stage by tensor parallelism, as GPU or node.GPU. Empty
        for more than 16 GPUs.
        """
        if self.world_size > LARGEST_PICTURE:
            return ""
        rows = [
            (self._row_name(data, context), *self._row(data, context))
            for data in range(self.data)
            for context in range(self.context)
        ]
        stages = [f"stage {stage}" for stage in range(self.pipeline)]
        table = [("", *(stages if self.pipeline > 1 else [""])), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )
        return "\n".join(line for line in lines if line)

    def _row_name(self, data: int, context: int) -> str:
        return f"data {data}" + (f", context {context}" if self.context > 1 else "")

    def _row(self, data: int, context: int) -> list[str]:
        samples = self.context * self.data
        firsts = [
            self.tensor * (context + self.context * data + samples * stage)
            for stage in range(self.pipeline)
        ]
        return [
            "[" + " ".join(self._gpu_name(first + rank) for rank in range(self.tensor)) + "]"
            for first in firsts
        ]

    def _gpu_name(self, rank: int) -> str:
        node, gpu = self.place(rank)
        return f"GPU{gpu}" if self.world_size <= self.gpus_per_node else f"{node}.GPU{gpu}"


def rank_grid(
    sizes: Mapping[str, int],
    *,
    gpus_per_node: int,
    nodes: int = 1,
    gpu_order: Sequence[int] = (),
    ranks_per_expert: int = 0,
) -> RankGrid:
    """Return the map of a job's ranks.

    Args:
        sizes: of "tensor", "context", "expert", "data" (replicas and shards together) and
            "pipeline"; 1 where left out.
        gpus_per_node: ranks of a node.
        nodes: how many there are.
        gpu_order: physical GPU of each local rank; empty for index order.
        ranks_per_expert: that share each expert; 0 for as many as dealing the experts leaves.

    Raises:
        InvalidInputError: a kind is unknown, the sizes do not multiply to the number of GPUs, or
            the experts do not divide tensor x context x data.
    """
    unknown = next((kind for kind in sizes if kind not in KINDS), None)
    if unknown is not None:
        raise _no_such_kind(unknown)
    grid = RankGrid(
        **{kind: sizes.get(kind, 1) for kind in KINDS},
        gpus_per_node=gpus_per_node,
        gpu_order=tuple(gpu_order),
        ranks_per_expert=ranks_per_expert,
    )
    product = (
        f"tensor {grid.tensor} x context {grid.context} x data {grid.data}"
        f" x pipeline {grid.pipeline}"
    )
    if min(sizes.values(), default=1) < 1 or grid.world_size != nodes * gpus_per_node:
        raise InvalidInputError(
            f"{product} = {grid.world_size:,} ranks, but {nodes:,} x {gpus_per_node:,} GPUs",
            hint="choose sizes whose product is the number of GPUs",
            field="strategy",
        )
    if grid.tensor * grid.context * grid.data % grid.expert:
        raise InvalidInputError(
            f"expert_parallel_size {grid.expert} does not divide"
            f" tensor {grid.tensor} x context {grid.context} x data {grid.data}",
            hint=f"use a divisor of {grid.context * grid.data}",
            field="strategy.expert_parallel_size",
        )
    return grid


def _no_such_kind(kind: str) -> InvalidInputError:
    return InvalidInputError(
        f"there are no groups of {kind[:40]!r}", hint=f"known: {', '.join(KINDS)}"
    )
