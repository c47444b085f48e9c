"""Configurations of other tools -> a verdict: what they amount to, what is wrong, what would be better."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from planner import answers
from planner.advice.plan import Plan
from planner.catalog import records
from planner.catalog.configs import tool
from planner.catalog.model_names import model_called
from planner.configs.fixes import patch
from planner.configs.found import LAUNCH, MEGATRON, TRAINER, Found, Setup
from planner.configs.layout import (
    cluster_fields,
    links_left,
    num_nodes,
    recipe_fields,
    strategy_fields,
)
from planner.configs.meaning import (
    model_names,
    unread_file,
    world,
)
from planner.configs.megatron_sizes import model_config
from planner.configs.recognise import SUFFIXES, is_configuration, read_text, recognise
from planner.configs.rules import faults
from planner.core.errors import InvalidInputError, NothingFitsError, PlannerError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_percent, format_seconds
from planner.domain.cluster import Cluster
from planner.gate.beside import not_among, not_there, of_scripts
from planner.gate.documents import Document, OwnPlan
from planner.gate.estimated import left_out_of, why_not
from planner.gate.facts import Facts, one_line, read_facts
from planner.gate.limits import Check, Limit, judge
from planner.gate.verdict import CONFIGURATION, Verdict
from planner.request.cluster import resolve_cluster
from planner.request.model import load_model
from planner.request.schema import Request, parse_request

COMMAND = "command line"
"""What a command that was typed is called in place of a file."""
_OF_PLANS = frozenset({"lock_version", "chosen", "cluster", "recipe"})
_NOTABLY = 0.02
"""As a fraction: less is within what is rounded away."""


@frozen
class Asked:
    """What is known beside the files: the request's own words."""

    model: Any = None
    cluster: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    allow_paths: bool = True
    """Whether the model may be a file of this machine."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Where each file was said, to tell what cannot be read of it; FILE of one that is not here."""


def is_configuration_file(file: str) -> bool:
    """Return whether a file is another tool's, by its ending, or its keys where that is .json."""
    path = Path(file)
    suffix = path.suffix.lower()
    if file == "-" or suffix not in SUFFIXES:
        return False
    if suffix != ".json":
        return True
    try:
        if not path.is_file():
            return False
        data = json.loads(read_text(path, one_line(file)))
    except (PlannerError, OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and not data.keys() & _OF_PLANS and is_configuration(data)


def read_configuration(file: str) -> str:
    """Return the text of a file.

    Raises:
        InvalidInputError: it is none, or cannot be read.
    """
    path, name = Path(file), one_line(file)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise InvalidInputError(f"cannot read {name}: no such file", field="FILE")
    return read_text(path, name)


def judge_configurations(
    texts: Mapping[str, str], asked: Asked, limits: Sequence[Limit] = (), own: OwnPlan | None = None
) -> Verdict:
    """Return the verdict on the files of one run, read together; `own` is the plan that they were written with.

    Raises:
        PlannerError: one cannot be read, or the model or the cluster is not known.
    """
    found = tuple(_recognised(texts, asked.fields, own))
    texts = {one_line(file): text for file, text in texts.items()}
    setup = Setup(found=found, texts=texts, model_ranks=own.model_ranks if own else None)
    asked = replace(asked, cluster=_with_nodes(setup, asked.cluster))
    setup = replace(setup, gpu=_gpu(asked), cluster=_cluster(asked), model=_model(setup, asked))
    wrong = faults(setup)
    checks = [
        Check(
            code=rule.code,
            name=rule.name,
            level=fault.level or rule.severity,
            message=one_line(fault.message),
            hint=one_line(fault.advice),
            line=fault.at.line,
            file=fault.at.file,
        )
        for rule, fault in wrong
    ]
    checks += of_scripts(texts)
    is_of_plan = own is not None and not setup.of(MEGATRON)  # whose command says all of it
    estimated = _of_plan(own) if own and is_of_plan else _estimated(setup, asked)
    missing = not_there(setup, estimated.notes) if asked.allow_paths else ()
    notes = (*estimated.notes, *missing)
    if estimated.facts is not None:
        checks += judge(estimated.facts, limits)
    document = Document(
        file=", ".join(texts),
        first=next(iter(texts)),
        kind=CONFIGURATION,
        facts=estimated.facts,
        title=_tools(found),
    )
    edits = [fault.edit for _, fault in wrong if fault.edit is not None]
    return Verdict(document=document, checks=tuple(checks), notes=notes, patch=patch(texts, edits))


def _recognised(
    texts: Mapping[str, str], fields: Mapping[str, str], own: OwnPlan | None
) -> Iterator[Found]:
    """Yield what the files configure; an error is told where its file was said, and what judges the plan it is of."""
    for file, text in texts.items():
        try:
            yield from recognise(text, one_line(file))
        except InvalidInputError as error:
            error.field = fields.get(file, error.field)
            if own is not None:
                error.hint = f"planner check {one_line(shlex.quote(own.folder))} judges its plan"
            raise


def _tools(found: Sequence[Found]) -> str:
    names = {LAUNCH: "a launch", TRAINER: "TrainingArguments"}
    titles = (
        tool(each.tool).title if each.tool else names.get(each.kind, each.kind) for each in found
    )
    return ", ".join(dict.fromkeys(titles))


def _with_nodes(setup: Setup, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    nodes, ranks = num_nodes(setup), world(setup)
    if nodes is None or "nodes" in wanted or not _has_count(wanted):
        return wanted
    is_theirs = ranks == nodes * _resolved(wanted).gpus_per_node
    return {**wanted, "nodes": nodes} if is_theirs else wanted


def _has_count(wanted: Mapping[str, Any]) -> bool:
    is_list = ":" in str(wanted.get("gpu") or "")
    return is_list or any(wanted.get(name) for name in ("gpus_per_node", "instance", "topology"))


def _gpu(asked: Asked) -> Any:
    """Return the GPU that was named, or that is assumed for a cluster; None where none was."""
    return _resolved(asked.cluster).gpu if asked.cluster else None


def _cluster(asked: Asked) -> Any:
    """Return the cluster that was named; None of a name that does not say how many GPUs there are."""
    return _resolved(asked.cluster) if _has_count(asked.cluster) else None


def _resolved(wanted: Mapping[str, Any]) -> Cluster:
    request = parse_request({"model": "gpt2", "cluster": dict(wanted)})
    return resolve_cluster(request.cluster).cluster


def _name(setup: Setup, asked: Asked) -> Any:
    if asked.model is not None:
        return asked.model
    named = next((each.text for each in model_names(setup) if each.text), None)
    if named and records.model(named) is None:
        named = model_called(named) or named
    return named or model_config(setup)


def _model(setup: Setup, asked: Asked) -> Any:
    """Return the model; one that only the files name need not be known here."""
    name = _name(setup, asked)
    if name is None:
        return None
    if asked.model is None and not isinstance(name, dict) and not _is_shipped(name):
        return None
    request = parse_request({"model": name})
    return load_model(request.model, allow_paths=asked.allow_paths)[0]


def _is_shipped(name: Any) -> bool:
    """Return whether a model is in the catalogue: a file under review may send nobody to the network."""
    return isinstance(name, str) and records.model(name) is not None


@frozen
class _Estimated:
    """The layout's facts, and what to say of them."""

    facts: Facts | None = None
    notes: tuple[str, ...] = ()


def _of_plan(own: OwnPlan) -> _Estimated:
    """Return that these files alone do not say what runs: the scripts beside them do."""
    folder = one_line(shlex.quote(own.folder))
    return _Estimated(
        notes=(
            f"not estimated: what runs is in the scripts beside; `planner check {folder}` judges it",
        )
    )


def _estimated(setup: Setup, asked: Asked) -> _Estimated:
    """Return what the files amount to, or why that is not said."""
    why = why_not(setup) or (_no_model(setup, asked) if setup.model is None else "")
    if why:
        return _Estimated(notes=(why,))
    counted = {} if setup.cluster else cluster_fields(setup, asked.cluster.get("nodes"))
    cluster = links_left(setup) | counted | dict(asked.cluster)
    if setup.cluster is None and not counted:
        return _Estimated(notes=("not estimated: how many GPUs is not said (--gpus)",))
    unread = unread_file(setup)
    if unread is not None:
        return _Estimated(notes=(not_among(unread, may_look=asked.allow_paths),))
    payload = _payload(setup, asked, cluster)
    try:
        request = parse_request(payload)
        answer = answers.answer_estimate(request, allow_paths=asked.allow_paths)
    except PlannerError as error:
        return _Estimated(notes=(f"not estimated: {one_line(error.message)}",))
    facts = read_facts({**answer, **_job(request)})
    return _Estimated(
        facts=facts,
        notes=(
            _amounts_to(facts, answer, payload),
            *_assumed(setup, asked, facts, payload["strategy"]),
            *left_out_of(setup),
            *_instead(payload, facts, asked),
        ),
    )


def _assumed(
    setup: Setup, asked: Asked, facts: Facts, strategy: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what nobody said, and these numbers hang on."""
    if not any(asked.cluster.get(name) for name in ("gpu", "instance", "topology")):
        yield f"assumed: {facts.text('job.cluster.gpu')}, as no GPU is named (--gpu)"
    if not strategy.get("micro_batch_size") and facts.values["fits"] is not True:
        yield "it is the assumed micro-batch that does not fit; the files name none"
    if "inter_node" in links_left(setup) and "inter_node" not in asked.cluster:
        yield "NCCL_IB_DISABLE leaves Ethernet between the nodes: 100 Gbit/s of it are assumed"


def _no_model(setup: Setup, asked: Asked) -> str:
    name = _name(setup, asked)
    if name is None:
        return "not estimated: no model is named (--model, with --gpus and --gpu)"
    return f"not estimated: {one_line(str(name))} is not in the catalogue; --model {one_line(str(name))} looks it up"


def _payload(setup: Setup, asked: Asked, cluster: Mapping[str, Any]) -> dict[str, Any]:
    nodes = int(cluster.get("nodes", 1))
    gpus = setup.cluster.world_size if setup.cluster else nodes * int(cluster["gpus_per_node"])
    nodes = setup.cluster.nodes if setup.cluster else nodes
    return {
        "model": _name(setup, asked),
        "cluster": dict(cluster),
        "recipe": recipe_fields(setup) | dict(asked.recipe),
        "strategy": strategy_fields(setup, gpus, nodes),
    }


def _job(request: Request) -> dict[str, Any]:
    resolved = resolve_cluster(request.cluster).cluster
    return {
        "job": {
            "cluster": {
                "gpu": resolved.gpu.name,
                "world_size": resolved.world_size,
                "nodes": resolved.nodes,
            }
        }
    }


def _amounts_to(facts: Facts, answer: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    strategy, job = answer["strategy"], asked["recipe"].get("job")
    is_said = bool(asked["strategy"].get("micro_batch_size"))
    words = [
        *([f"{job} on pairs"] if job else []),
        facts.text("family"),
        f"micro-batch {strategy['micro_batch_size']}{'' if is_said else ' (assumed: nothing says it)'}",
        f"{strategy['gradient_accumulation_steps']} accumulated",
        _recompute(strategy),
    ]
    if strategy["offload"] != "none":
        words.append(f"offload {strategy['offload']}")
    step = f"{facts.text('time.step_seconds')} a step, {facts.text('tokens_per_second_per_gpu')} tokens/s per GPU"
    return f"trains with {', '.join(words)}: {step}"


def _recompute(strategy: Mapping[str, Any]) -> str:
    modules = ", ".join(strategy["recompute_modules"])
    return f"recompute {strategy['recompute']}{f' ({modules})' if modules else ''}"


def _instead(payload: Mapping[str, Any], facts: Facts, asked: Asked) -> tuple[str, ...]:
    strategy = payload["strategy"]
    batch = strategy.get("micro_batch_size"), strategy.get("gradient_accumulation_steps")
    recipe = payload["recipe"] | _global(payload, batch)
    request = {"model": payload["model"], "cluster": payload["cluster"], "recipe": recipe}
    try:
        plan = _suggested(request, strategy.get("offload", "none"), asked)
    except PlannerError as error:
        return (f"the planner finds nothing better: {one_line(error.message)}",)
    chosen = plan.chosen
    seconds, memory = float(chosen.step_time.step_seconds), float(chosen.memory.reserved_bytes)
    now, held = (
        facts.amount("time.step_seconds") or 0.0,
        facts.amount("memory.reserved_bytes") or 0.0,
    )
    layout = chosen.strategy.contract()
    what = (
        f"{chosen.strategy.family}, micro-batch {layout['micro_batch_size']},"
        f" {layout['gradient_accumulation_steps']} accumulated, recompute {layout['recompute']}"
    )
    fits = facts.values["fits"] is True
    if fits and seconds > now * (1 - _NOTABLY):
        return (f"the planner finds nothing notably faster (it would take {what})",)
    gain = f"{format_percent(1 - seconds / now)} less" if fits and now else "which fits"
    text = (
        f"the planner would take {what}: {format_seconds(seconds)} a step ({gain}),"
        f" {format_bytes(memory)} per GPU in place of {format_bytes(held)}"
    )
    return (text,)


def _suggested(request: Mapping[str, Any], offload: str, asked: Asked) -> Plan:
    """Return the plan for a run; where nothing fits, with the offload of its files."""
    try:
        return answers.suggest_layout(parse_request({**request}), allow_paths=asked.allow_paths)[1]
    except NothingFitsError:
        if offload == "none":
            raise
        held = parse_request({**request, "strategy": {"offload": offload}})
        return answers.suggest_layout(held, allow_paths=asked.allow_paths)[1]


def _global(payload: Mapping[str, Any], batch: tuple[int | None, int | None]) -> dict[str, int]:
    micro, steps = batch
    if not micro or not steps:
        return {}
    strategy, cluster = payload["strategy"], payload["cluster"]
    request = parse_request({"model": "gpt2", "cluster": cluster})
    gpus = resolve_cluster(request.cluster).cluster.world_size
    divided = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"):
        divided *= strategy.get(name, 1)
    return {"global_batch_size": micro * steps * max(1, gpus // divided)}
