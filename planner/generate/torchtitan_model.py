"""A Hugging Face config.json as the sizes of torchtitan's own parts."""

from collections.abc import Mapping
from typing import Any

from planner.generate.run_spec import RunSpec
from planner.targets.titan_models import TitanModel, flavor, rotary, rotary_options, titan_model

_LOAD_BALANCE = 1e-3
"""How fast a bias per expert follows its load; torchtitan's own."""


def template(spec: RunSpec) -> str:
    """Return the template that writes the model: by its heads, out of latents, or by name."""
    known = _known(spec)
    if known.flavors:
        return "torchtitan/models/flavor.py"
    return f"torchtitan/models/{'latents' if known.is_latent else 'heads'}.py"


def shape(spec: RunSpec) -> dict[str, Any]:
    """Return what that template says of the model, under the names of this project."""
    known, config = _known(spec), spec.model_config
    found = {"module": known.module, "flavor": flavor(config), "has_experts": known.has_experts}
    if known.flavors:
        return found
    parts = _latent(config) if known.is_latent else _heads(config)
    experts = _experts(known, spec) if known.has_experts else {"experts": 0}
    return {**found, **_common(known, spec), **parts, **experts}


def _known(spec: RunSpec) -> TitanModel:
    known = titan_model(spec.model_config)
    assert known is not None  # noqa: S101 - the target refuses other models
    return known


def _common(known: TitanModel, spec: RunSpec) -> dict[str, Any]:
    config: Mapping[str, Any] = spec.model_config
    positions = config.get("max_position_embeddings")
    return {
        "name": str(config["model_type"]),
        "model_class": known.model_class,
        "block_class": known.block_class,
        "rotary_class": known.rotary_class,
        "rotary_options": rotary_options(config),
        "has_query_key_norm": known.has_query_key_norm,
        "positions": max(positions if isinstance(positions, int) else 0, spec.sequence_length),
        "dim": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "inner": config.get("intermediate_size"),
        "vocabulary": config["vocab_size"],
        "is_tied": bool(config.get("tie_word_embeddings")),
        "epsilon": _number(config, "rms_norm_eps", 1e-6),
        "deviation": _number(config, "initializer_range", 0.02),
    }


def _heads(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    return {
        "key_value_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
    }


def _latent(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dense_layers": config.get("first_k_dense_replace", 0),
        "query_rank": config.get("q_lora_rank") or 0,
        "key_value_rank": config["kv_lora_rank"],
        "unturned_dim": config["qk_nope_head_dim"],
        "rotary_dim": config["qk_rope_head_dim"],
        "value_dim": config["v_head_dim"],
        "mscale": float(rotary(config)[1].get("mscale_all_dim") or 1.0),
    }


def _experts(known: TitanModel, spec: RunSpec) -> dict[str, Any]:
    """Return the experts. A bias that evens out their load is part of the Hub's weights, or of none that are loaded."""
    config: Mapping[str, Any] = spec.model_config
    groups = config.get("n_group") or 1
    is_balanced = known.has_expert_bias or not spec.is_pretrained
    return {
        "experts": config.get("n_routed_experts") or config.get("num_experts"),
        "experts_per_token": config["num_experts_per_tok"],
        "expert_inner": config["moe_intermediate_size"],
        "shared_experts": config.get("n_shared_experts"),
        "expert_groups": groups if groups > 1 and known.has_expert_bias else 0,
        "groups_per_token": config.get("topk_group"),
        "router": known.router,
        "route_norm": bool(config.get("norm_topk_prob", known.has_expert_bias)),
        "route_scale": _number(
            config, "routed_scaling_factor", 2.5 if known.has_expert_bias else 1.0
        ),
        "load_balance": _LOAD_BALANCE if is_balanced else None,
    }


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else default
