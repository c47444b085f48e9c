"""Nothing that was assumed makes an error, and no assumed batch is odd."""

import pytest

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.request.schema import parse_request, resolve
from planner.request.strategy import pinned_fields
from planner.search.limits import violations
from planner.search.pinned_fields import simplest_layout

MODELS = (
    "gpt2",
    "google/vit-base-patch16-224",
    "openai/whisper-small",
    "meta-llama/Meta-Llama-3.1-405B",
)


def batch(model: str, gpus: int, nodes: int = 1, **strategy: int) -> int:
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": gpus, "nodes": nodes},
        **({"strategy": strategy} if strategy else {}),
    }
    return resolve(parse_request(payload), allow_paths=False).job.recipe.global_batch_size


@pytest.mark.parametrize("gpus", [1, 3, 4, 6, 8])
@pytest.mark.parametrize("model", MODELS)
def test_an_assumed_batch_is_a_power_of_two_for_each_gpu(model: str, gpus: int) -> None:
    each, rest = divmod(batch(model, gpus), gpus)
    assert rest == 0
    assert each.bit_count() == 1


def test_half_a_million_tokens_are_the_nearest_power_of_two() -> None:
    assert batch("gpt2", 4) == 512
    assert batch("gpt2", 3) == 3 * 128
    assert batch("google/vit-base-patch16-224", 4) == 2048


def test_gpus_share_a_sequence_where_one_each_is_far_too_many() -> None:
    """405B trains with 16 M tokens: 4,096 sequences of 4,096, for 16,384 GPUs."""
    assert batch("meta-llama/Meta-Llama-3.1-405B", 8, 2048) == 4096
    assert (
        batch("meta-llama/Meta-Llama-3.1-405B", 8, 2048, data_parallel_shard_size=16_384) == 16_384
    )


def of_tokens(tokens: int, gpus: int, model: str = "gpt2", **cluster: int) -> tuple[int, list[str]]:
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": gpus, **cluster},
        "recipe": {"global_batch_tokens": tokens, "sequence_length": 1024},
    }
    found = resolve(parse_request(payload), allow_paths=False)
    said = [a.text for a in found.assumptions if a.field == "recipe.global_batch_size"]
    return found.job.recipe.global_batch_size, said


@pytest.mark.parametrize(
    ("tokens", "gpus", "sequences"),
    [
        (500_000, 4, 512),  # people call 524,288 half a million
        (524_288, 3, 513),  # 171 for each
        (1_000_000, 8, 1024),
        (200_000, 4, 196),  # 4 x 49 are nearer than any power of two
        (100, 4, 1),
    ],
)
def test_a_batch_in_tokens_is_the_nearest_that_gpus_divide_and_is_said(
    tokens: int, gpus: int, sequences: int
) -> None:
    batch_size, said = of_tokens(tokens, gpus)
    assert batch_size == sequences
    assert said[0].endswith(f"per optimizer step for the {tokens:,} tokens asked for")


def test_a_batch_is_given_once() -> None:
    recipe = {"global_batch_tokens": 4096, "global_batch_size": 4}
    with pytest.raises(InvalidInputError):
        resolve(parse_request({"model": "gpt2", "recipe": recipe}), allow_paths=False)


@pytest.mark.parametrize(
    "strategy",
    [
        {"micro_batch_size": 3},
        {"gradient_accumulation_steps": 5},
        {"micro_batch_size": 3, "tensor_parallel_size": 2},
        {"context_parallel_size": 3, "tensor_parallel_size": 1},
        {"pipeline_parallel_size": 3, "micro_batch_size": 7},
    ],
)
def test_what_is_assumed_fits_what_was_asked(strategy: dict[str, int]) -> None:
    payload = {
        "model": "meta-llama/Llama-2-7b-hf",
        "cluster": {"gpu": "h100", "gpus_per_node": 6, "nodes": 1},
        "recipe": {"framework": "megatron"},
        "strategy": strategy,
    }
    request = parse_request(payload)
    job = resolve(request, allow_paths=False).job
    broken = violations(job, simplest_layout(job, pinned_fields(request.strategy)))
    assert not {"recipe.global_batch_size", "recipe.sequence_length"} & {b.field for _, b in broken}
    assert "LAY010" not in {limit.code for limit, _ in broken}


def test_every_model_of_the_catalogue_has_a_batch_that_gpus_divide() -> None:
    for model in records.model_ids()[::7]:
        assert batch(model, 8) % 8 == 0
