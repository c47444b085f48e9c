"""Help by what things are for: commands in groups, flags in panels. What is used most, or with --help-all everything."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import click

WIDEST = 120
"""Columns of help on a terminal that has more."""
MORE = "More"
"""The group of commands that --help-all alone shows."""
_ALL = "planner.help_all"
_OUTPUT = "Output"
_BESIDE = {
    "epochs": "training_samples",
    "init": "job",
    "packed": "padding_share",
    "pin": "strategy",
    "require_gpu": "gpu",
    "revision": "model",
}
"""A flag that is no input of the form, and the input in whose panel it stands; others are of the output."""
_USED_MOST = frozenset(
    {
        *("--batch", "--cpu", "--help", "--help-all", "--json", "--minutes", "--most", "--out"),
        *("--output", "--target", "--verbose", "hosts", "launcher"),
    }
)
"""Of those that are no field of a request: flags, and parameters where another command has the flag, too."""

Rows = list[tuple[str, str]]


@cache
def help_all_option() -> click.Option:
    """Return the flag that prints the whole help."""
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_all,
        help="Show everything there is, and exit.",
    )


def _print_all(context: click.Context, _option: click.Parameter, is_asked: object) -> None:
    if is_asked and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class GroupedCommands(click.Group):
    """Commands under the names of their groups."""

    groups: Mapping[str, Iterable[str]]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the flags, --help-all among them."""
        return [*super().get_params(ctx), help_all_option()]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; one of other tools, or a model in its place, is answered with what it is here."""
        typed = args[0]
        meant = "" if typed in self.commands else _meant(typed)
        if meant:
            raise click.UsageError(f"No such command {typed!r}: write planner {meant}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group; those that few need only where all are asked for."""
        shown = {
            title: [(name, self.commands[name].get_short_help_str(WIDEST)) for name in names]
            for title, names in self.groups.items()
            if title != MORE or _ALL in ctx.meta
        }
        _write(shown, formatter)


def _meant(typed: str) -> str:
    from planner.catalog.records import model_ids, read
    from planner.catalog.spellings import plain

    name = typed.lower()
    if any(name in {each.lower(), each.lower().rpartition("/")[2]} for each in model_ids()):
        return f"suggest {typed}"
    meant = read("request", "flags")["commands"]
    return str(meant.get(plain(typed).replace("-", ""), ""))


def write_panels(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the flags of a job under the legends that the form has for them."""
    from planner.catalog.fields import fieldsets
    from planner.request.schema import fields

    legends = {name: each.legend for each in fieldsets() for name in each.inputs}
    usual = {each.name: each.words.usual for each in fields().values()}
    params = command.get_params(ctx)
    wanted = {"always"} if any(each.name == "pin" for each in params) else {"always", "one layout"}
    panels: dict[str, Rows] = {legend: [] for legend in (*legends.values(), _OUTPUT)}
    for each in params:
        name, record = each.name or "", each.get_help_record(ctx)
        is_used_most = usual.get(name) in wanted or bool(_USED_MOST & {name, *each.opts})
        is_shown = is_used_most or _ALL in ctx.meta
        if record and is_shown and isinstance(each, click.Option):
            panels[legends.get(_BESIDE.get(name, name), _OUTPUT)].append(record)
    _write(panels, formatter)


def _write(
    sections: Mapping[str, Sequence[tuple[str, str]]], formatter: click.HelpFormatter
) -> None:
    """Write sections whose second columns stand one below the other."""
    widest = max(len(name) for rows in sections.values() for name, _ in rows)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(min(widest, 30)), said) for name, said in rows])
