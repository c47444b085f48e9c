"""A step inside backward: never all gradients, and only where they are whole when they come."""

import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError
from planner.domain.strategy import Layout
from planner.memory.ledger import estimate_memory, gradients
from planner.parallel.partition import stage
from planner.request.schema import parse_request, resolve
from planner.search.limits import check

LLAMA = "meta-llama/Llama-3.1-8B"
EMBEDDINGS = 128_256 * 4096
RECIPE = {"precision": "bf16", "global_batch_size": 1, "sequence_length": 64, "optimizer": "sgd"}


def test_one_gpu_holds_the_gradient_of_its_largest_tensor(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=1, recipe={**RECIPE, "optimizer_in_backward": True})
    held = gradients(job, Layout(), stage(job, Layout(), 0))
    assert held.first_block.value == 2 * EMBEDDINGS
    assert held.step.value == held.forward.value == 0


def test_shards_hold_those_of_what_is_reduced_together(make_job: JobMaker) -> None:
    recipe = {**RECIPE, "global_batch_size": 8, "optimizer_in_backward": True}
    job = make_job(LLAMA, gpus=8, recipe=recipe)
    layout = Layout(data_parallel_shard_size=8, zero_stage=3)
    held = gradients(job, layout, stage(job, layout, 0))
    assert held.first_block.value == pytest.approx(2 * (2 * EMBEDDINGS + 4096) / 8)


def test_it_saves_nearly_all_gradients(make_job: JobMaker) -> None:
    plain = make_job(LLAMA, gpus=1, recipe=RECIPE)
    inside = make_job(LLAMA, gpus=1, recipe={**RECIPE, "optimizer_in_backward": True})
    saved = (
        estimate_memory(plain, Layout()).peak_bytes - estimate_memory(inside, Layout()).peak_bytes
    )
    assert saved > 0.8 * 2 * plain.model.parameters


@pytest.mark.parametrize(
    ("batch", "layout"),
    [
        (2, Layout(gradient_accumulation_steps=2)),
        (8, Layout(data_parallel_replicate_size=8)),
        (8, Layout(data_parallel_shard_size=8, zero_stage=1)),
    ],
)
def test_gradients_that_outlive_their_step_are_refused(
    make_job: JobMaker, batch: int, layout: Layout
) -> None:
    recipe = {**RECIPE, "global_batch_size": batch, "optimizer_in_backward": True}
    job = make_job(LLAMA, gpus=layout.data_parallel_size, recipe=recipe)
    with pytest.raises(InvalidInputError, match="optimizer_in_backward"):
        check(job, layout)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({"framework": "megatron"}, "not estimated"),
        ({"precision": "fp16-mixed"}, "checks all gradients"),
    ],
)
def test_what_looks_at_all_gradients_is_refused(recipe: dict[str, str], reason: str) -> None:
    request = parse_request({"model": "gpt2", "recipe": {"optimizer_in_backward": True, **recipe}})
    with pytest.raises(InvalidInputError, match=reason):
        resolve(request, allow_paths=False)
