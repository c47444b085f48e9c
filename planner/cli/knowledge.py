"""Commands that look things up: rules and terms, a model, published runs."""

import json
from dataclasses import asdict

import click

from planner.cli.output import bold, color, say, terminal


@click.command()
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print what /v1/rules and /v1/terms answer.")
def explain(name: tuple[str, ...], *, as_json: bool) -> None:
    """Explain a code, a term, a strategy or an error message.

    A code is that of a rule or a finding; its three letters list those that begin with them.
    Without a NAME, all of them are listed.
    """
    from planner.explain import glossary
    from planner.explain.glossary import code_text, entry_text, list_text

    if several := glossary.listed(" ".join(name)):
        known, listed, terms = several
        answer = {
            "rules": [asdict(each) for each in known],
            "messages": [asdict(each) for each in listed],
            "terms": [asdict(each) for each in terms],
        }
        text = list_text(known, listed, terms, terminal())
    else:
        found = glossary.explain(" ".join(name))
        answer = asdict(found)
        if isinstance(found, glossary.Entry):
            text = entry_text(found, terminal())
            said = glossary.find_message(" ".join(name))
            if said is not None:
                text += (
                    f"\n\nAs a message: planner explain {said.code}, or planner doctor --error FILE"
                )
        else:
            text = code_text(found, terminal())
    click.echo(json.dumps(answer, indent=2) if as_json else text, color=color())


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
