"""The pages, and the plan as JSON and as a zip. Errors are raised; the app they are mounted in shows them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from planner.catalog.records import read
from planner.core.errors import InvalidInputError, PlannerError, Problem, problems_of
from planner.explain import glossary
from web import sheet_routes, tool_routes
from web.controls import EXAMPLES, fieldsets, labels
from web.form import form_values
from web.jobs import (
    comparison_as_json,
    draw_comparison,
    draw_docs,
    draw_estimate,
    draw_plan,
    plan_as_json,
    zip_plan,
)
from web.packed import LONG, packed
from web.pages import STATIC, render
from web.permalink import (
    meant_links,
    meant_pages,
    remedy_links,
    renamed,
    ways_out,
    without_unknown,
)
from web.sent import read_sent, said_by
from web.sheet_jobs import topology_form
from web.so_far import so_far
from web.what_if import as_chosen

router = APIRouter(include_in_schema=False)

ResultT = TypeVar("ResultT")

_FORM_PATHS = frozenset({"/", "/plan", "/plan.zip"})
"""Where an error belongs above the form that caused it."""
_LISTS = ("/rules", "/terms", *sheet_routes.PATHS)
_PAGE_PATHS = frozenset(
    {*_FORM_PATHS, *_LISTS, *tool_routes.PATHS, "/compare", "/docs", "/estimate"}
)
_LONGEST = 12_000
"""Characters of a pasted text in a link, packed: of an address, proxies read that many."""
_LONGEST_FIELD = 1_000
"""Characters of any other field."""

_group = attrgetter("group")


@router.get("/")
def form_page(request: Request) -> HTMLResponse:
    """Show the form, filled in from the query string."""
    return HTMLResponse(
        render(
            "form.html",
            **_form(request),
            title="",
            problems=(),
            ways_out=None,
            remedies=(),
            so_far=None,
        )
    )


@router.post("/plan")
async def ask(request: Request) -> RedirectResponse:
    """Lead a filled-in form to its plan, under the shortest address."""
    sent = await read_sent(request)
    if len([text for name, text in sent if name == "model" and text.strip()]) > 1:
        hint = "empty one of them; here the name is left out"
        raise InvalidInputError("model: a name and a config.json", hint=hint, field="model")
    values = packed(form_values(as_chosen(sent).items()))
    for name, text in values.items():
        _check_length(name, text)
    return RedirectResponse("/plan?" + urlencode(values), status_code=HTTPStatus.SEE_OTHER)


def _check_length(name: str, text: str) -> None:
    """Refuse what makes an address longer than browsers and proxies take.

    Raises:
        InvalidInputError: a pasted text is too long, packed, or another field.
    """
    if name in LONG and len(text) > _LONGEST:
        said = f"{name}: {len(text):,} characters, packed, are too many for a link"
        hint = "plan in a terminal, or over HTTP, which take it whole"
        raise InvalidInputError(said, hint=hint, field=name)
    if name not in LONG and len(name) + len(text) > _LONGEST_FIELD:
        field = name[:80]
        said = f"{field}: {len(text):,} characters are too many"
        raise InvalidInputError(said, hint=f"at most {_LONGEST_FIELD:,}", field=field)


@router.get("/plan")
async def plan_page(request: Request) -> Response:
    """Show the plan that the query string asks for, under the address that says no more."""
    said = request.query_params.multi_items()
    values = form_values(said)
    if 0 < len(values) < len(said):
        return RedirectResponse("/plan?" + urlencode(packed(values)))
    return HTMLResponse(await _planned(request, draw_plan, str(request.base_url)))


@router.get("/estimate")
async def estimate_part(request: Request) -> HTMLResponse:
    """Return the first part of a plan's page with its choices changed and its layout held: a script asks for it."""
    return HTMLResponse(await _planned(request, draw_estimate))


@router.get("/plan.json")
async def plan_json(request: Request) -> Response:
    """Return what POST /v1/suggest answers to the same question."""
    return Response(await _planned(request, plan_as_json), media_type="application/json")


@router.get("/plan.zip")
async def plan_zip(request: Request) -> Response:
    """Return the plan's files; the same question gives the same bytes."""
    archive = await _planned(request, zip_plan)
    headers = {"Content-Disposition": 'attachment; filename="plan.zip"'}
    return Response(archive, media_type="application/zip", headers=headers)


@router.get("/compare")
async def compare_page(request: Request) -> HTMLResponse:
    """Show the plans of two questions side by side, or ask for them."""
    if not request.query_params:
        return HTMLResponse(render("compare_ask.html"))
    return HTMLResponse(await _planned(request, draw_comparison))


@router.get("/compare.json")
async def compare_json(request: Request) -> Response:
    """Return the rows of two plans side by side."""
    return Response(await _planned(request, comparison_as_json), media_type="application/json")


@router.get("/rules")
def rules_page() -> HTMLResponse:
    """List the rules, and what can be found in files, timings, messages, a topology or on a machine."""
    return HTMLResponse(render("rules.html", kinds=_kinds()))


@router.get("/rules/{code}")
def rule_page(code: str) -> HTMLResponse:
    """Show what a rule, or a finding, says and why."""
    rule = glossary.find_code(code)
    kind = rule.name.replace("-", " ")
    if rule.severity != "finding":
        kind += f", {rule.severity}"
    sections = glossary.paragraphs(rule.text)
    return HTMLResponse(render("rule.html", code=rule.code, kind=kind, sections=sections))


@router.get("/terms")
def terms_page() -> HTMLResponse:
    """List the terms and strategies by subject."""
    groups = [(title, list(entries)) for title, entries in groupby(glossary.entries(), _group)]
    return HTMLResponse(render("terms.html", groups=groups))


@router.get("/terms/{name}")
def term_page(name: str) -> HTMLResponse:
    """Explain a term or strategy, and what each framework calls it."""
    entry = glossary.find_term(name)
    titles = {listed.name: listed.title for listed in glossary.entries()}
    see = [
        (f"/terms/{related}", titles[related])
        if related in titles
        else (f"/rules/{related}", related)
        for related in entry.see
    ]
    sections = glossary.paragraphs(entry.text)
    return HTMLResponse(render("term.html", entry=entry, sections=sections, see=see))


@router.get("/docs")
async def docs_page(request: Request) -> HTMLResponse:
    """Show the REST door's routes, from its own OpenAPI description."""
    description = (await request.app.state.described()).body
    page = await request.app.state.work.run(request, draw_docs, description, str(request.base_url))
    return HTMLResponse(page)


def error_page(request: Request, error: PlannerError, title: str) -> str | None:
    """Return the page for an error, or None for a request that wants JSON.

    Where the form caused it, that is the form with what was typed.
    """
    if not _wants_page(request):
        return None
    if request.url.path in tool_routes.PATHS:
        return tool_routes.error_page(request, error, title)
    is_form, said = request.url.path in _FORM_PATHS, said_by(request)
    table, problems = ways_out(said, error), problems_of(error)
    remedies = () if table else remedy_links(said, error)
    if remedies or table:
        problems = tuple(replace(problem, hint="") for problem in problems)
    context: dict[str, Any] = {
        "title": title,
        "problems": problems,
        "ways_out": table,
        "remedies": remedies,
        "labels": {},
    }
    if is_form and not table and not remedies:
        context["remedies"] = _mended(said, problems)
    elif _is_of_a_list(request.url.path):
        context["remedies"] = meant_pages(request.url.path, problems)
    if request.url.path == "/topology":
        sent = request.query_params
        return topology_form(
            sent.get("topology", ""), sent.get("gpu", ""), **context | {"labels": labels()}
        )
    if not is_form:
        return render("error.html", **context)
    best = so_far(said, error)
    return render("form.html", **{**context, **_form(request), "so_far": best})


def _mended(
    said: Sequence[tuple[str, str]], problems: Sequence[Problem]
) -> tuple[tuple[str, str], ...]:
    unknown = (*renamed(said, problems), *without_unknown(said))
    return unknown or meant_links(said, problems)


def mount(app: FastAPI) -> None:
    """Add the pages, and what they are drawn with, to an app."""
    app.include_router(sheet_routes.router)
    app.include_router(tool_routes.router)
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))


def _wants_page(request: Request) -> bool:
    path = request.url.path
    if path.startswith("/v1/") or path.endswith(".json"):
        return False
    is_page = path in _PAGE_PATHS - {"/plan.zip"} or _is_of_a_list(path)
    return is_page or "text/html" in request.headers.get("accept", "")


def _is_of_a_list(path: str) -> bool:
    return path.startswith(tuple(f"{each}/" for each in _LISTS))


async def _planned(request: Request, job: Callable[..., ResultT], *arguments: str) -> ResultT:
    query = tuple(request.query_params.multi_items())
    answer: ResultT = await request.app.state.work.run(request, job, query, *arguments)
    return answer


def _form(request: Request) -> Mapping[str, Any]:
    values = form_values(said_by(request))
    return {
        "groups": fieldsets(are_folded=False),
        "more": fieldsets(are_folded=True),
        "labels": labels(),
        "values": values,
        "examples": EXAMPLES,
    }


def _kinds() -> list[dict[str, Any]]:
    known = sorted((*glossary.codes(), *glossary.messages()), key=attrgetter("code"))
    return [
        {
            "prefix": prefix,
            "title": title,
            "codes": [each for each in known if each.code.startswith(prefix)],
        }
        for prefix, title in read("pages", "words")["codes"].items()
    ]
