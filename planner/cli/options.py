"""The flags that describe a job, made of a request's fields, and the wire request that they make."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from planner.cli import wishes
from planner.cli.help import help_all_option, write_panels
from planner.cli.numbers import FiniteRange, GpuNumber, WholeNumber
from planner.cli.output import say
from planner.core.errors import InvalidInputError
from planner.core.files import read_limited

F = TypeVar("F", bound=Callable[..., Any])

_GOALS = ("objective", "max_gpus", "deadline_hours")
_NAMES_A_GPU = {"gpu", "instance", "topology"}
_FILES = ("files.targets", "files.launchers")
_JOBS = {"pretrained": "finetune", "random": "pretrain"}
"""By what weights start as."""
_MORE: Mapping[str, Mapping[str, Any]] = {
    "cluster.gpus_per_node": {"type": GpuNumber()},
    "cluster.nodes": {"default": 1, "show_default": True},
    "cluster.topology": {"type": click.Path(exists=True, dir_okay=False, allow_dash=True)},
    "recipe.training_samples": {"type": click.IntRange(1, 10**15)},  # epochs multiply them
    "why": {
        "multiple": True,
        "callback": lambda _context, _option, asked: wishes.only(asked),
    },
}
"""What the flag of a field has beside what follows from its type."""

_TYPED = "planner.typed"
_LONGEST_NAME = 60
"""Characters of a model's name that are shown."""


class JobCommand(click.Command):
    """A command with flags of a request's fields, which are made where they are asked for: --help of all asks for none."""

    @property
    def params(self) -> list[click.Parameter]:
        """Return the arguments and flags, in the order of --help."""
        made: list[click.Parameter] = []
        own = {name for each in self._params for name in getattr(each, "opts", ())}
        for each in self._params:
            of_fields = () if isinstance(each, click.Parameter) else each()
            made += [one for one in of_fields if not own & {*one.opts}] if of_fields else [each]
        self._params: list[Any] = made
        return made

    @params.setter
    def params(self, given: list[click.Parameter]) -> None:
        self._params = given

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of a command; a flag of other tools is answered with what it is here."""
        ctx.allow_extra_args = True
        ctx.meta[_TYPED] = tuple(each.partition("=")[0] for each in args)
        try:
            left = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = _meant(error.option_name)
            if not any(meant.partition(" ")[0] in each.opts for each in self.params):
                raise
            raise click.UsageError(
                f"No such option '{error.option_name}': write {meant}.", ctx
            ) from None
        if left:
            model = "-".join([ctx.params["model"], *left])[:_LONGEST_NAME]
            raise click.UsageError(
                f"Got unexpected extra argument ({left[0]}): a MODEL is one word, such as {model}.",
                ctx,
            )
        return left

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return arguments and flags, --help-all among them."""
        return [*super().get_params(ctx), help_all_option()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags in panels: those that are used most, or all."""
        write_panels(self, ctx, formatter)


def typed_flag(context: click.Context, parameter: click.Parameter) -> str:
    """Return a flag as it was typed."""
    names = (each for each in context.meta[_TYPED] if each in parameter.opts)
    return next(names, parameter.opts[0])


def _meant(option: str) -> str:
    from planner.catalog.records import read
    from planner.catalog.spellings import plain

    meant = {
        name.replace("-", ""): said for name, said in read("request", "flags")["meant"].items()
    }
    return str(meant.get(plain(option).replace("-", ""), ""))


def job_options(command: F) -> F:
    """Add the flags that describe a job, to a `JobCommand`."""
    return _later(command, _job_options)


def goal_options(command: F) -> F:
    """Add the flags of a suggestion alone: what is held fixed, what is best, what is asked about."""
    return _later(command, _goal_options)


def _later(command: F, options: Callable[[], list[click.Parameter]]) -> F:
    """Add what makes flags, as click's own decorators add them."""
    vars(command).setdefault("__click_params__", []).append(options)
    return command


def _job_options() -> list[click.Parameter]:
    beside = {
        "machine": [
            click.Option(["--revision"], help="Branch, tag or commit of the model on the Hub.")
        ],
        "cluster.gpu": [
            click.Option(
                ["--require-gpu"],
                is_flag=True,
                help="Refuse to plan where no GPU is named and none is found here.",
            )
        ],
        "recipe.job": [
            click.Option(
                ["--init"],
                type=click.Choice(list(_JOBS), case_sensitive=False),
                help="As the scripts have it: pretrained is --job finetune, random --job pretrain.",
            )
        ],
        "recipe.training_samples": [
            click.Option(
                ["--epochs"],
                type=FiniteRange(0, 10**9, min_open=True),
                help="Times that --samples are seen.",
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the contract's JSON."),
        ],
    }
    paths = [path for path in _flagged() if path not in {*_GOALS, *_FILES, "model", "why"}]
    return [made for path in paths for made in (_option(path), *beside.get(path, ()))]


def _goal_options() -> list[click.Parameter]:
    pin = click.Option(
        ["--pin"],
        multiple=True,
        metavar="NAME=VALUE",
        help="Hold a size or field of the strategy fixed, such as dp=4.",
    )
    return [pin, *map(_option, ("why", *_GOALS, *_FILES))]


def _flagged() -> Mapping[str, Any]:
    from planner.catalog.fields import words
    from planner.request.schema import fields

    return {path: fields()[path] for path, said in words().items() if said.flag}


def _option(path: str) -> click.Option:
    from planner.report.flags import names_of_switch

    field = _flagged()[path]
    name, _, value = field.words.flag.partition(" ")
    kind = field.scalar
    more = dict(_MORE.get(path, {}))
    if kind is bool:
        name, more["default"] = "/".join(names_of_switch(name)), None
    elif kind is float:
        more["type"] = FiniteRange(**field.bounds)
    elif kind is int:
        more.setdefault("type", WholeNumber())
    # A letter or NAME says no more than the INTEGER or TEXT that click shows.
    says_more = value != "NAME" if kind is str else len(value) > 1
    metavar = field.words.metavar or (value if says_more else None)
    return click.Option([name, field.name], help=field.words.help or None, metavar=metavar, **more)


def build_request(model: str, flags: dict[str, Any]) -> Any:
    """Return the wire request that the flags describe."""
    from planner.request.schema import parse_request
    from planner.request.typed import read_each, unless_wrong
    from planner.request.wire import nested

    if flags["revision"] is not None:
        model = f"{model}@{flags['revision']}"
    found, wrong = read_each(_reads(flags))
    payload = {"model": model, "cluster": {}, "recipe": {}, **nested(found)}
    machine = read_machine_option(flags["machine"])
    if machine is not None:
        payload["machine"] = machine
        if _is_default("nodes"):
            del payload["cluster"]["nodes"]
    else:
        _fill_from_here(payload["cluster"])
        if flags["require_gpu"] and not _NAMES_A_GPU & payload["cluster"].keys():
            raise InvalidInputError(
                "no GPU is named, and none was found here",
                hint="add --gpu NAME, or leave --require-gpu out and a usual one is assumed",
                field="--require-gpu",
            )
    strategy = wishes.together(_wishes(flags))
    if strategy:
        payload["strategy"] = strategy
    return unless_wrong(lambda: parse_request(payload), wrong)


_Read = Callable[[], dict[str, Any]]


def _reads(flags: Mapping[str, Any]) -> Iterator[_Read]:
    """Yield what reads each flag into fields by their paths; machine and layout aside."""
    for path, field in _flagged().items():
        typed = flags.get(field.name)
        if path == "recipe.training_samples":
            yield partial(_samples, typed, flags["epochs"])
        elif path == "recipe.job":
            yield partial(_job, typed, flags["init"])
        elif typed is not None and path in _READ:
            yield partial(_READ[path], typed)
        elif typed is not None and path != "machine" and not path.startswith("strategy."):
            yield partial(_read, field, typed)


def _read(field: Any, typed: Any) -> dict[str, Any]:
    return field.typed(typed) if isinstance(typed, str) else {field.path: typed}


def _wishes(flags: Mapping[str, Any]) -> Iterator[wishes.Said]:
    """Yield what is said of the layout, with the words that say it."""
    yield f"--strategy {flags['strategy']}", wishes.strategy(flags["strategy"])
    for path, field in _flagged().items():
        typed = flags.get(field.name)
        if typed is not None and path.startswith("strategy.") and path != "strategy.family":
            yield wishes.flag(path, typed, _read(field, typed)[path])
    for text in flags.get("pin", ()):
        yield f"--pin {text}", wishes.read(text, "--pin")


def _job(job: str | None, start: str | None) -> dict[str, Any]:
    meant = _JOBS.get(start or "", job)
    if job is not None and job != meant:
        raise InvalidInputError(
            f"--init {start} is --job {meant}, and --job is {job[:40]}",
            hint="leave one of them out",
            field="recipe.job",
        )
    return {} if meant is None else {"recipe.job": meant}


def _topology(file: str) -> dict[str, Any]:
    from planner.domain.topology import LARGEST_TEXT

    raw = read_limited(
        sys.stdin.buffer if file == "-" else Path(file),
        file[:_LONGEST_NAME],
        LARGEST_TEXT,
        hint="what `nvidia-smi topo -m` prints, in a file or, with -, on stdin",
        field="cluster.topology",
    )
    return {"cluster.topology": raw.decode("utf-8", errors="replace")}


def _samples(samples: int | None, epochs: float | None) -> dict[str, Any]:
    if samples is not None:
        return {"recipe.training_samples": round(samples * (1.0 if epochs is None else epochs))}
    if epochs is None:
        return {}
    raise InvalidInputError(
        "--epochs needs the size of the data set", hint="add --samples N", field="--epochs"
    )


_READ: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "cluster.topology": _topology,
    "why": lambda text: {"why": wishes.read(text, "--why")},
}
"""How a flag is read that is no field's value, nor an amount."""


def read_machine_option(file: str | None) -> dict[str, Any] | None:
    """Return what a file of --machine holds, as a request has it."""
    if file is None:
        return None
    from planner.machine.reading import read_machine
    from planner.machine.writing import machine_json

    return machine_json(read_machine(file))


def _is_default(flag: str) -> bool:
    source = click.get_current_context().get_parameter_source(flag)
    return source is not ParameterSource.COMMANDLINE


def _fill_from_here(cluster: dict[str, Any]) -> None:
    """Take the GPUs that are here, and how they are wired, where the command names none."""
    if _NAMES_A_GPU & cluster.keys():
        return
    from planner.hardware.probe import probe

    found = probe()
    if found:
        from planner.hardware.topology import dump

        cluster["topology"] = dump(found.topology)
        names = Counter(found.topology.gpu_names).items()
        kinds = " and ".join(f"{count} x {name}" for name, count in names)
        say([f"found {kinds} here", *(f"{f.message} ({f.code})" for f in found.findings)])
