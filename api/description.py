"""The OpenAPI description: routes, the contract's schema, and examples."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from api.body import CheckRequest, TopologyRequest
from api.examples import add_examples
from api.problems import Problem
from planner.request.schema import Request

_REFERENCE = "#/components/schemas/{model}"


class App(FastAPI):
    """Describes bodies that the routes read by themselves."""

    def openapi(self) -> dict[str, Any]:
        """Return the description with the contract's schemas, and examples of what is answered."""
        if self.openapi_schema:
            return self.openapi_schema
        description = super().openapi()
        schemas = description.setdefault("components", {}).setdefault("schemas", {})
        for model in (Request, CheckRequest, TopologyRequest, Problem):
            schemas |= _schemas(model)
        add_examples(description["paths"])
        return description


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
