"""Nothing that was assumed makes an error, and no assumed batch is odd."""

from functools import partial

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


def batch(model: str, gpus: int, nodes: int = 1, *, job: str | None = None, **strategy: int) -> int:
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": gpus, "nodes": nodes},
        "recipe": {"job": job},
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
    assert batch("gpt2", 4, job="pretrain") == 512
    assert batch("gpt2", 3, job="pretrain") == 3 * 128


CLASSIFIER: dict[str, object] = {"task": "sequence-classification"}
GPT2_CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}
TRAINED: dict[str, tuple[str | dict[str, object], dict[str, object], int, str]] = {
    "a decoder": (
        "gpt2",
        {},
        32,
        "32 sequences (32,768 tokens) per step, as in fine-tuning",
    ),
    "a larger decoder": (
        "meta-llama/Llama-2-7b-hf",
        {},
        64,
        "64 sequences (262,144 tokens) per step, as in fine-tuning (64 to 128)",
    ),
    "a decoder, pre-trained": (
        "gpt2",
        {"job": "pretrain"},
        512,
        "512 sequences (524,288 tokens) per step, as in pre-training",
    ),
    "a decoder on as many tokens as one from random weights, fine-tuned": (
        "gpt2",
        {"job": "finetune", "training_tokens": 300 * 10**9},
        32,
        "32 sequences (32,768 tokens) per step, as in fine-tuning",
    ),
    "a decoder, trained further": (
        "gpt2",
        {"training_tokens": 10**9},
        512,
        "512 sequences (524,288 tokens) per step, as in pre-training",
    ),
    "a decoder from random weights": (
        GPT2_CONFIG,
        {"training_samples": 100},
        512,
        "512 sequences (524,288 tokens) per step, as in pre-training",
    ),
    "a decoder on 52,000 samples": (
        "meta-llama/Llama-2-7b-hf",
        {"training_samples": 52_000},
        64,
        "64 sequences (262,144 tokens) per step, as in fine-tuning (64 to 128)",
    ),
    "a decoder on 20 tokens for each parameter": (
        "meta-llama/Llama-2-7b-hf",
        {"training_tokens": 140 * 10**9},
        128,
        "128 sequences (524,288 tokens) per step, as in pre-training",
    ),
    "qlora of 70B": (
        "meta-llama/Llama-2-70b-hf",
        {"method": "qlora"},
        16,
        "16 sequences (65,536 tokens) per step, as in LoRA fine-tuning (16 to 128)",
    ),
    "lora of gpt2": (
        "gpt2",
        {"method": "lora"},
        8,
        "8 sequences (8,192 tokens) per step, as in LoRA fine-tuning (8 to 128)",
    ),
    "a classifier": (
        "bert-base-uncased",
        CLASSIFIER,
        16,
        "16 sequences (8,192 tokens) per step, as in fine-tuning (16 to 32)",
    ),
    "an encoder without a task": (
        "bert-base-uncased",
        {},
        16,
        "16 sequences (8,192 tokens) per step, as in fine-tuning (16 to 32)",
    ),
    "an encoder without a head": (
        "microsoft/deberta-v3-base",
        {},
        16,
        "16 sequences (8,192 tokens) per step, as in fine-tuning (16 to 32)",
    ),
    "an encoder, pre-trained": (
        "bert-base-uncased",
        {"job": "pretrain"},
        256,
        "256 sequences (131,072 tokens) per step, as in pre-training",
    ),
    "two towers": (
        "openai/clip-vit-base-patch32",
        {},
        64,
        "64 sequences (4,928 tokens) per step, as in fine-tuning",
    ),
    "t5": (
        "google-t5/t5-base",
        {},
        128,
        "128 sequences (65,536 tokens) per step, as in fine-tuning",
    ),
    "images": (
        "google/vit-base-patch16-224",
        {},
        512,
        "512 images per step, as in fine-tuning",
    ),
    "whisper": (
        "openai/whisper-small",
        {},
        16,
        "16 sequences (7,168 tokens) per step, as in fine-tuning (16 to 32)",
    ),
}


@pytest.mark.parametrize(("model", "recipe", "sequences", "said"), TRAINED.values(), ids=TRAINED)
def test_the_batch_is_what_such_training_takes_and_why_is_said(
    model: str | dict[str, object], recipe: dict[str, object], sequences: int, said: str
) -> None:
    payload = {
        "model": model,
        "cluster": {"gpu": "h100", "gpus_per_node": 4},
        "recipe": recipe,
    }
    found = resolve(parse_request(payload), allow_paths=False)
    assert found.job.recipe.global_batch_size == sequences
    assert [a.text for a in found.assumptions if a.field == "recipe.global_batch_size"] == [said]


@pytest.mark.parametrize(
    ("gpus", "nodes", "micro_batch", "sequences", "said"),
    [
        (6, 1, 1, 24, ", as in fine-tuning (16 to 32)"),  # not the nearest, 12: too few
        (8, 4, 1, 32, ", as in fine-tuning (16 to 32)"),
        (8, 8, 1, 64, ", one per GPU (fine-tuning: 16 to 32)"),
        (8, 1, 5, 40, ", as 8 ranks need (fine-tuning: 16 to 32)"),
    ],
)
def test_a_batch_is_at_least_one_share_for_each_rank(
    gpus: int, nodes: int, micro_batch: int, sequences: int, said: str
) -> None:
    payload = {
        "model": "bert-base-uncased",
        "cluster": {"gpu": "h100", "gpus_per_node": gpus, "nodes": nodes},
        "recipe": CLASSIFIER,
        "strategy": {"micro_batch_size": micro_batch},
    }
    found = resolve(parse_request(payload), allow_paths=False)
    assert found.job.recipe.global_batch_size == sequences
    texts = [a.text for a in found.assumptions if a.field == "recipe.global_batch_size"]
    assert texts[0].endswith(f" per step{said}")


@pytest.mark.parametrize(
    ("gpus", "said"), [(4, ", as in pre-training (383)"), (512, ", one per GPU")]
)
def test_a_power_of_two_beside_the_usual_is_not_said_to_be_needed(gpus: int, said: str) -> None:
    payload = {
        "model": "facebook/dinov2-base",
        "recipe": {"job": "pretrain"},
        "cluster": {"gpu": "h100", "gpus_per_node": min(gpus, 8), "nodes": -(-gpus // 8)},
    }
    found = resolve(parse_request(payload), allow_paths=False)
    assert found.job.recipe.global_batch_size == 512
    texts = [a.text for a in found.assumptions if a.field == "recipe.global_batch_size"]
    assert f"512 images per step{said}" in texts[0]


def test_images_have_no_sequence_length() -> None:
    payload = {"model": "microsoft/resnet-50", "recipe": {"sequence_length": 224}}
    with pytest.raises(InvalidInputError, match="reads images") as caught:
        resolve(parse_request(payload), allow_paths=False)
    assert "3,136 positions of each image" in caught.value.hint
    own = {"model": "microsoft/resnet-50", "recipe": {"sequence_length": 3136}}
    for asked in (own, {"model": "microsoft/resnet-50"}):
        found = resolve(parse_request(asked), allow_paths=False)
        assert found.job.recipe.sequence_length == 3136
        assert "recipe.sequence_length" not in {each.field for each in found.assumptions}


def test_adapters_never_share_a_sequence() -> None:
    """Few frameworks divide them, and what is assumed is not to leave a plan without files."""
    many = {"gpu": "h100", "gpus_per_node": 8, "nodes": 64}
    payload = {"model": "gpt2", "cluster": many, "recipe": {"method": "lora"}}
    found = resolve(parse_request(payload), allow_paths=False)
    assert found.job.recipe.global_batch_size == 512


@pytest.mark.parametrize("nodes", [64, 100, 128, 129, 1024])
def test_ranks_of_a_model_that_a_node_holds_have_a_sequence_each(nodes: int) -> None:
    """16 bytes for each of 0.1 and of 8 billion parameters are 2 and 128 GB of a node's 640."""
    assert batch("gpt2", 8, nodes) == max(512, 8 * nodes)
    assert batch("meta-llama/Llama-3.1-8B", 8, nodes) == 8 * nodes


def test_gpus_share_a_sequence_where_one_each_is_far_too_many() -> None:
    """405B trains with 16 M tokens: 4,096 sequences of 4,096, for 16,384 GPUs."""
    whole = partial(batch, "meta-llama/Meta-Llama-3.1-405B", 8, 2048)
    assert whole(job="pretrain") == 4096
    assert whole() == 128
    assert whole(job="pretrain", data_parallel_shard_size=16_384) == 16_384


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
    assert said[0].endswith(f"per step for the {tokens:,} tokens asked for")


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
