"""Routes that answer what is asked besides a plan: why a run is slow or fails, how a batch is made, what a machine does."""

from fastapi import APIRouter, Request, Response

from api import batch_route, doctor, jobs, machines, race
from api.models import answer_model
from api.planning import Body, Token, answered_by
from api.schema import (
    ASKED,
    PLANNED,
    READ,
    BatchWithNotes,
    MachineAnswer,
    answered,
    described_body,
)
from planner.answers import shapes
from planner.doctor import answers as diagnosis
from planner.race.results import RaceTableAnswer

router = APIRouter()


@router.post(
    "/v1/doctor/timings",
    openapi_extra=described_body("timings"),
    responses=answered(READ, answer_model(diagnosis.TimingsAnswer)),
)
async def timings(http: Request, body: Body) -> Response:
    """Say why a run is not faster on more GPUs, from what it took on several numbers of them."""
    return await answered_by(http, doctor.timings, body)


@router.post(
    "/v1/doctor/scripts",
    openapi_extra=described_body("scripts"),
    responses=answered(READ, answer_model(diagnosis.ScriptsAnswer)),
)
async def scripts(http: Request, body: Body) -> Response:
    """Say what is wrong with training scripts, by code and line; they are read, and never run."""
    return await answered_by(http, doctor.scripts, body)


@router.post(
    "/v1/doctor/log",
    openapi_extra=described_body("log"),
    responses=answered(READ, answer_model(diagnosis.LogAnswer)),
)
async def log(http: Request, body: Body) -> Response:
    """Say what a log, or one message, says happened first: its cause and what to do first."""
    return await answered_by(http, doctor.log, body)


@router.post(
    "/v1/batch", openapi_extra=described_body("batch"), responses=answered(ASKED, BatchWithNotes)
)
async def batch(http: Request, body: Body, token: Token = "") -> Response:
    """Say how a global batch is made, its steps and learning rate, and what to configure."""
    return await answered_by(http, batch_route.batch_plan, body, token=token)


@router.post(
    "/v1/replicas",
    openapi_extra=described_body("suggest"),
    responses=answered(PLANNED, answer_model(shapes.ReplicasAnswer)),
)
async def replicas(http: Request, body: Body, token: Token = "") -> Response:
    """Compare ways to train a whole model on each GPU: DDP, nn.DataParallel, local SGD."""
    return await answered_by(http, jobs.replicas, body, token=token)


@router.post(
    "/v1/machines",
    openapi_extra=described_body("machine"),
    responses=answered(ASKED, MachineAnswer),
)
async def machine(http: Request, body: Body, token: Token = "") -> Response:
    """Make a machine of its timed runs, which requests name as `machine`: its figures win over the catalogue's."""
    return await answered_by(http, machines.machine, body, token=token)


@router.post(
    "/v1/race",
    openapi_extra=described_body("race"),
    responses=answered(READ, answer_model(RaceTableAnswer)),
)
async def raced(http: Request, body: Body) -> Response:
    """Show a race: what `planner race --json` printed, as its table; none is started."""
    return await answered_by(http, race.race, body)
