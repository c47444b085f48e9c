"""Rules about sizes: does the model's shape agree with the wish?"""

from planner.rules.base import Situation


def sequence_exceeds_positions(situation: Situation) -> str | None:
    """The sequence is longer than the positions that the model's config names.

    Why: rotary positions beyond those seen in pre-training extrapolate badly; the run works, the
    model may not.

    Instead: keep to max_position_embeddings, or scale the rotary base and train on long sequences.

    Source: Chen et al., Position Interpolation, arXiv:2306.15595, section 2.
    """
    length = situation.job.recipe.sequence_length
    positions = situation.job.model.max_position_embeddings
    if length <= positions:
        return None
    return f"sequences of {length:,} tokens exceed the config's {positions:,} positions"
