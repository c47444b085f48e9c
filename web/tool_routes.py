"""The pages that take what a user has, a run or a file, and say what is wrong with it."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from planner.core.errors import InvalidInputError, PlannerError
from web.batch_page import BATCH, worked_out
from web.check_page import CHECK, checked
from web.doctor_page import DOCTOR, diagnosed
from web.pages import render
from web.race_page import RACE, raced
from web.sent import read_sent, said_by
from web.tool import Told, Tool

router = APIRouter(include_in_schema=False)

_TOOLS: Mapping[str, tuple[Tool, Callable[[Mapping[str, str]], Told | None]]] = {
    DOCTOR.path: (DOCTOR, diagnosed),
    BATCH.path: (BATCH, worked_out),
    CHECK.path: (CHECK, checked),
    RACE.path: (RACE, raced),
}
PATHS = tuple(_TOOLS)


def draw_tool(path: str, said: tuple[tuple[str, str], ...]) -> str:
    """Return a page with its answer to what was filled in.

    Raises:
        PlannerError: it cannot be read, or a form was sent empty.
    """
    tool, answer = _TOOLS[path]
    values = tool.read(said)
    if said and not values:
        raise InvalidInputError("nothing was filled in", field=said[0][0])
    return _page(tool, values=values, told=answer(values))


def error_page(request: Request, error: PlannerError, title: str) -> str:
    """Return the page with what was filled in, and what is wrong with it."""
    tool, _ = _TOOLS[request.url.path]
    problems = tool.problems(error)
    return _page(tool, values=dict(said_by(request)), problems=problems, heading=title)


def _page(tool: Tool, **context: Any) -> str:
    empty = {"told": None, "problems": (), "heading": ""}
    return render("tool.html", tool=tool, **{**empty, **context})


def _add(path: str, *, has_texts: bool) -> None:
    @router.get(path, name=f"{path}_page")
    async def page(request: Request) -> Response:
        said = tuple(request.query_params.multi_items())
        return HTMLResponse(await request.app.state.work.run(request, draw_tool, path, said))

    if has_texts:

        @router.post(path, name=f"{path}_sent")
        async def answer(request: Request) -> Response:
            said = await read_sent(request)
            return HTMLResponse(await request.app.state.work.run(request, draw_tool, path, said))


for _path, (_tool, _) in _TOOLS.items():
    _add(_path, has_texts=any(form.method == "post" for form in _tool.forms))
