"""A plan's JSON -> the estimate request of its chosen layout."""

from collections.abc import Mapping
from typing import Any

from planner.core.errors import InvalidInputError, PlannerError
from planner.request.cluster import resolve_cluster
from planner.request.sections import ClusterRequest

_CLUSTER = ("instance", "gpu", "gpus_per_node", "nodes", "nvlink_domain_gpus")
_RECIPE = {
    "sequence_length": "sequence_length",
    "global_batch_size": "global_batch_size",
    "precision": "precision",
    "fp8_recipe": "fp8_recipe",
    "optimizer": "optimizer",
    "attention": "attention",
    "loss": "loss",
    "weights_dtype": "weights_dtype",
    "compile": "compile",
    "tensor_parallel_overlap": "tensor_parallel_overlap",
    "expert_dispatch": "expert_dispatch",
    "expert_overlap": "expert_parallel_overlap",
    "optimizer_in_backward": "optimizer_in_backward",
    "cuda_graphs": "cuda_graphs",
    "framework": "framework",
}
"""A request's name of each field, by the plan's."""
_FULL_BITS, _FP32_BYTES = 16, 4


def request_of_plan(
    plan: Mapping[str, Any], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the estimate request of a plan's chosen layout.

    Args:
        plan: what `planner suggest --json` printed, or a bundle's plan.json.
        config: the model's config.json, where its name says nothing to others.

    Raises:
        InvalidInputError: the object is no plan.
    """
    try:
        job, strategy = plan["job"], dict(plan["chosen"]["strategy"])
        cluster = {name: job["cluster"][name] for name in _CLUSTER if job["cluster"].get(name)}
        request = {
            "model": dict(config) if config else job["model"]["name"],
            "cluster": {**cluster, **_links(job["cluster"], cluster)},
            "recipe": _recipe(job["recipe"]),
            "strategy": {name: value for name, value in strategy.items() if value is not None},
        }
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise InvalidInputError(
            "the plan lacks its job or its layout",
            hint="give what `planner suggest --json` printed, or a folder of --out",
            field="plan",
        ) from None
    return request


def _recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    said = {wire: recipe[name] for name, wire in _RECIPE.items() if recipe.get(name) is not None}
    share = recipe.get("padding_share") or 0.0
    if share:
        said |= {"packed": False, "padding_share": share}
    lora = recipe.get("lora")
    return {**said, **_lora(lora)} if lora else said


def _lora(lora: Mapping[str, Any]) -> dict[str, Any]:
    wish = {name: lora[name] for name in ("rank", "alpha", "dropout", "targets")}
    wish["dtype"] = "fp32" if lora["adapter_bytes"] == _FP32_BYTES else "16-bit"
    if (lora.get("base_bits") or _FULL_BITS) >= _FULL_BITS:
        return {"method": "lora", "lora": wish}
    wish |= {"bits": lora["base_bits"], "double_quantization": lora["has_double_quantization"]}
    return {"method": "qlora", "lora": wish}


def _links(planned: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the links that are not what such a cluster usually has: they were given."""
    try:
        usual = resolve_cluster(ClusterRequest.model_validate(dict(cluster))).cluster
    except (PlannerError, ValueError):
        return {}
    found: dict[str, Any] = {}
    inside, between = planned.get("intra_node"), planned.get("inter_node")
    if inside and (usual.intra_node is None or inside["name"] != usual.intra_node.name):
        speed, latency = inside["bytes_per_second"], inside["latency_seconds"]
        found["intra_node"] = {"bus_gb_per_s": speed / 1e9, "latency_us": latency * 1e6}
    if between and (usual.inter_node is None or between["name"] != usual.inter_node.name):
        speed, latency = between["bytes_per_second"], between["latency_seconds"]
        found["inter_node"] = {"gb_per_s_per_node": speed / 1e9, "latency_us": latency * 1e6}
    return found
