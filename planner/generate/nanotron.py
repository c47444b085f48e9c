"""nanotron's run_train.py, started by torchrun with the plan as its YAML."""

from typing import Any

from planner.domain.strategy import PipelineSchedule, Recompute
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.models.architectures import read_model
from planner.targets.megatron_models import Reading, reading

_ENGINES = {PipelineSchedule.GPIPE: "afab", PipelineSchedule.ONE_FORWARD_ONE_BACKWARD: "1f1b"}


def _context(spec: RunSpec) -> dict[str, Any]:
    found = reading(read_model(spec.model, spec.model_config))
    if found is None:
        raise LookupError(spec.model_config.get("model_type"))
    return {
        "model_settings": _model_settings(spec, found),
        "init_std": float(found.config.values.get("initializer_range") or 0.02),
        "pipeline_engine": _ENGINES[spec.pipeline_schedule],
        "tensor_mode": "REDUCE_SCATTER" if spec.sequence_parallel else "ALL_REDUCE",
        "is_recomputed": spec.recompute == Recompute.FULL,
    }


def _model_settings(spec: RunSpec, found: Reading) -> dict[str, Any]:
    """Return the fields of its LlamaConfig. Source: huggingface/nanotron src/nanotron/config/models_config.py."""
    model, linears = found.model, found.linears
    attention = model.blocks[0].attention
    heads = (attention.num_heads, attention.num_key_value_heads) if attention else (1, 1)
    return {
        "is_llama_config": True,
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": linears["down_proj"].in_features,
        "num_hidden_layers": found.layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "max_position_embeddings": max(model.max_position_embeddings, spec.sequence_length),
        "rms_norm_eps": float(found.config.values.get("rms_norm_eps") or 1e-6),
        "rope_theta": float(found.rope["rope_theta"]),
        "rope_interleaved": False,
        "tie_word_embeddings": found.is_tied,
        "vocab_size": model.vocab_size,
    }


TARGET = Target(
    name="nanotron",
    summary="`run_train.py` of nanotron, from random weights; the plan is in `config.yaml`. It takes no arguments:"
    " what follows about `--data`, `--save-every` and `--resume` is said of the other scripts.",
    templates={"config.yaml": "nanotron/config.yaml", "launch.sh": "nanotron/launch.sh"},
    context=_context,
    launch_template="nanotron/launch.md",
)
