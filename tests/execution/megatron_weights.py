"""Weights of transformers' models under the names of Megatron's, by which the two are compared."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_NAMES = (
    (r"^(model|transformer|gpt_neox)\.", ""),
    (r"^(embed_tokens|wte|embed_in|word_embeddings)\.", "embedding.word_embeddings."),
    (r"^wpe\.", "embedding.position_embeddings."),
    (r"^(norm|ln_f|final_layer_norm)\.", "decoder.final_layernorm."),
    (r"^(lm_head|embed_out)\.", "output_layer."),
    (r"^(layers|h)\.", "decoder.layers."),
    (r"\.(ln_1|ln_attn)\.", ".input_layernorm."),
    (r"\.(ln_2|ln_mlp|post_attention_layernorm)\.", ".pre_mlp_layernorm."),
    (r"\.(self_attn|attn|attention|self_attention)\.", ".self_attention."),
    (
        r"self_attention\.(o_proj|c_proj|dense)\.",
        "self_attention.linear_proj.",
    ),
    (
        r"self_attention\.(c_attn|query_key_value|qkv_proj)\.",
        "self_attention.linear_qkv.",
    ),
    (r"self_attention\.q_norm\.", "self_attention.q_layernorm."),
    (r"self_attention\.k_norm\.", "self_attention.k_layernorm."),
    (r"self_attention\.sinks$", "self_attention.core_attention.softmax_offset"),
    (r"self_attention\.q_a_proj\.", "self_attention.linear_q_down_proj."),
    (r"self_attention\.q_b_proj\.", "self_attention.linear_q_up_proj."),
    (r"self_attention\.q_a_layernorm\.", "self_attention.q_layernorm."),
    (r"self_attention\.kv_a_proj_with_mqa\.", "self_attention.linear_kv_down_proj."),
    (r"self_attention\.kv_b_proj\.", "self_attention.linear_kv_up_proj."),
    (r"self_attention\.kv_a_layernorm\.", "self_attention.kv_layernorm."),
    (r"mlp\.gate\.e_score_correction_bias$", "mlp.router.expert_bias"),
    (r"mlp\.(gate|router)\.", "mlp.router."),
    (r"mlp\.shared_expert_gate\.weight$", "mlp.shared_experts.gate_weight"),
    (r"mlp\.shared_expert\.", "mlp.shared_experts."),
    (r"\.(gate_up_proj|dense_h_to_4h|c_fc|up_proj)\.", ".linear_fc1."),
    (r"\.(down_proj|dense_4h_to_h)\.", ".linear_fc2."),
    (r"mlp\.c_proj\.", "mlp.linear_fc2."),
)


def megatron_weights(model: Any, given: Mapping[str, str | None]) -> dict[str, Tensor]:
    """Return the weights of transformers' model as GPTModel of these arguments holds them, in one part."""
    config = model.config
    kind, weights = config.model_type, {}
    for name, value in _by_parts(dict(model.state_dict())).items():
        transposed = (
            kind == "gpt2" and value.dim() == 2 and re.search(r"\.c_(attn|fc|proj)\.", name)
        )
        renamed = name
        for pattern, to in _NAMES:
            renamed = re.sub(pattern, to, renamed)
        weights[renamed] = value.T if transposed else value
    heads = int(given["--num-attention-heads"] or 0)
    groups = int(given.get("--num-query-groups") or heads)
    if kind in {"gpt2", "gpt_bigcode", "phi3"}:
        weights = {
            name: _grouped(value, heads, groups) if ".linear_qkv." in name else value
            for name, value in weights.items()
        }
    if "--multi-latent-attention" in given:
        weights = {
            re.sub(r"self_attention\.q_proj", "self_attention.linear_q_proj", name): value
            for name, value in weights.items()
        }
    else:
        weights = _joined(weights, groups)
    if "--untie-embeddings-and-output-weights" not in given:
        del weights["output_layer.weight"]
    if "--spec" in given and not any(".pre_mlp_layernorm." in name for name in weights):
        weights = {
            name.replace(".input_layernorm.", ".shared_layernorm."): value
            for name, value in weights.items()
        }
    return weights


def _by_parts(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the experts' matrices one by one, and gates beside what they multiply in one matrix."""
    found = {}
    for name, value in weights.items():
        match = re.match(r"(.*mlp\.experts)\.(gate_up_proj|down_proj)(_bias)?$", name)
        if match is None:
            found[name] = value
            continue
        start, part, bias = match.groups()
        for index, own in enumerate(value):
            # GPT-OSS has inputs before outputs, and gates between what they multiply.
            is_own = f"{start}.gate_up_proj_bias" in weights
            matrix = own.T if is_own and not bias else own
            if is_own and part == "gate_up_proj":
                matrix = torch.cat([matrix[0::2], matrix[1::2]])
            found[f"{start}.local_experts.{index}.{part}.{'bias' if bias else 'weight'}"] = matrix
    for name in [name for name in found if ".gate_proj." in name]:
        up = name.replace(".gate_proj.", ".up_proj.")
        found[up] = torch.cat([found.pop(name), found[up]])
    return found


def _grouped(value: Tensor, heads: int, groups: int) -> Tensor:
    """Return rows of all queries, keys and values as those of one group after another."""
    channels = value.shape[0] // (heads + 2 * groups)
    first, second = heads * channels, (heads + groups) * channels
    return _in_groups(value[:first], value[first:second], value[second:], groups)


def _in_groups(query: Tensor, key: Tensor, value: Tensor, groups: int) -> Tensor:
    parts = (each.reshape(groups, -1, *each.shape[1:]) for each in (query, key, value))
    return torch.cat(list(parts), dim=1).reshape(-1, *query.shape[1:])


def _joined(weights: dict[str, Tensor], groups: int) -> dict[str, Tensor]:
    found = dict(weights)
    for name in [name for name in weights if ".self_attention.q_proj." in name]:
        query, key, value = (
            found.pop(name.replace(".q_proj.", f".{each}_proj.")) for each in "qkv"
        )
        found[name.replace(".q_proj.", ".linear_qkv.")] = _in_groups(query, key, value, groups)
    return found
