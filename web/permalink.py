"""Links to plans: short, stamped with the planner's version, or pinned to one layout."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import Markup

from planner import __version__
from planner.advice.plan import Plan
from planner.core.errors import InvalidInputError, NothingFitsError, PlannerError, Problem, WayOut
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import DATA_NAMES, FIELDS, Layout
from planner.hardware.mixed_gpus import is_list
from planner.report.launch import offer_words
from planner.report.values import ReportTable
from planner.report.ways_out import ways_out_table
from planner.request.schema import HOW_MANY
from planner.request.sections import StrategyRequest
from web.drawing import Scale, picture, shape
from web.form import BESIDE, Question, control_of, form_values, is_known, read_question
from web.packed import packed

_MOST_PARAMETERS = 100
_MEANT = re.compile(r"did you mean ([^?]+)\?")
_FLAG = re.compile(r" \(--[^)]*\)")
"""What a terminal would say in a remedy's place: its link says it here."""
OF_LAYOUT = {"strategy", *StrategyRequest.model_fields}
"""What the layout itself says in place of what was wished of it."""


def permalink(question: Question) -> str:
    """Return the link to keep: what was asked, and which planner answered."""
    return "/plan?" + urlencode({**packed(question.short), "planner": __version__})


def opening(question: Question, plan: Plan, layout: Layout, gpus: int | None = None) -> str:
    """Return the query string that opens one layout of a plan.

    Args:
        question: what was asked.
        plan: the answer.
        layout: of the plan's job, on as many GPUs as it has or on `gpus`.
        gpus: those of a node, or fewer, where the layout is on them alone.
    """
    job = plan.job
    of_another = {*OF_LAYOUT, "why"}
    asked = {name: text for name, text in packed(question.short).items() if name not in of_another}
    held = {**asked, **_taken(plan.job), **pins(layout)}
    if layout.context_parallel_size > 1:
        # Unsaid, it follows from the layout.
        held |= {"sequence_length": str(job.recipe.sequence_length)}
    if gpus or plan.options or plan.spare_gpus:
        held = {name: text for name, text in held.items() if name not in HOW_MANY}
        held |= _on(question, plan, gpus or job.cluster.world_size)
    return urlencode(held)


def _taken(job: Job) -> dict[str, str]:
    """Return what was decided where nobody said it: another layout alone may be faster in another stack."""
    recipe = job.recipe
    compiled = str(recipe.compile).lower()
    taken = {"framework": job.framework.name, "compile": compiled, "loss": recipe.loss}
    # A layout says the batch, of which neither job would be assumed.
    return {**taken, "job": recipe.job} if recipe.job else taken


def _on(question: Question, plan: Plan, gpus: int) -> dict[str, str]:
    """Return how many GPUs there are; some of a node's are wired as its others leave them."""
    cluster = plan.job.cluster
    per_node = min(gpus, cluster.gpus_per_node)
    if 1 < per_node < len(cluster.gpu_order):
        nodes = gpus // per_node
        is_part = nodes != question.request.cluster.nodes
        return {"max_gpus": str(gpus), **({"nodes": str(nodes)} if is_part else {})}
    machine = {"gpus_per_node": str(per_node), "nodes": str(gpus // per_node)}
    if is_list(question.values.get("gpu", "")):
        machine["gpu"] = cluster.gpu.name
    return machine


def pins(s: Layout) -> dict[str, str]:
    """Return the parameters that ask for this very layout.

    The family says which of the model's divisions there are, so sizes of 1 go unsaid, and with them
    what only a division has.
    """
    return pins_of(s.contract())


def pins_of(contract: Mapping[str, Any]) -> dict[str, str]:
    """Return what `pins` does of a layout as answers have it."""
    said = {name: contract[name] for name in FIELDS if contract[name] not in (None, [])}
    pinned = {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in said.items()
    }
    used = [dimension for dimension in DIMENSIONS if contract[dimension.field] > 1]
    stage = DATA_NAMES[int(pinned.pop("zero_stage"))]
    for dimension in DIMENSIONS:
        if dimension not in used:
            del pinned[dimension.field]
    pinned["sequence_parallel"] = pinned["sequence_parallel"].lower()
    for field in _only_with(contract):
        pinned.pop(field, None)
    return {"strategy": "+".join([*(each.short_name for each in used), stage]), **pinned}


def _only_with(contract: Mapping[str, Any]) -> tuple[str, ...]:
    chunks = (
        ("pipeline_schedule", "virtual_pipeline_size")
        if contract["pipeline_parallel_size"] == 1
        else ()
    )
    tokens = ("sequence_parallel",) if contract["tensor_parallel_size"] == 1 else ()
    return (
        *chunks,
        *tokens,
        *(() if contract["synchronize_every"] > 1 else ("synchronize_every",)),
    )


def offer_links(question: Question, plan: Plan) -> list[tuple[str, str, str, bool]]:
    """Return what there is in place of a plan, or beside it: its flags, in words, as a link, and whether beside."""
    links = []
    for offer in plan.offers:
        dropped = OF_LAYOUT if offer.dropped else ()
        said = {name: text for name, text in question.short.items() if name not in dropped}
        changed = {control_of(name): str(value) for name, value in offer.changes.items()}
        named = ", ".join(str(value) for value in offer.changes.values())
        # What is offered was planned in a stack of its own.
        taken = {} if "framework" in changed else _taken(offer.job)
        taken.pop("job", None)
        href = "/plan?" + urlencode(packed({**said, **taken, **changed}))
        links.append((named, offer_words(plan, offer), href, bool(offer.reason)))
    return links


def remedy_links(
    query: Iterable[tuple[str, str]], error: PlannerError
) -> tuple[tuple[str, str], ...]:
    """Return what would make a job fit, each with the link to the same question with it."""
    if not isinstance(error, NothingFitsError):
        return ()
    said = _of_form(query)
    return tuple(
        (_FLAG.sub("", each.sentence), _link(said, each.field, each.value))
        for each in error.remedies
    )


def ways_out(
    query: Iterable[tuple[str, str]], error: PlannerError
) -> tuple[ReportTable, tuple[str, ...], tuple[Markup, ...]] | None:
    """Return what was tried where nothing fits, with each row's link, "" for none, and bar; None where nothing was."""
    if not isinstance(error, NothingFitsError) or not error.ways_out:
        return None
    said = _of_form(query)
    links = (_link(said, each.field, each.value) if each.fits else "" for each in error.ways_out)
    most = max(max(each.reserved_bytes, each.usable_bytes) for each in error.ways_out)
    scale = Scale(most=max(1, most))
    bars = (_bar_of(each, scale) for each in error.ways_out)
    return ways_out_table(error.ways_out, has_flags=False), tuple(links), tuple(bars)


def _bar_of(way: WayOut, scale: Scale) -> Markup:
    """Return the memory that each GPU would need, in the colour of what fits or of what does not, and what it has."""
    css, limit = "part-total" if way.fits else "part-c", scale.percent(way.usable_bytes)
    needed = shape("rect", css=css, width=scale.percent(way.reserved_bytes))
    return picture("bar", "", 10, needed, shape("line", css="limit", x1=limit, x2=limit, y2=10))


def _of_form(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, text in form_values(query).items() if name not in BESIDE}


def without_unknown(query: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the link to the same question without what no form has, as a link of another version may say."""
    said = form_values(query)
    known = {name: text for name, text in said.items() if is_known(name)}
    left = len(said) - len(known)
    if not left or "model" not in known:
        return ()
    return ((f"plan without {'it' if left == 1 else 'them'}", "/plan?" + urlencode(packed(known))),)


def renamed(
    query: Iterable[tuple[str, str]], problems: Iterable[Problem]
) -> tuple[tuple[str, str], ...]:
    """Return the link to the same question with each unknown field under the name that was perhaps meant."""
    said, names = form_values(query), {}
    for each in problems:
        if each.field in said and not is_known(each.field) and (meant := _MEANT.match(each.hint)):
            names[each.field] = meant[1].split(" or ")[0]
    asked = {names.get(name, name): text for name, text in said.items()}
    if not names or "model" not in asked or len(asked) < len(said):
        return ()
    if not all(map(is_known, asked)):
        return ()
    as_named = "/plan?" + urlencode(packed(asked))
    return ((f"plan it with {', '.join(names.values())}", as_named),)


def meant_pages(path: str, problems: Iterable[Problem]) -> tuple[tuple[str, str], ...]:
    """Return the pages of a list whose names were perhaps meant, where a page of it has none of that name."""
    hints = [each.hint for each in problems]
    found = _MEANT.match(hints[0]) if len(hints) == 1 else None
    kind = path.split("/")[1]
    names = found[1].split(" or ") if found else ()
    return tuple((f"see {name}", f"/{kind}/{quote(name)}") for name in names)


def meant_links(
    query: Iterable[tuple[str, str]], problems: Iterable[Problem]
) -> tuple[tuple[str, str], ...]:
    """Return the links to the same question with each name that was perhaps meant; none where more is wrong."""
    wrong = list(problems)
    found = _MEANT.match(wrong[0].hint) if len(wrong) == 1 else None
    said = _of_form(query)
    if found is None or control_of(wrong[0].field) not in said:
        return ()
    return tuple(
        (f"plan it with {name}", _link(said, wrong[0].field, name))
        for name in found[1].split(" or ")
    )


def _link(said: Mapping[str, str], field: str, value: str) -> str:
    """Return the link to a question with another value; one without the strategy has nothing of the layout."""
    changed = {**said, control_of(field): value}
    if field == "strategy":
        changed = {name: text for name, text in said.items() if name not in OF_LAYOUT}
    return "/plan?" + urlencode(packed(changed))


def other_question(values: Mapping[str, str], text: str) -> Question:
    """Return the question that a text asks: whole, or what it says otherwise than these values.

    Raises:
        PlannerError: it cannot be read.
    """
    try:
        query = _query_of(text)
        said = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS))
    except ValueError:
        raise InvalidInputError(
            f"more than {_MOST_PARAMETERS} parameters in one link", field="vs"
        ) from None
    whole = said if "model" in said else {**values, **said}
    return read_question(whole.items())


def _query_of(text: str) -> str:
    before, mark, behind = text.strip().partition("?")
    return behind.partition("#")[0] if mark and "=" not in before else text


def otherwise(values: Mapping[str, str], than: Mapping[str, str]) -> str:
    """Return what `values` say otherwise than others, as `other_question` reads it."""
    names = dict.fromkeys((*values, *than))
    return urlencode(
        {name: values.get(name, "") for name in names if values.get(name) != than.get(name)}
    )
