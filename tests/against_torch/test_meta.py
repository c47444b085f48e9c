"""transformers builds the same tiny models with real weights; its counts are the expected ones."""

import json
import subprocess
import sys
from threading import Thread
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.kept import Numerics
from planner.domain.model import Model
from planner.models import meta
from planner.models.architectures import read_model
from planner.models.meta import read_with_transformers

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
STABLELM = {"model_type": "stablelm", "num_key_value_heads": 2, **SIZES}
XGLM = {
    "model_type": "xglm",
    "vocab_size": 96,
    "d_model": 32,
    "num_layers": 3,
    "attention_heads": 4,
    "ffn_dim": 48,
    "max_position_embeddings": 40,
}
CODEGEN = {
    "model_type": "codegen",
    "vocab_size": 96,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 40,
    "rotary_dim": 4,
}
MAMBA2 = {
    "model_type": "mamba2",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_heads": 8,
    "head_dim": 8,
    "state_size": 8,
    "n_groups": 2,
}
XLM = {"model_type": "xlm", "vocab_size": 96, "emb_dim": 32, "n_layers": 3, "n_heads": 4}
JAMBA = {
    **SIZES,
    "model_type": "jamba",
    "num_key_value_heads": 2,
    "num_experts": 4,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
    "use_mamba_kernels": False,
    "pad_token_id": 0,
}
OLMOE = {**SIZES, "model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2}
ROFORMER = {**SIZES, "model_type": "roformer", "embedding_size": 32}
CONFIGS = {
    "stablelm": STABLELM,
    "stablelm, tied": STABLELM | {"tie_word_embeddings": True},
    "persimmon": {**SIZES, "model_type": "persimmon"},
    "xglm": XGLM,
    "codegen": CODEGEN,
    "biogpt": {**SIZES, "model_type": "biogpt"},
    "biogpt, untied": {**SIZES, "model_type": "biogpt", "tie_word_embeddings": False},
    "mamba2": MAMBA2,
    "jamba": JAMBA,
    "olmoe": OLMOE,
    "roformer": ROFORMER,
    "roformer, decoder": ROFORMER | {"is_decoder": True},
    "roformer, bare": ROFORMER | {"architectures": ["RoFormerModel"]},
    "xlm": XLM,
    "diffllama": {**SIZES, "model_type": "diffllama"},
}
DOORS = {"causal-lm": AutoModelForCausalLM, "masked-lm": AutoModelForMaskedLM, "none": AutoModel}


def _with_weights(config: dict[str, Any], task: str) -> torch.nn.Module:
    torch.manual_seed(0)
    made = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    door: Any = DOORS[task]
    built: torch.nn.Module = door.from_config(made)
    return built


def _part(model: Model, name: str) -> Any:
    return next(part for part in model.parts if part.name == name)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_the_parameters_are_those_of_the_real_model(config: dict[str, Any]) -> None:
    model = read_with_transformers("tiny", config)
    built = _with_weights(config, model.task)
    assert model.parameters == sum(p.numel() for p in built.parameters())
    assert model.parameters == sum(part.count * part.parameters for part in model.parts)
    assert (model.num_blocks, model.vocab_size, model.hidden_size) == (3, 96, 32)
    assert all(part.kept_bytes_per_token(Numerics.HALF) > 0 for part in model.blocks)
    assert model.config is config


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("stablelm", "causal-lm"),
        ("roformer", "masked-lm"),
        ("roformer, decoder", "causal-lm"),
        ("roformer, bare", "none"),
    ],
)
def test_the_head_is_the_one_that_the_config_names(name: str, task: str) -> None:
    assert read_with_transformers("tiny", CONFIGS[name]).task == task


@pytest.mark.parametrize(
    ("name", "is_tied"),
    [("stablelm", False), ("stablelm, tied", True), ("xglm", True), ("biogpt, untied", False)],
)
def test_a_tied_head_multiplies_and_adds_no_weights(name: str, *, is_tied: bool) -> None:
    head = _part(read_with_transformers("tiny", CONFIGS[name]), "head")
    [lm_head] = head.linears
    assert (lm_head.in_features, lm_head.out_features, lm_head.is_tied) == (32, 96, is_tied)


def test_a_block_has_its_matrices_norms_and_attention() -> None:
    [block] = read_with_transformers("tiny", STABLELM).blocks
    assert (block.name, block.count) == ("block", 3)
    assert [(each.name, each.in_features, each.out_features) for each in block.linears] == [
        ("self_attn_q_proj", 32, 32),
        ("self_attn_k_proj", 32, 16),
        ("self_attn_v_proj", 32, 16),
        ("self_attn_o_proj", 32, 32),
        ("mlp_gate_proj", 32, 48),
        ("mlp_up_proj", 32, 48),
        ("mlp_down_proj", 48, 32),
    ]
    assert set(block.vectors) == {"layers_input_layernorm", "layers_post_attention_layernorm"}
    assert block.attention is not None
    assert (block.attention.query_size, block.attention.key_value_size) == (32, 16)
    assert block.attention.is_causal


def test_layers_of_different_shape_are_different_parts() -> None:
    blocks = read_with_transformers("tiny", JAMBA).blocks
    assert [part.name for part in blocks] == ["block_1", "block_2"]
    assert [part.count for part in blocks] == [2, 1]
    assert [part.attention is not None for part in blocks] == [False, True]


def test_a_mamba_has_blocks_without_attention_and_no_last_position() -> None:
    model = read_with_transformers("tiny", MAMBA2)
    assert all(part.attention is None for part in model.blocks)
    assert model.max_position_embeddings == meta.UNBOUNDED_POSITIONS
    assert not model.has_learned_positions


def test_a_size_that_differs_between_layers_is_no_error() -> None:
    model = read_with_transformers("tiny", {"model_type": "gemma4_text"})
    assert len(model.blocks) > 1
    assert model.blocks[0].attention is not None


def test_experts_are_stacks_of_which_a_token_meets_some() -> None:
    model = read_with_transformers("tiny", OLMOE)
    experts = [each for each in model.blocks[0].linears if each.num_experts > 1]
    assert [(each.num_experts, each.experts_per_token) for each in experts] == [(8, 2), (8, 2)]
    assert model.active_parameters < model.parameters


def test_lists_side_by_side_are_one_layer() -> None:
    [block] = read_with_transformers("tiny", XLM).blocks
    assert block.count == 3
    assert len(block.linears) == 6


@pytest.mark.parametrize(("name", "is_learned"), [("biogpt", True), ("stablelm", False)])
def test_learned_positions_are_told_from_computed_ones(name: str, *, is_learned: bool) -> None:
    model = read_with_transformers("tiny", CONFIGS[name])
    assert (model.has_learned_positions, model.max_position_embeddings) == (is_learned, 40)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_what_is_kept_is_near_what_a_reader_says(family: str) -> None:
    config = {"model_type": family}
    estimate, known = read_with_transformers("tiny", config), read_model("tiny", config)
    assert estimate.parameters == known.parameters
    assert estimate.flops_per_token(512) == pytest.approx(known.flops_per_token(512), rel=0.01)
    for numerics in Numerics:
        kept = estimate.blocks[0].kept_bytes_per_token(numerics)
        assert kept == pytest.approx(known.blocks[0].kept_bytes_per_token(numerics), rel=0.2)


def _refused(config: dict[str, Any], kind: type[PlannerError]) -> PlannerError:
    with pytest.raises(kind) as caught:
        read_with_transformers("tiny", config)
    assert type(caught.value) is kind
    assert caught.value.field == "model"
    assert caught.value.hint
    assert len(caught.value.message) < 400
    return caught.value


@pytest.mark.parametrize("model_type", ["own-model", "x" * 1000, "", None, 3, ["gpt2"], {"a": 1}])
def test_a_type_that_nobody_knows_is_refused(model_type: object) -> None:
    error = _refused({"model_type": model_type}, UnsupportedError)
    assert "known neither here nor to transformers" in error.message


def test_code_of_a_model_is_neither_run_nor_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    own = {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    error = _refused({"model_type": "own-model"} | own, UnsupportedError)
    assert "ships its own code, which the planner never runs" in error.message
    nested = {"trust_remote_code": True, "attn_implementation": "org/kernel"}
    hidden = {"_attn_implementation": "org/kernel", "quantization_config": {"auto_map": own}}
    model = read_with_transformers("tiny", STABLELM | own | nested | hidden)
    assert model.parameters == read_with_transformers("tiny", STABLELM).parameters
    assert "evil" not in "".join(capfd.readouterr())


def test_a_class_from_elsewhere_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(PreTrainedConfig):  # type: ignore[no-untyped-call]
        model_type = "elsewhere"

    registered = CONFIG_MAPPING._extra_content  # noqa: SLF001 - nothing else takes it back
    monkeypatch.setitem(registered, "elsewhere", Elsewhere)
    _refused({"model_type": "elsewhere"}, UnsupportedError)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "detr"}, "no plain language model"),
        ({"model_type": "gemma3"}, "no plain language model"),
        ({"model_type": "marian"}, "no plain language model"),
        ({"model_type": "perceiver"}, "no plain language model"),
        ({"model_type": "albert"}, "not a list of blocks"),
        ({"model_type": "xlnet"}, "takes memory"),
        (XGLM | {"num_layers": 0}, "not a list of blocks"),
    ],
)
def test_what_is_no_language_model_of_plain_blocks_is_refused(
    config: dict[str, Any], says: str
) -> None:
    assert says in _refused(config, UnsupportedError).message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vocab_size": 10**9, "hidden_size": 10**9}, "too large to build"),
        ({"vocab_size": 2**40}, "vocab_size is larger than"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is larger than 10,000"),
        ({"max_position_embeddings": 10**11}, "max_position_embeddings is larger than"),
        ({"vocab_size": 10**12, "hidden_size": 10**12}, "transformers cannot build"),
        ({"rope_parameters": {"deep": [{"num_layers": 10**6}]}}, "num_layers is larger than"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
        ({"hidden_size": -1}, "transformers cannot build"),
        ({"hidden_size": "many"}, "transformers cannot build"),
        ({"hidden_act": "os.system"}, "transformers cannot build"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_they_take_memory(
    change: dict[str, Any], says: str
) -> None:
    assert says in _refused(STABLELM | change, InvalidInputError).message


def test_a_config_of_any_depth_is_refused_or_read() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"deeper": deep}
    _refused(STABLELM | {"more": deep}, InvalidInputError)


def test_a_model_that_takes_too_long_to_build_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta, "LONGEST_BUILD_SECONDS", -1.0)
    assert "too large to build" in _refused(STABLELM, InvalidInputError).message


def test_what_other_threads_build_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    door: Any = AutoModelForCausalLM
    build, others = door.from_config, []

    def build_after_another(*arguments: Any, **options: Any) -> Any:
        other = Thread(target=lambda: others.append(torch.nn.Linear(4000, 4000, device="cpu")))
        other.start()
        other.join()
        return build(*arguments, **options)

    monkeypatch.setattr(door, "from_config", build_after_another)
    read_with_transformers("tiny", STABLELM)
    assert len(others) == 1
    torch.nn.Linear(4000, 4000)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_torch_the_hint_names_the_extra(missing: str) -> None:
    with pytest.MonkeyPatch.context() as patch:  # pytest-randomly seeds torch before fixtures end
        patch.setitem(sys.modules, missing, None)
        error = _refused(STABLELM, UnsupportedError)
    assert "model_type 'stablelm' is not known yet" in error.message
    assert "pip install 'trainplan[torch]'" in error.hint


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = "import json, sys, planner.models.meta; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert not {"torch", "transformers"} & set(json.loads(done.stdout))
