"""What files ask to be trained on, where that is pairs of answers: the recipe's job and its reference."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.catalog.configs import asked
from planner.catalog.spellings import spelled
from planner.configs.found import Setting, Setup
from planner.domain.job import OF_PAIRS

_OFF = frozenset({"", "0", "0.0", "false", "no", "none", "null", "off"})
"""Values by which a setting asks for nothing."""


def job_of(method: Setting) -> str:
    """Return the job that a tool's method is, where that is estimated; "" of all others."""
    job = spelled("recipe.job", method.text, OF_PAIRS)
    return job if job in OF_PAIRS else ""


def method_of(setup: Setup) -> Setting | None:
    """Return where something else than texts is trained on, or anything else is done."""
    said = (each for found in setup.found if (each := found.get("method")))
    return next(said, None) or next(_asked(setup), None)


def _asked(setup: Setup) -> Iterator[Setting]:
    """Yield settings of tools that are not read, as what they ask for."""
    for found in setup.found:
        for each in asked():
            setting = found.get(*each.keys) if found.kind == each.of else None
            if setting is not None and setting.text.lower() not in _OFF:
                yield replace(setting, value=each.asks)


def job_fields(setup: Setup) -> dict[str, Any]:
    """Return job, loss and reference as a recipe has them; {} for training on texts."""
    method = method_of(setup)
    job = job_of(method) if method else ""
    if not job:
        return {}
    fields: dict[str, Any] = {"job": job}
    if job == "dpo":
        holds_all = any(found.truth("all_logits") for found in setup.found)
        fields["loss"] = "standard" if holds_all else "chunked"
        if any(found.truth("precompute_ref_log_probs") for found in setup.found):
            fields["reference_model"] = "precomputed"
    return fields
