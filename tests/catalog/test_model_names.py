"""Models by what people call them: one that is certain, else the three that are nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.model_names import model_called, nearest_models, weights_called
from planner.catalog.records import model, model_ids

CALLED = {
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "Llama 3 8B": "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "llama3_70b_instruct": "meta-llama/Meta-Llama-3-70B",
    "llama2 7b": "meta-llama/Llama-2-7b-hf",
    "Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B",
    "qwen 3 235b": "Qwen/Qwen3-235B-A22B",
    "mistral-7b": "mistralai/Mistral-7B-v0.3",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-v0.1",
    "mixtral 8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "gemma2 9b": "google/gemma-2-9b",
    "gemma 2b": "google/gemma-2b",
    "phi 1.5": "microsoft/phi-1_5",
    "phi3 mini": "microsoft/Phi-3-mini-4k-instruct",
    "t5": "google-t5/t5-base",
    "gpt-2": "openai-community/gpt2",
    "gpt j 6b": "EleutherAI/gpt-j-6b",
    "bloom 7b": "bigscience/bloom-7b1",
    "code llama 34b": "codellama/CodeLlama-34b-hf",
    "resnet50": "microsoft/resnet-50",
    "whisper large": "openai/whisper-large-v3",
    "vit base": "google/vit-base-patch16-224",
    "mistral large": "mistralai/Mistral-Large-Instruct-2407",
    "nemotron 3 nano 30b": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
}
NOT_CERTAIN = {
    "mixtral": {"mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x22B-v0.1"},
    "resnet": {"microsoft/resnet-18", "microsoft/resnet-50"},
    "gemma-2": {"google/gemma-2-2b", "google/gemma-2-9b", "google/gemma-2-27b"},
    "llama-3-13b": {"meta-llama/Meta-Llama-3-8B"},
    "Mistral-7B-Instruct-v0.2": {"mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.3"},
    "Qwen2.5-7B-Instruct-AWQ": {"Qwen/Qwen2.5-7B"},
    "phi-3-mini-128k": {"microsoft/Phi-3-mini-4k-instruct"},
    "ModernBERT-base": {"answerdotai/ModernBERT-large"},
    "acme/llama-3-8b": {"meta-llama/Meta-Llama-3-8B"},
}


@pytest.mark.parametrize(
    ("typed", "weights"),
    [
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Qwen3-8B-Base", "Qwen/Qwen3-8B-Base"),
        ("gemma 7b it", "google/gemma-7b-it"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("meta-llama/Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("vit base", "google/vit-base-patch16-224"),
    ],
)
def test_what_was_trained_further_is_loaded_by_its_own_name(typed: str, weights: str) -> None:
    found = model_called(typed)
    assert found is not None
    assert weights_called(typed, found) == weights


@pytest.mark.parametrize("typed", CALLED)
def test_a_model_that_is_certain_is_found(typed: str) -> None:
    assert model_called(typed) == CALLED[typed]


@pytest.mark.parametrize("typed", NOT_CERTAIN)
def test_what_is_not_certain_is_not_guessed_and_has_its_nearest(typed: str) -> None:
    assert model_called(typed) is None
    near = nearest_models(typed)
    assert NOT_CERTAIN[typed] <= set(near)
    assert len(near) <= 3


def test_every_model_is_called_by_its_own_name_without_its_owner() -> None:
    for name in model_ids():
        short = name.partition("/")[2]
        assert name in {model_called(name), model_called(short)}
        assert model_called(short.replace("-", " ").upper()) is not None


@pytest.mark.parametrize("typed", ["bert", "bert-base", "gpt2-small"])
def test_a_name_of_several_is_the_one_that_is_usual(typed: str) -> None:
    found = model(typed)
    assert found is not None
    assert found.id in {"google-bert/bert-base-uncased", "openai-community/gpt2"}


@given(st.text(max_size=200))
def test_any_text_names_a_model_that_ships_or_none(text: str) -> None:
    assert model_called(text) in {None, *model_ids()}
    assert set(nearest_models(text)) <= {*model_ids()}
