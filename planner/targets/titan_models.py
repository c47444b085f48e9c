"""Models that torchtitan has parts for: which config.json's are the same model there, and which are not."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, Literal

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Rotary:
    """A type of rotary embedding."""

    scaling: str = "none"
    """torchtitan's name."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Its fields in config.json, and their names in torchtitan."""


@frozen
class TitanModel:
    """One of torchtitan's models, for a `model_type` of config.json."""

    module: str
    """Below torchtitan.models."""
    model_class: str
    block_class: str = ""
    """Of its layers, where they are built one by one."""
    rotary_class: str
    rotary: tuple[str, ...]
    """Types of rotary embedding that it computes as transformers does."""
    sizes: tuple[str, ...]
    """Fields of config.json, whole numbers above zero, that it is built from."""
    only: Mapping[str, Any]
    """Fields that have one value alone; those left out have it."""
    flavors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where it cannot be built from sizes: those that it has, by name."""
    has_query_key_norm: bool = False
    is_latent: bool = False
    """Keys and values come out of latents."""
    has_experts: bool = False
    router: Literal["softmax", "sigmoid"] = "softmax"
    has_expert_bias: bool = False
    """The Hub's weights have a bias per expert that evens out the load."""
    loads_weights: bool = True
    """Whether its adapter reads the Hub's."""
    stored_in: tuple[str, ...] = ()
    """How those may be quantised."""


@frozen
class _Record:
    source: str
    rotary: Mapping[str, Rotary]
    models: Mapping[str, TitanModel]


@cache
def _record() -> _Record:
    return build(_Record, read("scripts", "torchtitan"), "scripts/torchtitan")


def titan_model(config: Mapping[str, object]) -> TitanModel | None:
    """Return torchtitan's model for a config.json; None where it has none of the type."""
    return _record().models.get(str(config.get("model_type")))


def loads_weights(config: Mapping[str, object]) -> bool:
    """Return whether torchtitan reads the Hub's weights of a model."""
    known = titan_model(config)
    return known is not None and known.loads_weights


def rotary(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of a config.json's rotary embedding, and its fields, under the names of transformers 5."""
    found: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    for name in ("rope_scaling", "rope_parameters"):
        said = config.get(name)
        found |= said if isinstance(said, Mapping) else {}
    return str(found.get("rope_type", found.get("type", "default"))), found


def rotary_options(config: Mapping[str, Any]) -> dict[str, str | float]:
    """Return what torchtitan's rotary embedding is told beside its size, as arguments of its Config."""
    kind, said = rotary(config)
    known = _record().rotary[kind]
    theta = said["rope_theta"] or 10_000.0
    options = {own: said[name] for name, own in known.fields.items() if name in said}
    return {"theta": theta, "scaling": known.scaling, **options}


def flavor(config: Mapping[str, object]) -> str | None:
    """Return torchtitan's name of the sizes, of a model that has only some."""
    known = titan_model(config)
    if known is None:
        return None
    sizes = tuple(config.get(name) for name in known.sizes)
    return next((name for name, one in known.flavors.items() if one == sizes), None)


def obstacle(config: Mapping[str, Any]) -> str:
    """Return why torchtitan's parts do not make the model of a config.json; "" where they do."""
    known, kind = titan_model(config), str(config.get("model_type"))[:40]
    if known is None:
        return f"torchtitan 0.3.0 has models of type {', '.join(_record().models)}, not {kind}"
    absent = [name for name in known.sizes if not _is_size(config.get(name))]
    if absent:
        return f"its config.json has no size in {absent[0]}"
    other = [name for name, value in known.only.items() if config.get(name, value) != value]
    if other:
        value = str(config[other[0]])[:40]
        return f"torchtitan's models of type {kind} have no {other[0]} of {value}"
    if known.flavors and flavor(config) is None:
        return f"torchtitan has models of type {kind} in {' and '.join(known.flavors)} alone"
    return _routing(config, known) or _turning(config, known, kind)


def _routing(config: Mapping[str, Any], known: TitanModel) -> str:
    groups, experts = config.get("n_group") or 1, config.get("n_routed_experts") or 1
    if known.has_expert_bias and groups > 1 and (experts % groups or experts < 2 * groups):
        return f"its {experts} experts are not in {groups} groups of two or more"
    dense = config.get("first_k_dense_replace", 0)
    return "" if isinstance(dense, int) and dense >= 0 else "its first_k_dense_replace is no number"


def _turning(config: Mapping[str, Any], known: TitanModel, kind: str) -> str:
    name, said = rotary(config)
    if name not in known.rotary:
        return f"torchtitan's models of type {kind} turn positions by {' or '.join(known.rotary)}, not {name[:40]}"
    numbers = [
        said["rope_theta"] or 1.0,
        *(said.get(each, 1.0) for each in _record().rotary[name].fields),
    ]
    if not all(_is_number(number) for number in numbers):
        return "its rotary embedding has fields that are no numbers"
    factors = (said.get("mscale"), said.get("mscale_all_dim"))
    if (
        known.is_latent
        and name == "yarn"
        and (factors[0] != factors[1] or not _is_number(factors[0]))
    ):
        return "torchtitan scales all of a query alike: its mscale and mscale_all_dim differ"
    return ""


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
