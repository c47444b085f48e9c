"""An encoder-decoder whose targets are of another length than their sources."""

from dataclasses import replace

from planner.domain.kept import Kept
from planner.domain.model import Model, Part


def with_target_length(model: Model, sequence_length: int, target_length: int) -> Model:
    """Return the model whose decoder sees so many tokens of each sequence, and its encoder `sequence_length`.

    A decoder's part sees target_length / sequence_length of a sequence's tokens; what it reads of the encoder's
    output is as long as the source all the same.

    Args:
        model: has parts of the target, else nothing changes.
        sequence_length: tokens of a source.
        target_length: tokens of a target.
    """
    share = target_length / sequence_length
    parts = (_of_share(part, share) if part.is_target else part for part in model.parts)
    return replace(model, parts=tuple(parts))


def _of_share(part: Part, share: float) -> Part:
    return replace(
        part,
        share_of_tokens=share,
        linears=tuple(
            replace(each, per_token=1 / share) if each.reads_source else each
            for each in part.linears
        ),
        kept=tuple(_of_source(each, share) if each.reads_source else each for each in part.kept),
    )


def _of_source(kept: Kept, share: float) -> Kept:
    work = kept.work
    return replace(
        kept,
        bytes_per_token=tuple(size / share for size in kept.bytes_per_token),
        compiled_bytes_per_token=tuple(size / share for size in kept.compiled_bytes_per_token),
        work=None if work is None else work.scaled(1 / share),
    )
