"""What Transformer Engine hands to autograd in place of weight gradients that are added up elsewhere."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from planner.core.term import NOTHING, Amount, bytes_each, count, only_where
from planner.domain.job import Job
from planner.domain.model import Linear, Part
from planner.domain.strategy import Strategy
from planner.memory.phases import PhasedTerm, always
from planner.parallel.activations import gathers_parameters
from planner.parallel.partition import Stage, before_blocks, occurrences

_NAME = "dummy_weight_gradients"
_SOURCE = "NVIDIA/TransformerEngine transformer_engine/pytorch/module/base.py get_dummy_wgrad, from 2.3 on (ba5dc5dd)"

_Shape = tuple[int, int, int, bool]
"""Input and output features of a matrix, into how many it can be cut, and whether it is an expert's."""


def dummy_weight_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """A tensor for each shape of the weights whose gradients a fused kernel adds to the main ones; it is never read.

        bytes = w * sum over the distinct shapes of a stage's weights of in * out / t

    Notation: w bytes of a weight; t the tensor-parallel ranks, of an expert those that share it. Experts have one
    shape together, the layers of a kind too. Queries, keys and values are one weight, and so are gate and up.
    It is there from the first backward on, through every later step.
    Source: TransformerEngine's get_dummy_wgrad; Megatron-LM core/tensor_parallel/layers.py line 754 at d98e8a6, for the head.
    Leaves out: adapters; shards of parameters (Megatron-FSDP), whose recipes do not fuse.
    """
    capability = float(job.cluster.gpu.compute_capability or 0)
    if capability < job.framework.dummy_gradients_from or job.recipe.lora is not None:
        return always(_NAME, NOTHING, _SOURCE)
    elements = count(_elements(job, s, stage), "elements of distinct weights")
    held = bytes_each(job.precision.parameter_bytes) * elements
    return always(_NAME, only_where(~np.asarray(gathers_parameters(job, s)), held), _SOURCE)


def _elements(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the elements of one tensor for each shape: parts that have the same share it."""
    most: dict[_Shape, Amount] = {}
    for part, times in occurrences(job.model, stage):
        if part in before_blocks(job.model):
            continue
        for shape, number in _shapes(part):
            here = number * (np.asarray(times) > 0)
            most[shape] = np.maximum(most.get(shape, 0), here)
    total: Amount = sum(
        (number * _rank_elements(s, shape) for shape, number in most.items()), start=0.0
    )
    return total


def _shapes(part: Part) -> Iterator[tuple[_Shape, int]]:
    """Yield each shape of a part's weights, and how many of its layers have it."""
    yield from Counter(map(_shape, part.linears)).items()


def _shape(layer: Linear) -> _Shape:
    return layer.in_features, layer.out_features, layer.most_splits, layer.num_experts > 1


def _rank_elements(s: Strategy, shape: _Shape) -> Amount:
    in_features, out_features, most_splits, is_expert = shape
    split = s.ranks_per_expert if is_expert else s.tensor_parallel_size
    return in_features * out_features / np.minimum(split, most_splits)
