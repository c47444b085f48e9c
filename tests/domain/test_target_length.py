"""Targets of another length than their sources, of encoder-decoders."""

from typing import Any

import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError
from planner.core.units import GIB
from planner.domain.kept import Numerics
from planner.domain.strategy import Layout, Recompute
from planner.domain.target_length import with_target_length
from planner.memory.ledger import estimate_memory
from planner.models.architectures import read_model
from planner.step_time.ledger import estimate_step_time

T5: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 96,
    "d_model": 16,
    "d_ff": 48,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 2,
    "dropout_rate": 0.0,
}


def test_a_short_target_is_what_the_decoder_alone_sees() -> None:
    model = read_model("tiny", T5)
    short = with_target_length(model, 100, 25)
    assert short.parameters == model.parameters
    seen = {part.name: part.tokens(100) for part in short.parts}
    assert (seen["encoder_block"], seen["decoder_block"], seen["head"]) == (100, 25, 25)
    _, decoder = short.blocks
    assert [keys for _, keys in decoder.attentions(100)] == [25, 100]
    by_name = {each.name: each for each in decoder.linears}
    # Keys and values of the encoder's 100 tokens, of a part that sees 25.
    own, crossed = (
        by_name[f"{name}_k"].flops_per_token for name in ("SelfAttention", "EncDecAttention")
    )
    assert crossed == 4 * own
    whole = {each.name: each.bytes_in(Numerics.HALF) for each in model.blocks[1].kept}
    kept = {each.name: each.bytes_in(Numerics.HALF) for each in decoder.kept}
    assert kept["cross_key_value"] == 4 * whole["cross_key_value"]
    assert kept["cross_query"] == whole["cross_query"]


def test_the_same_length_changes_nothing() -> None:
    model = read_model("tiny", T5)
    assert with_target_length(model, 64, 64) == model


def _job(make_job: JobMaker, **recipe: Any) -> Any:
    wish = {"sequence_length": 512, "global_batch_size": 8, "attention": "eager", **recipe}
    return make_job("google-t5/t5-large", gpus=1, recipe=wish)


def test_a_shorter_target_takes_less_of_both(make_job: JobMaker) -> None:
    layout = Layout(micro_batch_size=8)
    same, short = _job(make_job), _job(make_job, target_length=128)
    steps = [float(estimate_step_time(job, layout).step_seconds) for job in (same, short)]
    peaks = [float(estimate_memory(job, layout).peak_bytes) for job in (same, short)]
    assert steps[1] < 0.75 * steps[0]
    assert peaks[1] < 0.75 * peaks[0]


def test_scores_of_the_encoder_are_recomputed_with_their_block(make_job: JobMaker) -> None:
    """24 layers of 16 heads and 512 x 512 scores would be 2.8 GiB of the 8 sequences, at 15 bytes a score."""
    job = _job(make_job)
    layout = Layout(micro_batch_size=8, recompute=Recompute.FULL)
    terms = {term.name: term for term in estimate_memory(job, layout).terms}
    assert float(terms["activations"].amount) < 2 * GIB


def test_a_model_without_an_encoder_has_no_target_length(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError, match="has no encoder"):
        make_job("gpt2", gpus=1, recipe={"target_length": 10})
    with pytest.raises(InvalidInputError, match="learned positions"):
        make_job("facebook/bart-base", gpus=1, recipe={"target_length": 4096})
