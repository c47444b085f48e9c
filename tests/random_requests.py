"""Random requests over the whole catalogue: for the same number the same one."""

import random
from typing import Any

from planner.catalog import records
from planner.hardware.usual_network import usual_node

_NETWORKS = ("ethernet-10g", "roce-100g", "infiniband-ndr", {"gb_per_s_per_node": 200.0})
_METHODS = ("full", "full", "full", "lora", "qlora")
_PINS: tuple[dict[str, Any], ...] = (
    {"zero_stage": 3},
    {"zero_stage": 1},
    {"tensor_parallel_size": 4},
    {"tensor_parallel_size": 16},
    {"pipeline_parallel_size": 2},
    {"pipeline_parallel_size": 3, "pipeline_schedule": "interleaved-1f1b"},
    {"context_parallel_size": 2},
    {"expert_parallel_size": 8},
    {"micro_batch_size": 1},
    {"micro_batch_size": 3, "gradient_accumulation_steps": 5},
    {"offload": "optimizer"},
    {"zero_stage": 3, "offload": "optimizer+parameters"},
    {"synchronize_every": 8},
    {"virtual_pipeline_size": 2},
    {"recompute": "selective"},
    {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4, "zero_stage": 3},
)
"""Wishes, of which some contradict each other or what there is."""


def random_request(number: int) -> dict[str, Any]:
    """Return the body of a request for a suggestion, sensible or not, of that number."""
    # Requests, not secrets.
    chance = random.Random(number)
    framework = records.framework(chance.choice(records.framework_names()))
    return {
        "model": chance.choice(records.model_ids()),
        "cluster": _cluster(chance),
        "recipe": {
            "framework": framework.name,
            "method": chance.choice(_METHODS),
            **_sometimes(chance, 0.4, "precision", list(framework.precisions)),
            **_sometimes(chance, 0.2, "optimizer", list(framework.optimizers)),
            **_sometimes(chance, 0.2, "attention", ["eager", "sdpa", "flash"]),
            **_sometimes(chance, 0.1, "weights_dtype", ["config", "fp32"]),
            **_sometimes(chance, 0.6, "sequence_length", [1, 128, 500, 2048, 8192, 131072]),
            **_sometimes(chance, 0.6, "global_batch_size", [1, 7, 30, 64, 256, 576, 4096]),
            **_sometimes(chance, 0.2, "training_tokens", [10**6, 10**11]),
        },
        **_sometimes(chance, 0.25, "strategy", _PINS),
        **_sometimes(chance, 0.15, "objective", ["memory", "gpus", "cost"]),
        **_sometimes(chance, 0.1, "max_gpus", [1, 6, 24, 100]),
        **_sometimes(chance, 0.05, "deadline_hours", [0.1, 100.0]),
        **_sometimes(chance, 0.1, "why", _PINS),
    }


def _cluster(chance: random.Random) -> dict[str, Any]:
    nodes = chance.choice((1, 1, 1, 2, 3, 8, 32))
    if chance.random() < 0.3:
        return {"instance": chance.choice(records.instance_names()), "nodes": nodes}
    gpu = chance.choice(records.gpu_names())
    return {
        "gpu": gpu,
        "gpus_per_node": min(chance.choice((1, 2, 3, 4, 6, 8, 16)), usual_node(gpu)[1]),
        "nodes": nodes,
        **_sometimes(chance, 0.3, "inter_node", _NETWORKS),
        **_sometimes(chance, 0.1, "peer_to_peer", [True, False]),
    }


def _sometimes(chance: random.Random, share: float, name: str, values: Any) -> dict[str, Any]:
    return {name: chance.choice(values)} if chance.random() < share else {}
