"""What the OpenAPI description says beyond the routes: the contract's schema, and examples."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from api.body import TopologyRequest
from api.problems import Problem
from planner.request.schema import Request

_REFERENCE = "#/components/schemas/{model}"

_GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
_LLAMA = {
    "model": "meta-llama/Llama-2-7b-hf",
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8},
    "recipe": {"sequence_length": 4096, "global_batch_size": 128},
}
_PAIR = "        GPU0    GPU1    CPU Affinity\nGPU0     X      NV12    0-31\nGPU1    NV12     X      0-31"
_LLAMA_LAYOUT = {"zero_stage": 3, "micro_batch_size": 1, "recompute": "full"}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, and what to do about it",
        "content": {
            "application/problem+json": {"schema": {"$ref": _REFERENCE.format(model="Problem")}}
        },
    }
}


class App(FastAPI):
    """Describes bodies that the routes read by themselves."""

    def openapi(self) -> dict[str, Any]:
        """Return the description with the contract's schemas."""
        description = super().openapi()
        schemas = description.setdefault("components", {}).setdefault("schemas", {})
        for model in (Request, TopologyRequest, Problem):
            schemas |= _schemas(model)
        return description


def suggest_body() -> dict[str, Any]:
    """Return the description of a body to /v1/suggest."""
    return _body({"gpt2": ("gpt2 on 4 GPUs", _GPT2), "llama": ("Llama-2-7b on 8 A100", _LLAMA)})


def estimate_body() -> dict[str, Any]:
    """Return the description of a body to /v1/estimate."""
    gpt2 = {**_GPT2, "strategy": {"zero_stage": 0}}
    llama = {**_LLAMA, "strategy": _LLAMA_LAYOUT}
    return _body(
        {"gpt2": ("gpt2 on 4 GPUs, DDP", gpt2), "llama": ("Llama-2-7b on 8 A100, ZeRO-3", llama)}
    )


def topology_body() -> dict[str, Any]:
    """Return the description of a body to /v1/topology."""
    return _body({"pair": ("two GPUs joined by NVLink", {"text": _PAIR})}, "TopologyRequest")


def _body(
    examples: dict[str, tuple[str, dict[str, Any]]], model: str = "Request"
) -> dict[str, Any]:
    content = {
        "schema": {"$ref": _REFERENCE.format(model=model)},
        "examples": {
            name: {"summary": summary, "value": value}
            for name, (summary, value) in examples.items()
        },
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
