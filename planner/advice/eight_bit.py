"""What becomes of a plan with an 8-bit AdamW, where memory is short and it is still open."""

from dataclasses import replace

from planner.advice.choice import chosen_layout
from planner.advice.rules import Situation
from planner.advice.rules.single_node import EIGHT_BIT, leaves_8_bit_open
from planner.core.errors import Remedy
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields
from planner.targets import launch


def written_with_8_bit(
    situation: Situation, pinned: PinnedFields, objective: str
) -> Candidate | None:
    """Return what the same request with `--optimizer adamw-8bit` writes.

    None where that is not open or not written, nor where the chosen layout can have it as it is.
    """
    if not leaves_8_bit_open(situation):
        return None
    job, chosen = situation.job, situation.candidate.strategy
    changed = replace(job, recipe=replace(job.recipe, optimizer=EIGHT_BIT))
    if not chosen.offloads_optimizer and launch(changed, chosen).targets:
        return None
    candidate = chosen_layout(changed, pinned, objective)
    if candidate is None or not launch(changed, candidate.strategy).targets:
        return None
    return candidate


def kept_with_8_bit(candidate: Candidate | None) -> list[Remedy]:
    """Return the 8-bit AdamW as what fits without offload, where its files do."""
    if candidate is None or candidate.strategy.offloads_optimizer:
        return []
    text = f"8-bit AdamW would fit (--optimizer {EIGHT_BIT})"
    return [Remedy(text=text, field="recipe.optimizer", value=EIGHT_BIT)]
