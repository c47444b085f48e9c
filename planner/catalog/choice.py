"""What a layout must earn before it is proposed, and how often a predicted lead was real."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen

POOLED = "others"
"""The leads of frameworks of which too few pairs of layouts were published: those of all sources."""


@frozen
class Prices:
    """Shares of the step time by which a layout must be faster than one without."""

    code_change: float
    """Of each technique that changes the model's code."""
    code_change_source: str
    against_the_tree: float
    """Of a layout that the decision tree's branch does not admit."""
    against_the_tree_source: str
    one_more_dimension: float
    """Of a layout that divides the model in one more way."""
    one_more_dimension_source: str
    offload: float
    """Of states in host memory, where the job fits without."""
    offload_source: str
    wide_shards_per_doubling: float
    """Of parameters that many ranks gather over the network, per doubling of the ranks."""
    wide_shards_from_ranks: int
    wide_shards_source: str
    trusted_share: float
    """Of published pairs of layouts: a predicted lead that was real in as many is believed."""
    trusted_share_source: str
    tight_lead: float
    """By how much a stack in which the job has room must be slower before one in which it has none is taken."""
    tight_lead_source: str
    tools: Mapping[str, float]
    """Frameworks that are open where none is named, by the share of a step by which one must be faster to be taken."""
    tools_source: str


@frozen
class Lead:
    """Published pairs of layouts of one job by how much faster one was predicted to be."""

    from_fraction: float
    """The least predicted lead: step of the slower over that of the faster, less 1."""
    pairs: int
    real_share: float
    """Pairs of which the predicted faster was measured faster; the mean over sources."""


@frozen
class _LeadRecord:
    source: str
    leads: Mapping[str, tuple[Lead, ...]]


@cache
def prices() -> Prices:
    """Return `data/calibration/choice.toml`."""
    return build(Prices, read("calibration", "choice"), "calibration/choice")


@cache
def leads(framework: str) -> tuple[Lead, ...]:
    """Return the bands of predicted leads of a framework, ascending.

    Source: `data/calibration/leads.toml`, computed from published runs by `tests/fits/leads.py`.
    """
    record = build(_LeadRecord, read("calibration", "leads"), "calibration/leads")
    return record.leads.get(framework, record.leads[POOLED])


def lead(framework: str, fraction: float) -> Lead:
    """Return the band that a predicted lead falls into."""
    return [band for band in leads(framework) if band.from_fraction <= fraction][-1]


def trusted_lead(framework: str) -> float:
    """Return the predicted lead from which on it was real in `trusted_share` of published pairs."""
    bands = leads(framework)
    trusted = [band.real_share >= prices().trusted_share for band in bands]
    first = max((i + 1 for i, is_real in enumerate(trusted) if not is_real), default=0)
    return bands[min(first, len(bands) - 1)].from_fraction
