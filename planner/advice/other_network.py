"""What would be planned on the other network that nodes whose network was assumed might have."""

from collections.abc import Callable
from dataclasses import replace

from planner.advice.rules.base import OtherNetwork
from planner.domain.job import Job
from planner.hardware.usual_network import other_network
from planner.search.candidate import Candidate, estimate

NOTABLE = 1.05
"""By how much slower the plan must be on the other network for that one to be searched."""


def on_other_network(
    job: Job, chosen: Candidate, choose: Callable[[Job], Candidate]
) -> OtherNetwork | None:
    """Return the choice on the other network; None where the network is known, or hardly matters.

    Args:
        job: whose network may have been assumed.
        chosen: what was chosen for it.
        choose: how a choice is made for a job.
    """
    link = other_network(job.cluster)
    if link is None:
        return None
    there = replace(job, cluster=replace(job.cluster, inter_node=link))
    same = estimate(there, chosen.strategy)
    if same.step_time.step_seconds < NOTABLE * chosen.step_time.step_seconds:
        return None
    return OtherNetwork(link=link, chosen=choose(there), same=same)
