"""What the judges of targets hold for true of transformers, against the installed one."""

from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from planner.catalog.configs import model_support
from planner.catalog.records import model_types
from planner.models.architectures import read_model
from planner.models.architectures.heads import classifying, reads_last_token, with_head
from planner.targets.families import families, heads, is_tied, window

HEADS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    modeling_auto.MODEL_MAPPING_NAMES,
)
ACCEPTED = {
    *model_types(),
    *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    *modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
}
"""Types that have a reader, and those that transformers may read."""
DECODERS = set(filter(reads_last_token, model_types()))
SUPPORT = {"sdpa": "_supports_sdpa", "flash": "_supports_flash_attn"}


@pytest.mark.parametrize("attention", SUPPORT)
def test_an_attention_that_transformers_lacks_is_refused(attention: str) -> None:
    assert lacking(SUPPORT[attention]) == set(model_support().without_attention[attention])


def test_blocks_that_transformers_does_not_recompute_are_refused() -> None:
    assert lacking("supports_gradient_checkpointing") == set(model_support().without_recompute)


def lacking(support: str) -> set[str]:
    """Return the model types whose class says that it has not what an attribute names."""
    found = set()
    for kind in ACCEPTED:
        named = next((names[kind] for names in HEADS if kind in names), None)
        if named is not None:
            model = getattr(transformers, named if isinstance(named, str) else named[0])
            if not getattr(model, support):
                found.add(kind)
    return found


@pytest.mark.parametrize("kind", sorted(families()))
def test_a_config_without_sizes_has_those_of_its_class(kind: str) -> None:
    built, bare = transformers.AutoConfig.for_model(kind), {"model_type": kind}
    queries = built.num_attention_heads
    keys = getattr(built, "num_key_value_heads", None) or queries
    assert heads(bare) == (queries, keys)
    assert is_tied(bare) == built.tie_word_embeddings
    assert window(bare) == (getattr(built, "sliding_window", None) or 0)
    if kind != "gpt2":
        assert built.base_model_tp_plan is not None
        styles = set(built.base_model_tp_plan.values())
        assert families()[kind].has_experts == any("moe" in style for style in styles)


NOT_BUILT = {"nemotron", "ministral", "hunyuan_v1_dense"}
"""By the defaults of their configs."""


@pytest.mark.parametrize("kind", sorted(DECODERS - NOT_BUILT))
def test_a_decoder_that_classifies_has_as_many_parameters_as_it_is_built_with(kind: str) -> None:
    config = transformers.AutoConfig.for_model(kind, num_labels=3)
    with torch.device("meta"):
        auto: Any = transformers.AutoModelForSequenceClassification
        built = auto.from_config(config)
    model = read_model("defaults", classifying({"model_type": kind, "num_labels": 3}))
    assert type(built).__name__ == classifying({"model_type": kind})["architectures"][0]
    assert model.task == "sequence-classification"
    assert model.parameters == sum(value.numel() for value in built.parameters())


@pytest.mark.parametrize("kind", with_head("token-classification"))
def test_an_encoder_that_classifies_tokens_has_as_many_parameters_as_it_is_built_with(
    kind: str,
) -> None:
    config = transformers.AutoConfig.for_model(kind, num_labels=3)
    with torch.device("meta"):
        auto: Any = transformers.AutoModelForTokenClassification
        built = auto.from_config(config)
    wanted = classifying({"model_type": kind, "num_labels": 3}, "token-classification")
    assert type(built).__name__ == wanted["architectures"][0]
    model = read_model("defaults", wanted)
    assert model.task == "token-classification"
    assert model.parameters == sum(value.numel() for value in built.parameters())
