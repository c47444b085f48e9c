"""A Hugging Face config.json as Megatron-LM's arguments."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from planner.generate.run_spec import RunSpec
from planner.models.architectures import read_model
from planner.models.architectures.decoder_family import dropout, flag, size
from planner.models.architectures.norms import Norm
from planner.targets.megatron_models import Reading, reading
from planner.targets.some_layers import GROUPED

Options = dict[str, str | int | float | tuple[str, ...] | None]
"""Option to its value, or several of them; None for one that has none."""


def megatron_reading(spec: RunSpec) -> Reading:
    """Return how to read a plan's model, of a type that there are arguments for."""
    found = reading(read_model(spec.model, spec.model_config))
    if found is None:
        raise LookupError(spec.model_config.get("model_type"))
    return found


def model_options(spec: RunSpec) -> Options:
    """Return the model's shape, with the fields of its config.json."""
    found = megatron_reading(spec)
    model, config = found.model, found.config
    positions = max(model.max_position_embeddings, spec.sequence_length)
    always: Options = {
        name: None if value is True else value for name, value in found.known.options.items()
    }
    return {
        "--num-layers": found.layers,
        "--hidden-size": model.hidden_size,
        "--ffn-hidden-size": _width(found),
        **_attention(found),
        **_positions(found),
        **_windows(found, spec.sequence_length),
        "--normalization": "LayerNorm" if found.family.norm is Norm.LAYER else "RMSNorm",
        "--norm-epsilon": _said(found, found.known.norm_epsilon),
        **_activation(found),
        **_biases(found),
        "--attention-dropout": dropout(found.family, config, 2),
        "--hidden-dropout": dropout(found.family, config, 1),
        **({} if found.is_tied else {"--untie-embeddings-and-output-weights": None}),
        **always,
        **_experts(found, spec),
        # pretrain_gpt.py's --spec: where the layer is that its arguments do not say.
        **({"--spec": ("parallel_layer", "LAYER")} if found.is_parallel else {}),
        "--max-position-embeddings": positions,
        "--init-method-std": config.values.get("initializer_range", 0.02),
        "--make-vocab-size-divisible-by": 128,
    }


def _said(found: Reading, key: tuple[str, float]) -> Any:
    value = found.config.values.get(key[0])
    return key[1] if value is None else value


def _width(found: Reading) -> int:
    linears = found.linears
    dense = linears.get("down_proj") or linears.get("fc_out")
    if dense is not None:
        return dense.in_features
    return size(found.family, found.config, "inner", found.model.hidden_size)


def _attention(found: Reading) -> Options:
    attention = found.model.blocks[0].attention
    if attention is None:
        return {}
    options: Options = {"--num-attention-heads": attention.num_heads}
    if found.is_latent:
        return options | _latent(found)
    options["--kv-channels"] = attention.head_dim
    if attention.num_key_value_heads != attention.num_heads:
        groups = attention.num_key_value_heads
        options |= {"--group-query-attention": None, "--num-query-groups": groups}
    norms_flag = found.family.query_key_norm_flag
    has_norms = not norms_flag or found.config.flag(norms_flag, default=False)
    if found.family.query_key_norm == "head" and has_norms:
        options["--qk-layernorm"] = None
    return options


def _latent(found: Reading) -> Options:
    """Return the sizes of DeepSeek's attention, whose latent vectors have norms.

    Its fused kernel of rotary embeddings takes YaRN's alone.
    """
    config = found.config
    options: Options = {
        "--multi-latent-attention": None,
        "--kv-lora-rank": config.size("kv_lora_rank", 512),
        "--qk-head-dim": config.size("qk_nope_head_dim", 128),
        "--qk-pos-emb-head-dim": config.size("qk_rope_head_dim", 64),
        "--v-head-dim": config.size("v_head_dim", 128),
        "--qk-layernorm": None,
        "--no-rope-fusion": None,
    }
    query = found.linears.get("q_a_proj")
    return options | ({"--q-lora-rank": query.out_features} if query else {})


def _positions(found: Reading) -> Options:
    if found.model.has_learned_positions:
        return {"--position-embedding-type": "learned_absolute"}
    said = found.rope
    kind = str(said["rope_type"])
    options: Options = {
        "--position-embedding-type": "rope",
        # An integer to Megatron; config.json may say 500000.0.
        "--rotary-base": round(said["rope_theta"]),
    }
    share = said.get("partial_rotary_factor", _said(found, found.known.rotary_share))
    if share != 1:
        options["--rotary-percent"] = share
    if not all(found.has_rotary()):
        options["--no-rope-freq"] = pattern([not each for each in found.has_rotary()])
    factor = said.get("factor", 1.0)
    if found.is_latent:
        options["--rope-type"] = "yarn" if kind == "yarn" else "rope"
    elif kind == "yarn":
        options |= _yarn(found)
    if kind == "yarn":
        options |= {
            "--rotary-scaling-factor": factor,
            "--mscale": said.get("mscale", 1.0),
            "--mscale-all-dim": said.get("mscale_all_dim", 0.0),
        }
    if kind == "llama3":
        options["--use-rope-scaling"] = None
    if kind == "linear":
        options["--rotary-seq-len-interpolation-factor"] = round(factor)
    return options


def _yarn(found: Reading) -> Options:
    said = found.rope
    original = said.get("original_max_position_embeddings", found.model.max_position_embeddings)
    options: Options = {
        "--position-embedding-type": "yarn",
        "--yarn-original-max-position-embeddings": original,
        "--yarn-beta-fast": said.get("beta_fast", 32.0),
        "--yarn-beta-slow": said.get("beta_slow", 1.0),
    }
    if said.get("truncate") is False:
        options["--no-yarn-correction-range-round-to-int"] = None
    return options


def _windows(found: Reading, sequence_length: int) -> Options:
    """Return the tokens before its own that a token attends to, and in which layers."""
    windows = found.windows(sequence_length)
    if not any(windows):
        return {}
    options: Options = {"--window-size": f"{max(windows) - 1},0"}
    if not all(windows):
        options["--window-attn-skip-freq"] = pattern([bool(each) for each in windows])
    return options


def pattern(layers: Sequence[bool]) -> str:
    """Return which layers are meant, as Megatron reads it: a Python list, in runs."""
    runs = [(int(value), len(list(run))) for value, run in groupby(layers)]
    return "+".join(f"[{value}]*{length}" for value, length in runs)


def _activation(found: Reading) -> Options:
    options: Options = {}
    name, is_gated = found.activation, found.family.is_gated
    if found.known.clamp is not None:
        options["--activation-func-clamp-value"] = _said(found, found.known.clamp)
    if name == "quick-geglu":
        return options | {"--quick-geglu": None}
    if is_gated:
        return options | {"--swiglu": None}
    if name == "relu2":
        options["--squared-relu"] = None
    # Fused with a bias it is gelu by tanh.
    if name in {"relu2", "gelu"} and found.biases[2]:
        options["--no-bias-gelu-fusion"] = None
    return options


def _biases(found: Reading) -> Options:
    inputs, _, mlp = found.biases
    if mlp:
        return {}
    return {"--disable-bias-linear": None, **({"--add-qkv-bias": None} if inputs else {})}


def _experts(found: Reading, spec: RunSpec) -> Options:
    """Return what a mixture adds to the shape of a decoder: experts, router, shared expert.

    Megatron scales the chosen experts' scores to a sum of one unless the softmax comes before the choice; scores
    of a sigmoid always are.
    """
    router, linears = found.known.router, found.linears
    if router is None or "router" not in linears:
        return {}
    expert = linears["expert_down_proj"]
    options: Options = {
        "--num-experts": expert.num_experts,
        "--moe-ffn-hidden-size": expert.in_features,
        "--moe-router-topk": expert.experts_per_token,
        "--moe-router-dtype": "fp32",
        "--moe-router-load-balancing-type": router.balancing,
        "--moe-token-dispatcher-type": "alltoall",
    }
    if router.balancing != "none":
        options["--moe-aux-loss-coeff"] = _said(found, router.coefficient)
    if not all(found.has_experts()):
        options["--moe-layer-freq"] = pattern(found.has_experts())
    is_softmax = router.scores == "softmax"
    is_scaled = flag(found.config, router.normalises) and expert.experts_per_token > 1
    if is_softmax and not is_scaled:
        options["--moe-router-pre-softmax"] = None
    if not is_softmax:
        options |= {
            "--moe-router-score-function": router.scores,
            "--moe-router-enable-expert-bias": None,
            "--moe-router-bias-update-rate": 1e-3,
        }
    if spec.precision in GROUPED:
        options["--moe-grouped-gemm"] = None
    return options | _chosen(found) | _shared(found)


def _chosen(found: Reading) -> Options:
    router, options = found.known.router, Options()
    if router is None:
        return options
    if router.scale is not None and _said(found, router.scale) != 1:
        options["--moe-router-topk-scaling-factor"] = float(_said(found, router.scale))
    if router.groups is not None and router.chosen_groups is not None:
        groups, chosen = _said(found, router.groups), _said(found, router.chosen_groups)
        is_limited = found.config.values.get("topk_method", "") != "greedy"
        if groups > 1 and is_limited:
            options |= {"--moe-router-num-groups": groups, "--moe-router-group-topk": chosen}
    return options


def _shared(found: Reading) -> Options:
    shared = found.linears.get("shared_expert_down_proj")
    if shared is None:
        return {}
    options: Options = {"--moe-shared-expert-intermediate-size": shared.in_features}
    if found.linears.get("shared_expert_gate") is not None:
        options["--moe-shared-expert-gate"] = None
    return options
