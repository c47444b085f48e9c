"""A model of two blocks with sizes small enough to count on paper."""

from dataclasses import replace

import pytest

from planner.domain.kept import Kept, Numerics
from planner.domain.model import Attention, Linear, Model, Part

ATTENTION = Attention(
    num_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    is_causal=True,
    eager_bytes_per_score=(8, 10, 6),
)
EMBEDDINGS = Part(name="embeddings", tables={"tokens": 1000})
BLOCK = Part(
    name="block",
    is_block=True,
    count=2,
    linears=(
        Linear(name="up", in_features=10, out_features=40, has_bias=True),
        Linear(name="down", in_features=40, out_features=10),
    ),
    vectors={"norm": 10},
    kept=(
        Kept(name="norm", bytes_per_token=(40, 40, 20)),
        Kept(name="up", bytes_per_token=(160, 80, 80)),
    ),
    attention=ATTENTION,
)
HEAD = Part(
    name="head", linears=(Linear(name="head", in_features=10, out_features=100, is_tied=True),)
)


def _model(*parts: Part) -> Model:
    return Model(
        name="tiny",
        model_type="tiny",
        task="causal-lm",
        parts=parts,
        vocab_size=100,
        hidden_size=10,
        max_position_embeddings=64,
        config={},
    )


def test_a_linear_layer_has_a_weight_and_perhaps_a_bias() -> None:
    up, down = BLOCK.linears
    assert up.parameters == 10 * 40 + 40
    assert down.parameters == 40 * 10


def test_a_tied_weight_is_another_parts_but_its_bias_is_its_own() -> None:
    assert HEAD.parameters == 0
    tied = Linear(name="decoder", in_features=10, out_features=100, has_bias=True, is_tied=True)
    assert tied.parameters == 100


def test_a_part_adds_up_its_layers_tables_and_vectors() -> None:
    assert BLOCK.parameters == 440 + 400 + 10
    assert BLOCK.linear_weights == 400 + 400
    assert HEAD.linear_weights == 1000


def test_a_model_counts_each_block_as_often_as_it_occurs() -> None:
    model = _model(EMBEDDINGS, BLOCK, HEAD)
    assert model.parameters == 1000 + 2 * 850
    assert model.largest_layer_parameters == 1000
    assert model.linear_weights == 2 * 800 + 1000


def test_kept_bytes_depend_on_the_numerics() -> None:
    kept = [BLOCK.kept_bytes_per_token(numerics) for numerics in Numerics]
    assert kept == [200, 120, 100, 100]
    assert EMBEDDINGS.kept_bytes_per_token(Numerics.FP32) == 0


def test_attention_is_as_wide_as_its_heads() -> None:
    assert (ATTENTION.query_size, ATTENTION.key_value_size) == (32, 16)


@pytest.mark.parametrize(("is_causal", "flops"), [(True, 2 * 64 * 32), (False, 4 * 64 * 32)])
def test_causal_attention_costs_half(*, is_causal: bool, flops: int) -> None:
    attention = replace(ATTENTION, is_causal=is_causal)
    assert attention.flops_per_token(64) == flops


@pytest.mark.parametrize(
    ("implementation", "numerics", "groups", "materialises"),
    [
        ("eager", Numerics.HALF, 4, True),
        ("eager", Numerics.FP32, 2, True),
        ("sdpa", Numerics.FP32, 4, False),
        ("sdpa", Numerics.FP32, 2, True),
        ("sdpa", Numerics.AUTOCAST, 2, False),
        ("sdpa", Numerics.HALF, 1, False),
        ("flash", Numerics.FP32, 2, False),
    ],
)
def test_scores_are_materialised_where_no_fused_kernel_fits(
    *, implementation: str, numerics: Numerics, groups: int, materialises: bool
) -> None:
    attention = replace(ATTENTION, num_key_value_heads=groups)
    assert attention.materialises_scores(implementation, numerics) is materialises


def test_code_without_a_fused_kernel_always_materialises_its_scores() -> None:
    attention = replace(ATTENTION, has_fused_kernel=False)
    assert attention.materialises_scores("flash", Numerics.HALF)


def test_a_tied_head_costs_flops() -> None:
    model = _model(EMBEDDINGS, BLOCK, HEAD)
    # 2 per weight: two blocks of 800, the head's 1000; causal attention 2 * 64 * 32 per block.
    assert model.flops_per_token(64) == 2 * (2 * 800 + 1000) + 2 * (2 * 64 * 32)


def test_blocks_are_the_trunk_and_the_rest_stands_outside() -> None:
    model = _model(EMBEDDINGS, BLOCK, HEAD)
    assert model.blocks == (BLOCK,)
    assert model.others == (EMBEDDINGS, HEAD)
    assert model.num_blocks == BLOCK.count


def test_experts_add_parameters_but_only_some_of_them_flops() -> None:
    layer = Linear(
        name="up", in_features=8, out_features=16, has_bias=True, num_experts=4, experts_per_token=2
    )
    assert layer.parameters == 4 * (8 * 16 + 16)
    assert layer.active_parameters == 2 * (8 * 16 + 16)
    assert layer.flops_per_token == 2 * 2 * 8 * 16
    part = Part(name="block", linears=(layer,), vectors={"norm": 8})
    assert part.active_parameters == layer.active_parameters + 8


def test_a_sliding_window_bounds_the_keys() -> None:
    windowed = replace(ATTENTION, window=16)
    assert windowed.flops_per_token(64) == 4 * 16 * windowed.query_size
    assert windowed.flops_per_token(8) == ATTENTION.flops_per_token(8)


def test_a_part_with_its_own_tokens_counts_them_per_sequence() -> None:
    tower = replace(BLOCK, tokens_per_sequence=10)
    assert tower.tokens(100) == 10
    alone = _model(tower).flops_per_token(100)
    assert alone == tower.count * tower.flops_per_token(100) * 10 / 100
