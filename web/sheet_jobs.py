"""Pages of the catalogue that take a while. Nothing here knows the server."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from planner.hardware.topology import parse_topology
from planner.request.cluster import resolve_cluster
from planner.request.sections import ClusterRequest
from web.accuracy_sheets import accuracy_sheet, source_sheet
from web.model_sheets import model_sheet, models_sheet
from web.node_picture import wiring
from web.pages import render
from web.sheet import Sheet

_LISTS: Mapping[str, Callable[[], Sheet]] = {"models": models_sheet, "accuracy": accuracy_sheet}
_RECORDS: Mapping[str, Callable[[str], Sheet]] = {"models": model_sheet, "accuracy": source_sheet}


def draw_list(kind: str) -> str:
    """Return the page that lists all of a kind."""
    return render("sheet.html", sheet=_LISTS[kind]())


def draw_sheet(kind: str, name: str) -> str:
    """Return the page of one of a kind."""
    return render("sheet.html", sheet=_RECORDS[kind](name))


def draw_topology(text: str, gpu: str) -> str:
    """Return the page of a node's wiring, or where to paste it."""
    pasted = text.replace("\r\n", "\n").strip("\n")
    if not pasted.strip():
        return topology_form("", gpu)
    cluster = resolve_cluster(ClusterRequest(topology=pasted, gpu=gpu.strip()[:300] or None))
    return render(
        "topology.html", text=pasted, gpu=gpu.strip(), node=wiring(cluster.cluster), problems=()
    )


def topology_form(text: str, gpu: str, **problems: Any) -> str:
    """Return where to paste a topology, with what was pasted and what is wrong with it."""
    return render("topology.html", **{"problems": (), **problems}, text=text, gpu=gpu, node=None)


def topology_as_json(text: str) -> bytes:
    """Return what POST /v1/topology answers."""
    answer = parse_topology(text.replace("\r\n", "\n")).to_wire()
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")
