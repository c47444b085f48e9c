"""Write a plan as files that run: a training script, its launcher and a README for each target."""

import posixpath
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from planner.core.errors import InvalidInputError, did_you_mean
from planner.core.units import format_flops
from planner.generate import (
    axolotl,
    bridge,
    llama_factory,
    megatron,
    nanotron,
    torchrun,
    torchtitan,
    trainer,
)
from planner.generate.context import common_context
from planner.generate.imports import IMPORTS, with_imports
from planner.generate.launchers import launcher_files, launchers_of, wanted_launchers
from planner.generate.programs import main_program
from planner.generate.quoting import render
from planner.generate.run_spec import RunSpec, check
from planner.generate.target import Target

__all__ = ["TARGETS", "RunSpec", "Target", "generate"]

TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        module.TARGET.name: module.TARGET
        for module in (
            torchrun,
            trainer,
            megatron,
            bridge,
            nanotron,
            torchtitan,
            axolotl,
            llama_factory,
        )
    }
)

_CPUS_FLOPS_PER_STEP = 2e13
"""Up to which a README has fifty steps tried on CPUs: an hour at 0.3 TFLOP/s, a judgement."""


def generate(
    spec: RunSpec,
    targets: Sequence[str],
    refused: Mapping[str, str] = MappingProxyType({}),
    launchers: str | Sequence[str] = (),
    others: Sequence[str] = (),
) -> dict[str, str]:
    """Return the files of a plan: relative path to text.

    Args:
        spec: what to write.
        targets: which write it.
        refused: those of them that cannot, each with the reason (see `planner.targets`); the README
            says it.
        launchers: names of those that are written; "all" for each that the plan can use.
        others: targets that would write it too; the README names them.

    Raises:
        InvalidInputError: a target does not exist, or the spec contradicts itself.
    """
    for name in targets:
        if name not in TARGETS:
            raise InvalidInputError(
                f"unknown target {name!r}",
                hint=did_you_mean(name, TARGETS) or f"known targets: {', '.join(TARGETS)}",
                field="target",
            )
    check(spec)
    written = [TARGETS[name] for name in targets if name not in refused]
    used = wanted_launchers(launchers, spec, written)
    context = common_context(spec)
    files = {
        "README.md": render(
            main_program(written).readme,
            context
            | {
                "targets": written,
                "refused": refused,
                "others": others,
                "has_launchers": bool(used),
                "launchers": launchers_of(spec, written),
                "step_flops": format_flops(_step_flops(spec)),
                "fits_cpus": _step_flops(spec) <= _CPUS_FLOPS_PER_STEP,
            },
        ),
    }
    for target in written:
        own = {**context, **target.context(spec), "target_name": target.name, "imports": IMPORTS}
        templates = {**target.templates, **target.more_templates(spec)}
        texts = with_imports({name: render(each, own) for name, each in templates.items()})
        files |= {posixpath.normpath(f"{target.name}/{name}"): text for name, text in texts.items()}
    return files | launcher_files(spec, written, context, used)


def _step_flops(spec: RunSpec) -> float:
    return spec.flops_per_token * spec.tokens_per_sample * spec.global_batch_size
