"""The framework that a recipe means: at its release, with what the recipe says of its exchanges."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.catalog import records
from planner.catalog.releases import FIELD, Release, at_release, implied_release, release
from planner.core.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.domain.cluster import Gpu
from planner.domain.framework import Framework
from planner.domain.job import POST_TRAINING
from planner.domain.model import Model
from planner.domain.precision import Precision
from planner.request.post_training import TRAINED_BY_TRL
from planner.request.remarks import Assumption

_DTYPE_BYTES: Mapping[str, float] = {"fp32": 4, "bf16": 2}
_LIKELY_FRAMEWORK = "megatron"
"""Named first of several that can do what another cannot: its launch files are written here."""
_UNWRITTEN = (
    "gradient_reduce_dtype",
    "tensor_parallel_overlap",
    "data_parallel_overlap",
    "expert_dispatch",
    "expert_parallel_overlap",
    "cuda_graphs",
    "fp8_activation_input",
    "lora.dropout_position",
)
"""What an estimate honours and launch files leave to the framework's defaults."""
_NEVER = 4
"""A ZeRO stage that there is not."""
_HIDDEN = 0.9
"""Share of backward that reductions hide behind where a recipe overlaps them: of the records that do."""


def framework_of_release(
    name: str,
    version: str | None,
    assumptions: list[Assumption],
    gpu: Gpu,
    run: Mapping[str, object] | None,
) -> Framework:
    """Return a framework, at a release where one is named; which record was taken is an assumption.

    Args:
        name: of the framework's record.
        version: what the request says of its release.
        assumptions: what was taken is added to them.
        gpu: that it runs on.
        run: recipe and layout by field, of one that is looked at as others ran it, of which they and the GPU may
            mean a release; None where it is planned, and its files are written here.

    Raises:
        PlannerError: the framework or the release is unknown.
    """
    own = records.framework(name)
    if version is None:
        return _implied(name, gpu, assumptions, run)
    taken = release(name, version)
    known_as = taken.release.name or own.capabilities.version
    how_far = f" ({taken.remark})" if taken.remark else ""
    text = f"{name} as {known_as} does, the record nearest to {version.strip()}{how_far}"
    assumptions.append(Assumption(text=text, field=FIELD))
    return at_release(name, taken.release.name)


def _implied(
    name: str, gpu: Gpu, assumptions: list[Assumption], run: Mapping[str, object] | None
) -> Framework:
    found = implied_release(name, gpu.compute_capability, run or {})
    if found is None:
        return records.framework(name)
    if run is None:
        text = f"{name} at the release that its launch files install (planner estimate takes {found.name} on {gpu.name})"
        assumptions.append(Assumption(text=text, field=FIELD))
        return records.framework(name)
    text = f"{name} as {found.name} does, which {_meaning(found, gpu)}"
    assumptions.append(Assumption(text=text, field=FIELD))
    return replace(at_release(name, found.name), release="")


def _meaning(found: Release, gpu: Gpu) -> str:
    if not found.implied_by:
        return f"{gpu.name} is trained on with"
    said = (f"{name} {str(value).lower()}" for name, value in found.implied_by.items())
    return f"published runs on {gpu.name} with {', '.join(said)} were of"


def exchanging(
    framework: Framework, *, reduce_dtype: str | None, data_overlap: bool | None
) -> Framework:
    """Return the framework with what a recipe says of its exchanges in place of its own.

    Args:
        framework: as its record has it.
        reduce_dtype: of the gradients on the wire, "fp32" or "bf16".
        data_overlap: whether gradients are reduced, and parameters gathered, beside compute.
    """
    if reduce_dtype is not None:
        size = _DTYPE_BYTES[reduce_dtype]
        precisions = {
            name: _reducing(framework, precision, size)
            for name, precision in framework.precisions.items()
        }
        framework = replace(framework, precisions=precisions)
    if data_overlap is None:
        return framework
    overlap = framework.overlap
    hidden = max(overlap.backward_fraction, _HIDDEN) if data_overlap else 0.0
    changed = replace(
        overlap, reduces_gradients_from=0 if data_overlap else _NEVER, backward_fraction=hidden
    )
    return replace(framework, overlap=changed)


def _reducing(framework: Framework, precision: Precision, size: float) -> Precision:
    """Return a precision whose gradients travel so; a buffer that they are added up in is what travels."""
    if framework.sharding.keeps_gradients_from == 0:
        return replace(precision, reduce_bytes=size, gradient_bytes=size)
    return replace(precision, reduce_bytes=size)


def unwritten(said: Mapping[str, object]) -> tuple[str, ...]:
    """Return a note on what a recipe says that no launch file sets; nothing where it says none of it."""
    names = [name for name in _UNWRITTEN if _is_said(said, name)]
    if not names:
        return ()
    return (
        f"estimated with {', '.join(names)} as given; launch files do not set it: add it to them",
    )


def _is_said(said: Mapping[str, object], path: str) -> bool:
    section, _, name = path.rpartition(".")
    within = said.get(section) if section else said
    return isinstance(within, Mapping) and name in within


def compiled(framework: Framework) -> Framework:
    """Return the framework as it runs compiled models.

    Raises:
        UnsupportedError: what compiling saves it is not known.
    """
    if not framework.compile.is_estimated:
        names = (records.framework(name) for name in records.framework_names())
        raise UnsupportedError(
            f"torch.compile is not estimated for {framework.name}",
            hint=f"it is for {', '.join(record.name for record in names if record.compile.is_estimated)}",
            field="recipe.compile",
        )
    return framework.compiled()


def check_experts(model: Model, *, dispatch: str, is_overlapped: bool) -> None:
    """Refuse what is said of experts' exchange where the model has no experts.

    Raises:
        InvalidInputError: by the field that says it.
    """
    for name, is_said in (
        ("expert_dispatch", dispatch != "all-to-all"),
        ("expert_parallel_overlap", is_overlapped),
    ):
        if is_said and not model.has_experts:
            raise InvalidInputError(
                f"{name} is for mixtures of experts, and {model.name} is dense",
                hint="leave it out",
                field=f"recipe.{name}",
            )


def check_choices(framework: Framework, job: str | None, precision: str, optimizer: str) -> None:
    """Refuse a precision or an optimizer that the framework's record does not have.

    Args:
        framework: of the request.
        job: that only some frameworks run.
        precision: by its name.
        optimizer: by its name.

    Raises:
        InvalidInputError: with the frameworks that have it.
    """
    for name, value, known in (
        ("precision", precision, framework.precisions),
        ("optimizer", optimizer, framework.optimizers),
    ):
        if value not in known:
            raise InvalidInputError(
                f"{name} {value!r} is not estimated for {framework.name} yet",
                hint=_frameworks_with(f"{name}s", value, job) or _known(value, known, job),
                field=f"recipe.{name}",
            )


def _known(value: str, known: Iterable[str], job: str | None) -> str:
    """Return a hint with what a framework has; of jobs that others do not run, a name of theirs is no slip."""
    names = f"known: {', '.join(known)}"
    return names if job in POST_TRAINING else did_you_mean(value, known) or names


def _frameworks_with(table: str, name: str, job: str | None) -> str:
    """Return a hint with the frameworks that run a job and have a precision or an optimizer; "" of none."""
    names = TRAINED_BY_TRL if job in POST_TRAINING else records.framework_names()
    frameworks = map(records.framework, names)
    able = [framework.name for framework in frameworks if name in getattr(framework, table)]
    known = ", ".join(able)
    likely = _LIKELY_FRAMEWORK if _LIKELY_FRAMEWORK in able else "".join(able[:1])
    verb = "estimates" if len(able) == 1 else "estimate"
    return f"{known} {verb} {name}: --framework {likely}" if able else ""
