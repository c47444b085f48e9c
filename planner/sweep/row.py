"""A request -> one line of figures: what is planned, how fast it is, and what it takes."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from planner import __version__, answers
from planner.advice.plan import Plan
from planner.answers.parts import layout_answer
from planner.domain.job import Lora
from planner.request.schema import Request
from planner.search.training_run import training_run

Chunk: TypeAlias = list[dict[str, Any]]
"""Requests that are answered together."""

FIGURES = {
    "model": str,
    "parameters": int,
    "cluster": str,
    "gpu": str,
    "gpus_per_node": int,
    "nodes": int,
    "gpus": int,
    "usd_per_hour": float,
    "method": str,
    "precision": str,
    "sequence_length": int,
    "global_batch_size": int,
    "family": str,
    "reserved_bytes": int,
    "usable_bytes": int,
    "step_seconds": float,
    "low_seconds": float,
    "high_seconds": float,
    "tokens_per_second": float,
    "training_seconds": float,
    "training_usd": float,
}
"""What a line has beside its request and strategy, with the type of each; null where not known."""


def key_of(request: Any) -> str:
    """Return what two requests share that the same planner answers alike."""
    asked = json.dumps([__version__, request], sort_keys=True)
    return sha256(asked.encode()).hexdigest()[:24]


def answer_lines(requests: Sequence[dict[str, Any]], *, allow_paths: bool) -> list[str]:
    """Return a line of JSON for each request, its error where it has no plan."""

    def answer(request: Request) -> dict[str, Any]:
        _, plan = answers.suggest_layout(request, allow_paths=allow_paths)
        return {
            "id": request.id,
            "ok": True,
            **_figures(plan),
            "strategy": layout_answer(plan.job, plan.chosen.strategy),
        }

    answered = zip(requests, answers.answer_each(requests, answer), strict=True)
    return [
        json.dumps({"key": key_of(request), **found, "request": request}, sort_keys=True)
        for request, found in answered
    ]


def _figures(plan: Plan) -> dict[str, Any]:
    job, chosen = plan.job, plan.chosen
    cluster, recipe, step_time = job.cluster, job.recipe, chosen.step_time
    price = cluster.instance.usd_per_hour * cluster.nodes if cluster.instance else 0.0
    run = training_run(job, step_time)
    return {
        "model": job.model.name,
        "parameters": job.model.parameters,
        "cluster": f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}",
        "gpu": cluster.gpu.name,
        "gpus_per_node": cluster.gpus_per_node,
        "nodes": cluster.nodes,
        "gpus": cluster.world_size,
        "usd_per_hour": price or None,
        "method": _method(recipe.lora),
        "precision": recipe.precision,
        "sequence_length": recipe.sequence_length,
        "global_batch_size": recipe.global_batch_size,
        "family": chosen.strategy.family,
        "reserved_bytes": round(float(chosen.memory.reserved_bytes)),
        "usable_bytes": round(job.usable_bytes),
        "step_seconds": float(step_time.step_seconds),
        "low_seconds": float(step_time.low_seconds),
        "high_seconds": float(step_time.high_seconds),
        "tokens_per_second": float(step_time.tokens_per_second_per_gpu) * cluster.world_size,
        "training_seconds": run.seconds if run else None,
        "training_usd": (run.usd or None) if run else None,
    }


def _method(lora: Lora | None) -> str:
    if lora is None:
        return "full"
    return "qlora" if lora.is_quantised else "lora"
