"""A Hugging Face config.json as Megatron-LM's arguments, for the shapes of GPT-2 and Llama."""

from collections.abc import Mapping
from typing import Any

from planner.generate.run_spec import RunSpec
from planner.targets.megatron import rope

Options = dict[str, str | int | float | None]
"""Option to its value; None for one that has none."""


def model_options(spec: RunSpec) -> Options:
    """Return the model's shape, with the fields of its config.json."""
    config: Mapping[str, Any] = spec.model_config
    options = _gpt2(config) if config["model_type"] == "gpt2" else _llama(config)
    positions = int(options.pop("--max-position-embeddings") or 0)
    return {
        "--use-mcore-models": None,
        **options,
        "--max-position-embeddings": max(positions, spec.sequence_length),
        "--init-method-std": config.get("initializer_range", 0.02),
        "--make-vocab-size-divisible-by": 128,
    }


def _gpt2(config: Mapping[str, Any]) -> Options:
    hidden = config["n_embd"]
    return {
        "--num-layers": config["n_layer"],
        "--hidden-size": hidden,
        "--ffn-hidden-size": config.get("n_inner") or 4 * hidden,
        "--num-attention-heads": config["n_head"],
        "--max-position-embeddings": config["n_positions"],
        "--position-embedding-type": "learned_absolute",
        "--normalization": "LayerNorm",
        "--norm-epsilon": config.get("layer_norm_epsilon", 1e-5),
        "--attention-dropout": config.get("attn_pdrop", 0.1),
        "--hidden-dropout": config.get("resid_pdrop", 0.1),
    }


def _llama(config: Mapping[str, Any]) -> Options:
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    options: Options = {
        "--num-layers": config["num_hidden_layers"],
        "--hidden-size": config["hidden_size"],
        "--ffn-hidden-size": config["intermediate_size"],
        "--num-attention-heads": heads,
        "--kv-channels": config.get("head_dim") or config["hidden_size"] // heads,
        "--max-position-embeddings": config["max_position_embeddings"],
        "--position-embedding-type": "rope",
        # An integer to Megatron; config.json may say 500000.0.
        "--rotary-base": round(rope(config).get("rope_theta", 10_000)),
        "--normalization": "RMSNorm",
        "--norm-epsilon": config.get("rms_norm_eps", 1e-6),
        "--swiglu": None,
        "--disable-bias-linear": None,
        "--attention-dropout": config.get("attention_dropout", 0.0),
        "--hidden-dropout": 0.0,
    }
    if groups != heads:
        options |= {"--group-query-attention": None, "--num-query-groups": groups}
    if config["model_type"] == "qwen2":
        options["--add-qkv-bias"] = None
    if config["model_type"] == "qwen3":
        options["--qk-layernorm"] = None
    if not config.get("tie_word_embeddings"):
        options["--untie-embeddings-and-output-weights"] = None
    if rope(config).get("rope_type") == "llama3":
        options |= {"--use-rope-scaling": None, "--rope-scaling-factor": rope(config)["factor"]}
    return options
