"""Pages of the catalogue that take a while. Nothing here knows the server."""

import json
from collections.abc import Callable, Mapping

from planner.hardware.topology import parse_topology
from planner.request.cluster import ClusterRequest, resolve_cluster
from web.accuracy_sheets import accuracy_sheet, source_sheet
from web.model_sheets import model_sheet, models_sheet
from web.pages import render
from web.sheet import Sheet
from web.wiring import wiring

_LISTS: Mapping[str, Callable[[], Sheet]] = {"models": models_sheet, "accuracy": accuracy_sheet}
_RECORDS: Mapping[str, Callable[[str], Sheet]] = {"models": model_sheet, "accuracy": source_sheet}


def draw_list(kind: str) -> str:
    """Return the page that lists all of a kind."""
    return render("sheet.html", sheet=_LISTS[kind]())


def draw_sheet(kind: str, name: str) -> str:
    """Return the page of one of a kind."""
    return render("sheet.html", sheet=_RECORDS[kind](name))


def draw_topology(text: str) -> str:
    """Return the page of a node's wiring, or where to paste it."""
    if not text.strip():
        return render("topology.html", text="", node=None)
    pasted = text.replace("\r\n", "\n").strip("\n")
    cluster = resolve_cluster(ClusterRequest(topology=pasted)).cluster
    return render("topology.html", text=pasted, node=wiring(cluster))


def topology_as_json(text: str) -> bytes:
    """Return what POST /v1/topology answers."""
    answer = parse_topology(text.replace("\r\n", "\n")).to_wire()
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")
