"""Routes that list what is known, in base units, and explain it."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import create_model

from api.models import answer_model, instance_model, list_model
from api.problems import Answer
from api.schema import NAMED, answered
from planner import answers
from planner.catalog import records
from planner.catalog.published_runs import source_names
from planner.catalog.records import LinkRecord
from planner.domain.capabilities import Capabilities
from planner.domain.cluster import Gpu
from planner.explain import glossary

router = APIRouter(default_response_class=Answer)


Framework = create_model(
    "Framework",
    __doc__="A training framework, and what it can do.",
    name=(str, ...),
    capabilities=(answer_model(Capabilities), ...),
)


@router.get("/v1/models", responses=answered((), list_model("Models", "models", str)))
def models() -> Answer:
    """List the models that need no network."""
    return Answer({"models": records.model_ids()})


@router.get("/v1/gpus", responses=answered((), list_model("Gpus", "gpus", Gpu)))
def gpus() -> Answer:
    """List the known GPUs, in base units."""
    return Answer({"gpus": [asdict(records.gpu(name)) for name in records.gpu_names()]})


@router.get("/v1/gpus/{name}", responses=answered(NAMED, answer_model(Gpu)))
def gpu(name: str) -> Answer:
    """Describe a GPU, by its name, an alias, or the name NVML reports."""
    return Answer(asdict(records.gpu(name)))


@router.get("/v1/links", responses=answered((), list_model("Links", "links", LinkRecord)))
def links() -> Answer:
    """List the known links, in base units and per direction; 0 is not known."""
    return Answer({"links": [asdict(records.link(name)) for name in records.link_names()]})


@router.get("/v1/links/{name}", responses=answered(NAMED, answer_model(LinkRecord)))
def link(name: str) -> Answer:
    """Describe a link, by its name."""
    return Answer(asdict(records.link(name, "name")))


@router.get(
    "/v1/instances", responses=answered((), list_model("Instances", "instances", instance_model()))
)
def instances() -> Answer:
    """List the known cloud instances, in base units; null is not known."""
    known = [records.instance(name) for name in records.instance_names()]
    return Answer({"instances": [answers.answer_instance(instance) for instance in known]})


@router.get("/v1/instances/{name}", responses=answered(NAMED, instance_model()))
def instance(name: str) -> Answer:
    """Describe a cloud instance, by its name in any case."""
    return Answer(answers.answer_instance(records.instance(name)))


@router.get("/v1/frameworks", responses=answered((), list_model("Frameworks", "frameworks", str)))
def frameworks() -> Answer:
    """List the training frameworks."""
    return Answer({"frameworks": records.framework_names()})


@router.get("/v1/frameworks/{name}", responses=answered(NAMED, Framework))
def framework(name: str) -> Answer:
    """Say what a training framework can do, and in which release."""
    found = records.framework(name)
    return Answer({"name": found.name, "capabilities": asdict(found.capabilities)})


@router.get("/v1/accuracy", responses=answered((), list_model("Sources", "sources", str)))
def accuracy_sources() -> Answer:
    """List the sources of published runs that estimates are compared with."""
    return Answer({"sources": source_names()})


@router.get("/v1/rules", responses=answered((), list_model("Rules", "rules", glossary.Code)))
def list_rules() -> Answer:
    """List the rules, and the findings about topologies and machines."""
    return Answer({"rules": [asdict(code) for code in glossary.codes()]})


@router.get("/v1/rules/{code}", responses=answered(NAMED, answer_model(glossary.Code)))
def rule(code: str) -> Answer:
    """Explain a rule, or a finding about a topology or a machine."""
    return Answer(asdict(glossary.find_code(code)))


@router.get("/v1/terms", responses=answered((), list_model("Terms", "terms", glossary.Entry)))
def terms() -> Answer:
    """List the terms and strategies, group by group."""
    return Answer({"terms": [asdict(entry) for entry in glossary.entries()]})


@router.get("/v1/terms/{name}", responses=answered(NAMED, answer_model(glossary.Entry)))
def term(name: str) -> Answer:
    """Explain a term or strategy, by its name, title or a synonym."""
    return Answer(asdict(glossary.find_term(name)))
