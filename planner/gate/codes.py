"""What a check of a plan can find, by code: the documentation of each."""

from collections.abc import Mapping
from types import MappingProxyType

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "CHK001": "fits",
        "CHK002": "memory",
        "CHK003": "step",
        "CHK004": "gpu-hours",
        "CHK005": "cost",
        "CHK006": "locked-plan",
        "CHK007": "locked-files",
        "CHK008": "edited-files",
    }
)
"""The short names of what is judged."""

FINDINGS: Mapping[str, str] = MappingProxyType(
    {
        "CHK001": """The layout does not fit the GPUs, or none does.

        Why: it would end with an out-of-memory error before its first step is over.

        Instead: `planner memory` says what would fit; more GPUs, recompute or another layout.
        """,
        "CHK002": """A GPU would reserve more memory than `--max-memory` allows.

        Why: what is judged is what the allocator and the context take from the card, as plans print it;
        a share is of what the card gives to a process.

        Instead: a smaller micro-batch, recompute, or more shards; or another limit.
        """,
        "CHK003": """An optimizer step would take longer than `--max-step` allows.

        Why: what is judged is the estimate itself, not the upper end of its range.

        Instead: `planner suggest` names what is faster and why it was not chosen.
        """,
        "CHK004": """The whole run would take more GPU-hours than `--max-gpu-hours` allows.

        Why: GPU-hours are the GPUs times the hours of the run, start-up included.

        Instead: `planner suggest --objective gpus` looks for fewer GPUs.
        """,
        "CHK005": """The whole run would cost more than `--max-cost` allows.

        Why: the cost is that of whole instances on demand, at the price that the instance's record has.

        Instead: `planner suggest --objective cost` looks for the cheapest number of GPUs.
        """,
        "CHK006": """The locked request is planned otherwise now than when it was locked.

        Why: the planner, its data or the model have changed since; the committed files run the old plan.

        Instead: read `planner diff`, then write the folder and its lock again, or stay with the old planner.
        """,
        "CHK007": """The planner writes this file otherwise now than when it was locked.

        Why: a template or a figure in it has changed; the committed file still runs what was locked.

        Instead: write the folder and its lock again, and read the difference.
        """,
        "CHK008": """A file of a launch folder is not the one that was locked: edited, or gone.

        Why: what runs is then no longer what was planned and estimated.

        Instead: change the request and write the folder again, or lock what is meant.
        """,
    }
)
