"""Commands that look things up: rules and terms, a model, published runs."""

import json
from dataclasses import asdict
from typing import Any

import click

from planner.cli.output import bold, color, say, terminal
from planner.core.errors import UnknownNameError


@click.command()
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print what /v1/rules and /v1/terms answer.")
def explain(name: tuple[str, ...], *, as_json: bool) -> None:
    """Explain each code, term or strategy, or an error message.

    A code is that of a rule or a finding; its three letters list those that begin with them.
    Without a NAME, all of them are listed.
    """
    from planner.explain.glossary import asked_of

    answers, unknown = [], []
    for each in asked_of(name):
        try:
            answers.append(_explained(each))
        except UnknownNameError as error:
            unknown.append(error)
    if as_json and answers:
        found = [answer for answer, _ in answers]
        click.echo(json.dumps(found[0] if len(found) == 1 else found, indent=2), color=color())
    elif answers:
        click.echo("\n\n".join(text for _, text in answers), color=color())
    if unknown:
        words = "unknown code or term"
        names = ", ".join(each.message.removeprefix(words).strip() for each in unknown)
        raise UnknownNameError(f"{words} {names}", hint=unknown[0].hint, field=unknown[0].field)


def _explained(name: str) -> tuple[dict[str, Any], str]:
    """Return what is known of a name, for a program and for a terminal.

    Raises:
        UnknownNameError: nothing is.
    """
    from planner.explain import glossary

    if several := glossary.listed(name):
        rules, said, terms = several
        answer = {
            "rules": [asdict(each) for each in rules],
            "messages": [asdict(each) for each in said],
            "terms": [asdict(each) for each in terms],
        }
        return answer, glossary.list_text(*several, terminal())
    found = glossary.explain(name)
    if not isinstance(found, glossary.Entry):
        return asdict(found), glossary.code_text(found, terminal())
    text = glossary.entry_text(found, terminal())
    message = glossary.find_message(name)
    if message is not None:
        text += f"\n\nAs a message: planner explain {message.code}, or planner doctor --error FILE"
    return asdict(found), text


@click.command()
@click.argument("name")
@click.option("--revision", help="Branch, tag or commit on the Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the contract's JSON.")
def model(name: str, revision: str | None, *, as_json: bool) -> None:
    """Show the parameters and parts of the model NAME."""
    from planner import answers
    from planner.report.catalog import model_text
    from planner.request.model import load_model

    described, notes = load_model(f"{name}@{revision}" if revision else name, allow_paths=True)
    say(notes)
    if as_json:
        click.echo(json.dumps(answers.answer_model(described), indent=2))
    else:
        click.echo(model_text(described, terminal()), color=color())


@click.command()
@click.option("--source", help="Only the runs of this source, and what they are.")
@click.option("--worst", default=0, type=click.IntRange(0, 10_000), help="Also list the N worst.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def accuracy(source: str | None, worst: int, *, as_json: bool) -> None:
    """Predict every published run again, and say how far off that is."""
    from planner.accuracy import predict as measured
    from planner.accuracy.accuracy_text import accuracy_answer, accuracy_text, source_text
    from planner.answers import SCHEMA_VERSION
    from planner.catalog.published_runs import run_source, source_names

    sources = [run_source(name) for name in ([source] if source else source_names())]
    results = {each.name: measured.predict(each) for each in sources}
    figures = [measured.summarize(each, results[each.name]) for each in sources]
    listed = {name: measured.worst(found, worst) for name, found in results.items() if worst}
    if as_json:
        answer = {"schema_version": SCHEMA_VERSION, "sources": accuracy_answer(figures, listed)}
        click.echo(json.dumps(answer, indent=2))
    else:
        if source:
            click.echo(source_text(sources[0], terminal()) + "\n", color=color())
        click.echo(accuracy_text(figures, listed, bold), color=color())
