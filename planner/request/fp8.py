"""Whether the precision, the framework and the cards have the scales that a recipe in fp8 asks for."""

from collections.abc import Mapping

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Gpu
from planner.domain.fp8 import Fp8Recipe
from planner.domain.framework import Framework
from planner.request.remarks import Assumption

_FIELD = "recipe.fp8_recipe"


def check_fp8_recipe(name: str | None, precision: str, framework: Framework, gpu: Gpu) -> None:
    """Refuse scales of fp8 where nothing is in fp8, or the framework or the card has not these.

    Raises:
        InvalidInputError: names what has them.
    """
    if name is None:
        return
    if precision != "fp8":
        raise InvalidInputError(
            f"fp8 recipe {name} needs precision fp8, and the precision is {precision}",
            hint="--precision fp8, or no --fp8-recipe",
            field=_FIELD,
        )
    known = framework.fp8_recipes
    if name not in known:
        raise InvalidInputError(
            f"fp8 with {name} scales is not estimated for {framework.name}",
            hint=f"{framework.name} has {', '.join(known)}; {name} is that of {_frameworks_with(name)}",
            field=_FIELD,
        )
    if not has_recipe(gpu, known[name]):
        raise InvalidInputError(
            f"{gpu.name} has no fp8 matmuls with {name} scales",
            hint=_instead(gpu, name, known),
            field=_FIELD,
        )


def has_recipe(gpu: Gpu, recipe: Fp8Recipe) -> bool:
    """Return whether the card multiplies what is scaled so."""
    if "fp8" not in gpu.peak_flops:
        return False
    if not gpu.compute_capability:
        return not recipe.nvidia_alone
    least = records.capability_version(recipe.least_capability)
    return records.capability_version(gpu.compute_capability) >= least


def usual_fp8_recipe(name: str | None, precision: str, framework: Framework) -> list[Assumption]:
    """Return how fp8 is scaled where nobody says."""
    usual = framework.usual_fp8_recipe
    if name is not None or precision != "fp8" or not usual:
        return []
    return [Assumption(text=f"fp8 with {usual} scales", field=_FIELD)]


def _frameworks_with(name: str) -> str:
    frameworks = map(records.framework, records.framework_names())
    return ", ".join(each.name for each in frameworks if name in each.fp8_recipes)


def _instead(gpu: Gpu, name: str, known: Mapping[str, Fp8Recipe]) -> str:
    able = [each for each, recipe in known.items() if has_recipe(gpu, recipe)]
    if not able:
        return "a card with fp8 tensor cores, such as h100, or --precision bf16-mixed"
    least = f"compute capability {known[name].least_capability} on"
    return f"{name} needs NVIDIA's cards from {least}; this card has {', '.join(able)}"
