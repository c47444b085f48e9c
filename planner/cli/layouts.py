"""--layout: what a log does not say of its run, as a plan, a request or the flags of `planner estimate`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from planner.cli.options import build_request
from planner.core.errors import InvalidInputError

_HARDWARE = ("gpu", "instance", "topology")


def read_layout(text: str | None, gpu: str = "") -> dict[str, Any] | None:
    """Return the estimate request that a --layout describes, or None for none.

    Args:
        text: a plan.json or a folder with one, a request's JSON, or flags such as "gpt2 --gpus 8".
        gpu: what the log was written on, where it says that.

    Raises:
        PlannerError: it cannot be read.
    """
    if text is None:
        return None
    is_named = text.endswith(".json") and len(text.split()) == 1
    return _of_file(text, gpu) if _is_there(text) or is_named else _of_flags(text, gpu)


def layouts_of(texts: Sequence[str], readings: Sequence[Any]) -> list[dict[str, Any] | None]:
    """Return the layout of each log: one for all runs, or one for each; a log of exchanges needs none.

    Raises:
        PlannerError: a layout cannot be read, or there are not as many as runs.
    """
    runs = sum(reading.log is not None for reading in readings)
    if len(texts) not in {0, 1, runs}:
        raise InvalidInputError(
            f"{len(texts)} layouts for {runs} logs of runs",
            hint="one --layout for all, or one for each in their order",
            field="--layout",
        )
    each = iter(texts if len(texts) > 1 else [*texts] * runs)
    return [
        read_layout(next(each, None), "" if reading.gpu == "cpu" else reading.gpu)
        if reading.log is not None
        else None
        for reading in readings
    ]


def _is_there(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _of_file(file: str, gpu: str) -> dict[str, Any]:
    from planner.calibrate.logs.plans import request_of_plan
    from planner.gate.documents import read_json

    path = Path(file) / "plan.json" if Path(file).is_dir() else Path(file)
    value = read_json(path, file)
    if "chosen" in value:
        return request_of_plan(value)
    if "model" in value:
        return {name: part for name, part in value.items() if name != "id"}
    if "model_type" in value:
        return _of_flags(shlex.quote(file), gpu)
    raise InvalidInputError(
        f"{file} is no plan and no request",
        hint='a plan has "chosen", a request "model"',
        field="--layout",
    )


def _check_words(words: Sequence[str]) -> None:
    """Refuse a question for help, which would be answered with that of another command."""
    if "--help" in words:
        raise InvalidInputError(
            "--layout takes a plan.json, a request or flags of a layout",
            hint="such as --layout 'gpt2 --gpus 8 --gpu h100 --seq-len 1024'; planner estimate --help lists them",
            field="--layout",
        )


def _of_flags(text: str, gpu: str) -> dict[str, Any]:
    from planner.cli.plans import estimate

    try:
        words = shlex.split(text)
        _check_words(words)
        context = estimate.make_context("--layout", words)
    except ValueError as error:
        raise InvalidInputError(f"cannot read {text[:60]!r}: {error}", field="--layout") from None
    except click.ClickException as error:
        raise InvalidInputError(
            f"--layout {text[:60]!r}: {error.format_message()}",
            hint="a plan.json that is there, or flags of `planner estimate`: 'gpt2 --gpus 8 --gpu h100'",
            field="--layout",
        ) from None
    flags = dict(context.params)
    if flags["model"] is None or not any(flags[name] for name in _HARDWARE):
        if not gpu or flags["model"] is None:
            missing = "its MODEL" if flags["model"] is None else "--gpu NAME"
            raise InvalidInputError(
                f"--layout {text[:60]!r} does not say {missing}",
                hint="such as --layout 'gpt2 --gpus 8 --gpu h100 --seq-len 1024'",
                field="--layout",
            )
        flags["gpu"] = gpu
    request = build_request(flags["model"], flags).model_dump(exclude_unset=True)
    if context.get_parameter_source("nodes") is ParameterSource.DEFAULT:
        request["cluster"].pop("nodes", None)
    return dict(request)
