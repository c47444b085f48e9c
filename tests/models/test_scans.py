"""Layers that scan, and layers that differ from each other: counts and FLOPs worked by hand."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError
from planner.models.architectures import read_model
from planner.models.architectures.config import MOST_LAYERS

# fmt: off
NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "mlp_only_layers": [0, 1, 2, 3],
}


DELTA = (
    16 * (2 * 16 + 2 * 24)     # queries, keys, values and gate: 2 heads of 8 twice, 4 of 6 twice
    + 16 * 2 * 4               # both scales of 4 heads
    + 4 * (2 * 16 + 24)        # convolution over 4 tokens
    + 4 + 4 + 6                # dt_bias, A_log, the gated norm
    + 24 * 16                  # out_proj
)


ATTENTION = 16 * 64 + 2 * 16 * 16 + 32 * 16 + 2 * 8   # query and gate, key, value, output, norms


MLP = 3 * 16 * 40 + 2 * 16


NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "mamba_num_heads": 4,
    "mamba_head_dim": 6,
    "ssm_state_size": 8,
    "n_groups": 2,
    "chunk_size": 32,
    "hybrid_override_pattern": "M-*M",
}


MAMBA = (
    16 * (24 + 24 + 32 + 4)    # gate, inputs, two groups of two states of 8, a step per head
    + 5 * (24 + 32)            # convolution over 4 tokens, and its bias
    + 3 * 4 + 24               # dt_bias, A_log and D; the gated norm
    + 24 * 16                  # out_proj
    + 16                       # norm
)
# fmt: on


def test_qwen3_next_has_three_layers_that_scan_to_one_that_attends() -> None:
    model = read_model("tiny", NEXT)
    assert [part.count for part in model.blocks] == [3, 1]
    assert model.parameters == 2 * 100 * 16 + 16 + 3 * DELTA + ATTENTION + 4 * MLP


def test_a_scan_costs_the_same_for_any_length() -> None:
    scanning, attending = read_model("tiny", NEXT).blocks
    # Per head: the state of 8 x 6 read twice and written, chunks of 64 tokens.
    flops = 4 * (6 * 8 * 6 + 64 * (5 * 8 + 3 * 6))
    assert scanning.mixing_flops_per_token(4096) == flops
    assert scanning.flops_per_token(64) == scanning.flops_per_token(65536)
    assert attending.flops_per_token(64) < attending.flops_per_token(65536)


def test_nemotron_h_has_one_of_four_in_each_layer() -> None:
    model = read_model("tiny", NEMOTRON)
    attention = 16 * 32 + 2 * 16 * 16 + 32 * 16 + 16
    mlp = 2 * 16 * 40 + 16
    assert model.parameters == 2 * 100 * 16 + 16 + 2 * MAMBA + attention + mlp
    assert model.num_blocks == 4
    (scanning,) = (part for part in model.blocks if part.scan_flops_per_token)
    assert scanning.scan_flops_per_token == 4 * (2 * 32 * (8 + 6) + 4 * 8 * 6)
    # Kernels of 4 heads of 6 channels and 8 states, 2 groups, chunks of 32: matmuls again in backward, and traffic.
    backward = 4 * (6 * 32 * (8 + 6) + 10 * 8 * 6)
    assert scanning.scan.backward * scanning.scan_flops_per_token == pytest.approx(backward)
    assert scanning.scan.moved_bytes_per_token == (
        24 * (6 + 12 * 8 / 32) + 8 * 2 * (32 + 8),
        24 * (22 + 28 * 8 / 32) + 40 * 2 * (32 + 8),
    )


def test_a_pattern_and_a_list_of_layers_say_the_same() -> None:
    kinds = ["linear_attention", "mlp", "full_attention", "linear_attention"]
    listed = {key: value for key, value in NEMOTRON.items() if key != "hybrid_override_pattern"}
    model = read_model("tiny", listed | {"layers_block_type": kinds})
    assert model.parts == read_model("tiny", NEMOTRON).parts


SPARSE: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 8,
    "indexer_types": ["full"] * 3 + ["shared"] * 5,
}


def test_layers_that_reuse_keys_have_no_indexer() -> None:
    own = read_model("own", SPARSE | {"indexer_types": ["full"] * 8})
    shared = read_model("shared", SPARSE)
    indexer = 2048 * 32 * 128 + 6144 * (128 + 32) + 2 * 128
    assert own.parameters - shared.parameters == 5 * indexer
    pattern = {key: value for key, value in SPARSE.items() if key != "indexer_types"}
    assert read_model("s", pattern | {"index_topk_pattern": "FFFSSSSS"}).parts == shared.parts
    by_step = pattern | {"index_topk_freq": 4, "index_skip_topk_offset": 3, "num_hidden_layers": 7}
    # Layers 0 to 2 and 6 have an indexer: with an offset of 3 the fourth after the third is next.
    assert sum(part.count for part in read_model("s", by_step).blocks if "full" in part.name) == 4


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (NEMOTRON | {"hybrid_override_pattern": "MX"}, "of the letters"),
        (NEMOTRON | {"hybrid_override_pattern": "M" * (MOST_LAYERS + 1)}, "of the letters"),
        (NEMOTRON | {"layers_block_type": ["rwkv"]}, "layers_block_type must be"),
        (NEMOTRON | {"layers_block_type": [1]}, "a list of words"),
        (NEMOTRON | {"mamba_num_heads": 3}, "not a multiple of n_groups"),
        (NEXT | {"num_hidden_layers": 10**9}, "from 1 to 4,096"),
        (NEXT | {"layer_types": ["sliding_attention"] * 4}, "layer_types must be"),
        (NEXT | {"linear_num_value_heads": 3}, "not a multiple of linear_num_key_heads"),
        (SPARSE | {"indexer_types": ["none"] * 8}, "indexer_types must be"),
        ({"model_type": "glm_moe_dsa", "index_topk_pattern": "FX"}, "a letter F or S"),
        (SPARSE | {"mlp_layer_types": [2] * 8}, "a list of words"),
    ],
)
def test_layers_that_nobody_knows_are_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        read_model("tiny", config)
