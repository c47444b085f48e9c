"""Models -> pages of the catalogue: parameters by part, memory by method, what it fits on."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from urllib.parse import quote, urlencode

from planner import answers
from planner.catalog import records
from planner.core.errors import PlannerError
from planner.core.units import format_bytes, format_count, format_flops, format_percent
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.strategy import Layout, Recompute
from planner.memory.ledger import estimate_memory
from planner.request.model import load_model
from planner.request.schema import parse_request, resolve
from web.sheet import Cell, Sheet, SheetTable, facts, number

_METHODS = {"full": "all weights", "lora": "LoRA", "qlora": "QLoRA"}
_CARDS = ("rtx-4090", "l40s", "a100-sxm-80gb", "h200-sxm", "b200-sxm")
_GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""That are tried, eight of them a node."""
_SHOWN_TERMS = ("parameters", "gradients", "optimizer_states")
_ROOM = 0.95
"""Of what a process can take of a card: what is left is room for doubt."""


@cache
def models_sheet() -> Sheet:
    """Return the models that need no network, by who made them."""
    known = [load_model(name, allow_paths=False)[0] for name in records.model_ids()]
    makers = sorted({model.name.partition("/")[0] for model in known}, key=str.casefold)
    return Sheet(
        title="Models",
        json="/models.json",
        lead="Any public model of the Hub can be planned; these need no network.",
        finds=tuple(model.name for model in known),
        tables=tuple(
            _made_by(maker, [model for model in known if model.name.startswith(f"{maker}/")])
            for maker in makers
        ),
    )


def _made_by(maker: str, models: Sequence[Model]) -> SheetTable:
    models = sorted(models, key=lambda model: model.parameters)
    sizes = dict.fromkeys(format_count(models[each].parameters) for each in (0, -1))
    return SheetTable(
        title=maker,
        aside=f"{len(models)} model{'s'[: len(models) > 1]}, {' to '.join(sizes)}",
        headings=("Model", "Architecture", "Parameters", "Active for a token", "Positions"),
        rows=tuple(
            (
                Cell(text=model.name.partition("/")[2], href=f"/models/{model.name}"),
                Cell(text=model.model_type),
                number(format_count(model.parameters)),
                number(format_count(model.active_parameters)),
                number(f"{model.max_position_embeddings:,}"),
            )
            for model in models
        ),
        details=("Architecture", "Active for a token", "Positions"),
    )


def model_sheet(name: str) -> Sheet:
    """Return a model's parts, what training takes of memory by method, and which GPUs hold it.

    Raises:
        PlannerError: the model cannot be found, or not be read.
    """
    model, notes = load_model(name, allow_paths=False)
    active = model.active_parameters
    length = model.max_position_embeddings
    return Sheet(
        title=model.name,
        json=f"/models/{quote(model.name)}.json",
        above=(Cell(text="Models", href="/models"),),
        facts=facts(
            [
                ("Parameters", f"{model.parameters:,}"),
                ("of them, active for a token", f"{active:,}" if active < model.parameters else ""),
                ("Architecture", model.model_type),
                ("Blocks", f"{model.num_blocks:,}"),
                ("Hidden size", f"{model.hidden_size:,}"),
                ("Vocabulary", f"{model.vocab_size:,}" if model.vocab_size else ""),
                ("Positions", f"{length:,}"),
                (
                    "Forward, a token",
                    f"{format_flops(model.flops_per_token(length))} at {length:,} tokens",
                ),
            ]
        ),
        tables=(_parts(model), *_by_method(name)),
        notes=notes,
        actions=(Cell(text="Plan its training", href="/?" + urlencode({"model": name})),),
    )


def model_as_json(name: str) -> bytes:
    """Return what REST answers of a model, with the tables of its page.

    Raises:
        PlannerError: the model cannot be found, or not be read.
    """
    model, notes = load_model(name, allow_paths=False)
    jobs = {method: _job(name, method) for method in _METHODS}
    answer = {
        **answers.answer_model(model),
        "notes": list(notes),
        "whole_on_one_gpu": {
            method: {
                "sequence_length": job.recipe.sequence_length,
                **{f"{part}_bytes": round(held) for part, held in _held(job).items()},
            }
            for method, job in jobs.items()
            if job is not None
        },
        "fewest_gpus": {
            card: {method: _fewest(job, card) for method, job in jobs.items() if job is not None}
            for card in _CARDS
        },
    }
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")


def _parts(model: Model) -> SheetTable:
    rows = tuple(
        (
            Cell(text=part.name),
            number(f"{part.count:,}"),
            number(f"{part.parameters:,}"),
            number(format_percent(part.count * part.parameters / model.parameters)),
        )
        for part in model.parts
    )
    return SheetTable(
        title="Parameters by part", headings=("Part", "Count", "Each", "Of all"), rows=rows
    )


def _by_method(name: str) -> tuple[SheetTable, ...]:
    jobs = {method: _job(name, method) for method in _METHODS}
    known = {method: job for method, job in jobs.items() if job is not None}
    if not known:
        return ()
    job = next(iter(known.values()))
    sequence = f"sequence of {job.recipe.sequence_length:,} tokens"
    sample = "image" if job.model.reads_images else sequence
    whole = f"One {sample} at a time, every block recomputed, AdamW; at the peak of a step, which may come before there are gradients."
    held = tuple(
        (
            Cell(text=card, href=f"/gpus/{card}"),
            *(number(_fewest_shown(job, card)) for job in known.values()),
        )
        for card in _CARDS
    )
    return (
        SheetTable(
            title="Memory by method, whole on one GPU",
            headings=("Method", "Weights", "Gradients", "Optimizer", "Rest", "In all"),
            rows=tuple(_memory_row(_METHODS[method], job) for method, job in known.items()),
            note=whole,
        ),
        SheetTable(
            title="Fewest GPUs that hold it",
            headings=("Card", *(_METHODS[method] for method in known)),
            rows=held,
            note="The same, sharded by ZeRO-3 over 1, 2, 4 ... GPUs; a plan may find a smaller layout.",
        ),
    )


def _job(name: str, method: str) -> Job | None:
    """Return the job of a method; None where it is not estimated for the model."""
    body = {"model": name, "recipe": {"method": method}, "cluster": {"gpu": _CARDS[2]}}
    try:
        return resolve(parse_request(body), allow_paths=False).job
    except PlannerError:
        return None


def _memory_row(label: str, job: Job) -> tuple[Cell, ...]:
    figures = _held(job).values()
    return (Cell(text=label), *(number(format_bytes(each) if each else "none") for each in figures))


def _held(job: Job) -> dict[str, float]:
    memory = estimate_memory(job, _layout(1))
    amounts = {term.name: float(term.amount) for term in memory.terms}
    shown = {term: amounts.get(term, 0.0) for term in _SHOWN_TERMS}
    in_all = float(memory.reserved_bytes)
    return {**shown, "rest": in_all - sum(shown.values()), "reserved": in_all}


def _layout(gpus: int) -> Layout:
    return Layout(
        data_parallel_shard_size=gpus,
        zero_stage=3 if gpus > 1 else 0,
        recompute=Recompute.FULL,
    )


def _fewest_shown(job: Job, card: str) -> str:
    return f"{_fewest(job, card) or f'more than {_GPUS[-1]}'}"


def _fewest(job: Job, card: str) -> int | None:
    """Return the fewest GPUs of those that are tried; None where none are enough."""
    on_card = replace(job, cluster=replace(job.cluster, gpu=records.gpu(card)))
    for gpus in _GPUS:
        per_node = min(gpus, 8)
        cluster = replace(on_card.cluster, gpus_per_node=per_node, nodes=gpus // per_node)
        sized = replace(on_card, cluster=cluster)
        held = float(estimate_memory(sized, _layout(gpus)).reserved_bytes)
        if held <= _ROOM * sized.usable_bytes:
            return gpus
    return None
