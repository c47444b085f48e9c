"""Limits on the modules that selective recompute names."""

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.recompute_modules import (
    LATENT_UP_PROJECTION,
    MOE,
    MOE_ACTIVATION,
    SHARED_EXPERTS,
    number_of,
    words_of,
)
from planner.domain.strategy import Recompute, Strategy

_FIELD = "strategy.recompute_modules"
_ASKED_FOR = (LATENT_UP_PROJECTION, MOE, MOE_ACTIVATION, SHARED_EXPERTS)
"""Modules that say something of few models; every other may name layers that happen not to be there."""


def modules_recompute_nothing(_job: Job, s: Strategy) -> Breach:
    """Modules are named for selective recompute alone.

    Why: without recompute nothing is computed again, and full recompute repeats the whole layer.

    Instead: `--recompute selective` beside `--recompute-modules`.

    Source: Megatron-LM, transformer_config.py: recompute_modules goes with recompute_granularity selective.
    """
    return Breach(
        broken=_is_named(s) & (np.asarray(s.recompute) != Recompute.SELECTIVE),
        message="recompute_modules ({modules}) need selective recompute, and recompute is {recompute}",
        hint="--recompute selective, or leave the modules out",
        numbers=_named(s) | {"recompute": Recompute.name_of(s.recompute)},
        field=_FIELD,
    )


def model_lacks_modules(job: Job, s: Strategy) -> Breach:
    """The model must have the modules that are to recompute.

    Why: experts, a shared one, or projections out of latents are what few models have; of others, the names free
    nothing.

    Instead: the modules that it has; `layernorm` and `mlp` may name layers that are not there.

    Source: Megatron-LM, transformer_config.py: moe_act asks for grouped experts, mla_up_proj for latent attention.
    """
    has = {name for part in job.model.blocks for name in part.modules}
    lacking = number_of(name for name in _ASKED_FOR if name not in has)
    asked = np.asarray(s.recompute_modules) & lacking
    return Breach(
        broken=asked > 0,
        message="{model} has no {modules} to recompute",
        hint="leave it out of --recompute-modules",
        numbers={
            "modules": words_of(asked if asked.ndim else int(asked)),
            "model": job.model.name,
        },
        field=_FIELD,
    )


def experts_recompute_while_hidden(job: Job, s: Strategy) -> Breach:
    """A mixture does not recompute whole while other micro-batches hide its exchange.

    Why: its recompute would exchange the tokens once more, in the middle of the backward that hides it.

    Instead: `moe_act` and `shared_experts`, which exchange nothing, or no overlap of the exchange.

    Source: Megatron-LM, transformer_config.py: overlap_moe_expert_parallel_comm asks for no recompute of moe.
    """
    is_asked = (np.asarray(s.recompute_modules) & number_of([MOE])) > 0
    return Breach(
        broken=is_asked & job.recipe.expert_overlap,
        message="moe cannot be recomputed while the exchange of experts is overlapped",
        hint="moe_act and shared_experts can; or --no-ep-overlap",
        field=_FIELD,
    )


def modules_are_missing(job: Job, s: Strategy) -> Breach:
    """The framework must let single modules be named.

    Why: what else selects is a choice of the framework's own: operations, or layers.

    Instead: selective recompute as the framework does it, or another framework.

    Source: the framework record's capabilities.
    """
    lacking = ~number_of(job.framework.capabilities.recompute_modules)
    broken = (np.asarray(s.recompute_modules) & lacking) > 0
    return Breach(
        broken=broken,
        message="{framework} cannot recompute chosen modules ({modules})",
        hint=f"{_able() if np.any(broken) else ''} can; or leave --recompute-modules out",
        numbers=_named(s) | {"framework": job.framework.name},
        field=_FIELD,
    )


def _able() -> str:
    """Return the frameworks that let modules be named: reading all of them is for who asks."""
    frameworks = map(records.framework, records.framework_names())
    return ", ".join(each.name for each in frameworks if each.capabilities.recompute_modules)


def _is_named(s: Strategy) -> np.ndarray:
    return np.asarray(s.recompute_modules) > 0


def _named(s: Strategy) -> dict[str, object]:
    return {"modules": words_of(s.recompute_modules)}
