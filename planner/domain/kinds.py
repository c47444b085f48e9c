"""What kind of job a layout makes: what was published of one kind is off alike."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from planner.core.term import Amount, Truth, pick
from planner.domain.job import Job
from planner.domain.strategy import Layout, Strategy

LONG_SEQUENCE = 32768
"""Tokens from which attention is most of a step."""


class Kind(StrEnum):
    """Kinds of jobs, in the words that stand behind "runs of"."""

    OFFLOAD = "optimizers in host memory"
    ADAPTERS = "adapters beside frozen weights"
    VISION = "vision models"
    ENCODERS = "encoders"
    MIXTURES_ACROSS_NODES = "mixtures of experts across nodes"
    MIXTURES = "mixtures of experts"
    RECURRENCES = "models with recurrences"
    LONG_SEQUENCES = "long sequences"
    DECODERS = "decoders"


def conditions(job: Job, s: Strategy) -> tuple[tuple[Kind, Truth], ...]:
    """Return every kind and whether a layout is of it, or which rows are: the first that holds is its kind.

    Encoders are those with decoders too. Experts are across nodes where the ranks that deal them out are.
    """
    model = job.model
    dealt = np.asarray(s.expert_parallel_size) * s.ranks_per_expert
    has_scans = any(part.scan_flops_per_token for part in model.parts)
    return (
        (Kind.OFFLOAD, s.offloads_optimizer),
        (Kind.ADAPTERS, job.recipe.lora is not None),
        (Kind.VISION, model.reads_images),
        (Kind.ENCODERS, not model.has_trunk_of_decoder),
        (Kind.MIXTURES_ACROSS_NODES, model.has_experts & (dealt > job.cluster.joined_gpus)),
        (Kind.MIXTURES, model.has_experts),
        (Kind.RECURRENCES, has_scans),
        (Kind.LONG_SEQUENCES, job.recipe.sequence_length >= LONG_SEQUENCE),
        (Kind.DECODERS, True),
    )


def kind_of(job: Job, layout: Layout) -> Kind:
    """Return the kind of one layout."""
    return next(kind for kind, is_so in conditions(job, layout) if pick(is_so, 0))


def by_kind(job: Job, s: Strategy, amounts: Mapping[Kind, float]) -> Amount:
    """Return what is known of a layout's kind, or of each row's."""
    found: Amount = amounts[Kind.DECODERS]
    for kind, is_so in reversed(conditions(job, s)):
        found = np.where(is_so, amounts[kind], found)
    return found
