"""What of a plan is written: the target that it recommends, or those that somebody names."""

from planner.advice.plan import Plan
from planner.core.errors import InvalidInputError
from planner.request.sections import FilesRequest
from planner.targets import framework_of

_TARGETS = "files.targets"


def wanted_targets(plan: Plan, wanted: FilesRequest) -> tuple[str, ...]:
    """Return the targets that are written of a plan, which has some.

    Raises:
        InvalidInputError: one that is named cannot be written; says why, and which can.
    """
    launch, named = plan.launch, wanted.targets
    if named is None:
        return launch.targets[:1]
    if isinstance(named, str):
        return launch.targets
    for name in named:
        if name not in launch.targets:
            raise _unwritten(plan, name)
    return tuple(dict.fromkeys(named))


def _unwritten(plan: Plan, name: str) -> InvalidInputError:
    framework, others = plan.job.framework.name, ", ".join(plan.launch.targets)
    reason = plan.launch.unwritten.get(name)
    if reason is not None:
        hint = f"this plan has {others}"
        return InvalidInputError(f"no files for {name}: {reason}", hint=hint, field=_TARGETS)
    its = framework_of(name)
    return InvalidInputError(
        f"no files for {name}: it runs plans of {its}, and this one is of {framework}",
        hint=f"--framework {its} plans for it; this plan has {others}",
        field=_TARGETS,
    )
