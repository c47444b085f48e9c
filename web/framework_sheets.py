"""Frameworks, their releases and what they can do -> pages of the catalogue."""

from urllib.parse import urlencode

from planner.catalog import records
from planner.catalog.packages import packages
from planner.catalog.releases import Release, releases_of
from planner.domain.framework import Framework
from web.sheet import Cell, Sheet, SheetTable, facts

_YES = {True: "yes", False: "no"}


def frameworks_sheet() -> Sheet:
    """Return every framework with the release that was looked at, and the packages that scripts import."""
    known = [records.framework(name) for name in records.framework_names()]
    rows = tuple(
        (
            Cell(text=each.name, href=f"/frameworks/{each.name}"),
            Cell(text=each.capabilities.version),
            Cell(text=each.capabilities.date),
            Cell(text=_divides(each)),
            Cell(text=", ".join(release.name for release in releases_of(each.name))),
        )
        for each in known
    )
    imported = tuple(
        (Cell(text=name), Cell(text=releases.oldest), Cell(text=releases.newest))
        for name, releases in packages().items()
    )
    return Sheet(
        title="Frameworks",
        json="/frameworks.json",
        lead="What each can run was read in the release named here.",
        tables=(
            SheetTable(
                title="",
                headings=("Framework", "Release", "Looked at", "Divides", "Other releases"),
                rows=rows,
            ),
            SheetTable(
                title="What emitted scripts import",
                headings=("Package", "Oldest that ran them", "Newest that ran them"),
                rows=imported,
            ),
        ),
    )


def _divides(framework: Framework) -> str:
    can = framework.capabilities
    named = {
        "tensors": can.tensor_parallel,
        "layers": bool(can.pipeline_schedules),
        "sequences": can.context_parallel,
        "experts": can.expert_parallel,
    }
    return ", ".join(name for name, is_able in named.items() if is_able) or "data alone"


def _versions(release: Release) -> str:
    spans = ((name, " to ".join(dict.fromkeys(span))) for name, span in release.versions.items())
    return ", ".join(f"{name} {span}".strip() for name, span in spans)


def framework_sheet(name: str) -> Sheet:
    """Return what a framework can do, and its releases with facts of their own."""
    framework = records.framework(name)
    can = framework.capabilities
    releases = tuple(
        (
            Cell(text=each.name),
            Cell(text=_versions(each)),
            Cell(text=" to ".join(dict.fromkeys((each.dates[0], each.dates[-1])))),
            Cell(text=each.source),
        )
        for each in releases_of(framework.name)
    )
    headings = ("Release", "Versions", "Taken for", "Source")
    return Sheet(
        title=framework.name,
        json=f"/frameworks/{framework.name}.json",
        above=(Cell(text="Frameworks", href="/frameworks"),),
        facts=facts(
            [
                ("Release", f"{can.version} ({can.date})"),
                ("Tensor parallel", _YES[can.tensor_parallel]),
                ("Sequence parallel", _YES[can.sequence_parallel]),
                ("Pipeline schedules", ", ".join(can.pipeline_schedules) or "none"),
                ("Several stages a rank", _YES[can.virtual_stages]),
                ("Context parallel", _YES[can.context_parallel]),
                ("Expert parallel", _YES[can.expert_parallel]),
                ("ZeRO stages", ", ".join(map(str, framework.zero_stages))),
                ("ZeRO with pipelines", f"up to stage {can.zero_with_pipeline}"),
                ("Hybrid sharding", _YES[can.hybrid_shard]),
                ("Local SGD", _YES[can.local_sgd]),
                ("Recompute", ", ".join(can.recompute)),
                ("Losses", ", ".join(can.losses)),
                ("Precisions", ", ".join(framework.precisions)),
                ("Optimizers", ", ".join(framework.optimizers)),
                ("Changes the model's code for", ", ".join(can.changes_model) or "nothing"),
                ("Source", can.source),
            ]
        ),
        tables=(
            (
                SheetTable(
                    title="Releases with facts of their own", headings=headings, rows=releases
                ),
            )
            if releases
            else ()
        ),
        actions=(Cell(text="Plan with it", href="/?" + urlencode({"framework": framework.name})),),
    )
