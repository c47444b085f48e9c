"""What files ask to be trained on, where that is pairs of answers: the recipe's job and its reference."""

from typing import Any

from planner.catalog.spellings import spelled
from planner.configs.found import Setting, Setup
from planner.domain.job import OF_PAIRS


def job_of(method: Setting) -> str:
    """Return the job that a tool's method is, where that is estimated; "" of all others."""
    job = spelled("recipe.job", method.text, OF_PAIRS)
    return job if job in OF_PAIRS else ""


def method_of(setup: Setup) -> Setting | None:
    """Return where something else than texts is trained on, or anything else is done."""
    return next((each for found in setup.found if (each := found.get("method"))), None)


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
