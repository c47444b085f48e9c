"""Ways to start a target's launch.sh on machines: by hand, Slurm, Docker, Kubernetes, Ray, SageMaker."""

import math
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import GIB
from planner.generate.programs import KEPT, Program, program_of, save_every
from planner.generate.quoting import render
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target

_LONGEST_JOB_NAME = 40
"""Kubernetes appends to the name of a job, and gives a pod's name 63 characters in all."""

_START_SECONDS = 1800
"""In which processes start, download and read a model; judgement."""

_HOSTS = {1: "me@node0", 2: "me@node0 me@node1"}
"""What READMEs call the hosts of so many nodes; more are counted by the shell."""

_REGISTRY = "registry.example.com"
"""Where an image is pulled from; the user's own takes its place."""

_STORAGE = "/storage"
"""Where pods see the volume that they share."""

_S3_FOLDER = "/opt/ml/input/data/training"
"""Where a job of SageMaker sees what its user has in S3."""

_PROCESS_GIB = 4
"""Of host memory, for one process with CUDA and its data loader; judgement."""

_CONTAINER_UID = 1000
"""Of the user in the image, whom storage must belong to; any number but root's."""

_CPUS_PER_GPU = 2
"""For a process and its data loader; judgement, below what any cloud has per GPU."""

_DATA_GIB = 100
"""Of storage, for data and downloads; assumed."""


@frozen
class Launcher:
    """Files that start any of the targets."""

    summary: str
    """One sentence for launchers/README.md; Markdown."""
    alone: str = ""
    """The same for one node, where that is another."""
    templates: Mapping[str, str]
    """Path from launchers/ to the template that writes it."""
    usage: str
    """The command that starts it, from the folder of the bundle, with the program's own words for `{data}`,
    `{steps}`, `{saves}` and the name of the `{corpus}`, `{s3_data}` and `{s3_saves}` on SageMaker; `{hosts}`,
    `{nodes}`, `{image}` and `{job_name}` are the plan's, and `{node}` and `{on_node}` what stands around a command
    that each of several nodes needs."""
    least_nodes: int = 1
    targets: tuple[str, ...] = ()
    """Those it can start; empty for all of them."""
    needs: tuple[str, ...] = ()
    """Launchers whose files it takes too."""
    needs_sagemaker: bool = False
    """Whether it starts only instances that SageMaker has."""


@frozen
class _Launchers:
    source: str
    launchers: Mapping[str, Launcher]


@cache
def launchers() -> Mapping[str, Launcher]:
    """Return the launchers by name."""
    return build(_Launchers, read("scripts", "launchers"), "scripts/launchers").launchers


def launchers_of(spec: RunSpec, written: Sequence[Target]) -> tuple[str, ...]:
    """Return the launchers that start some of a plan's targets on its nodes."""
    return tuple(name for name, one in launchers().items() if not _obstacle(one, spec, written))


def wanted_launchers(
    names: str | Iterable[str], spec: RunSpec, written: Sequence[Target]
) -> dict[str, Launcher]:
    """Return the launchers that are named, or all that there are for a plan, with those that they need.

    Raises:
        InvalidInputError: one that is named starts none of the plan's targets on its nodes.
    """
    found = launchers_of(spec, written)
    if _has_server(spec) and names:
        raise InvalidInputError(
            "launchers start no vLLM server beside the training",
            hint="--vllm-mode colocate",
            field="files.launchers",
        )
    used = set(found if isinstance(names, str) else ())
    for name in () if isinstance(names, str) else names:
        if name not in found:
            obstacle = _obstacle(launchers()[name], spec, written)
            raise InvalidInputError(
                f"no launcher {name} for this plan: {obstacle}",
                hint=f"there are {', '.join(found)}",
                field="files.launchers",
            )
        used |= _with_needed(name)
    return {name: one for name, one in launchers().items() if name in used}


def _has_server(spec: RunSpec) -> bool:
    return spec.rollout is not None and spec.rollout.vllm_mode == "server"


def _with_needed(name: str) -> set[str]:
    return {name}.union(*(_with_needed(each) for each in launchers()[name].needs))


def _obstacle(launcher: Launcher, spec: RunSpec, written: Sequence[Target]) -> str:
    if not _startable(launcher, written):
        return f"it starts {', '.join(launcher.targets)}"
    if launcher.needs_sagemaker and not spec.sagemaker_type:
        return "it starts instances that SageMaker has (--instance)"
    if _has_server(spec):
        return "it starts no vLLM server"
    return (
        f"it takes {launcher.least_nodes} nodes or more"
        if spec.nodes < launcher.least_nodes
        else ""
    )


def launcher_files(
    spec: RunSpec,
    written: Sequence[Target],
    context: Mapping[str, Any],
    used: Mapping[str, Launcher],
) -> dict[str, str]:
    """Return the files of launchers, and their README; none of no launcher."""
    if not used:
        return {}
    starts = {name: _startable(launcher, written) for name, launcher in used.items()}
    common = {
        **context,
        "job_name": job_name(spec.model),
        "container_uid": _CONTAINER_UID,
        "installable": [one.name for one in _installable(written)],
        "image_files": _image_files(spec, written),
        "time_limit": time_limit(spec.steps * spec.expected_step_seconds),
        "deadline_seconds": limit_seconds(spec.steps * spec.expected_step_seconds),
        "sagemaker_hours": sagemaker_hours(spec.steps * spec.expected_step_seconds),
    }
    readme = {
        "targets": written,
        "usages": [
            (
                name,
                (spec.nodes == 1 and one.alone) or one.summary,
                usage(one, starts[name][0], spec, context["corpus"]),
            )
            for name, one in used.items()
        ],
        "programs": list(dict.fromkeys(program_of(target).name for target in written)),
    }
    files = {"launchers/README.md": render("launchers/README.md", common | readme)}
    for name, launcher in used.items():
        first, *others = starts[name]
        own = {**common, **_pods(spec, program_of(first), context["corpus"])}
        own |= {"default_target": first.name, "program": program_of(first)}
        own["others"] = [one.name for one in others]
        for path, template in launcher.templates.items():
            files[posixpath.normpath(f"launchers/{path}")] = render(template, own)
    return files


def usage(launcher: Launcher, target: Target, spec: RunSpec, corpus: str) -> str:
    """Return the command by which a launcher starts a plan's target on a file of the user's."""
    program, job = program_of(target), job_name(spec.model)
    corpus = program.corpus or corpus
    folder = local_model(spec, program)
    copies = f"\nkubectl cp {shlex.quote(folder)} {job}-files:{_STORAGE}/model" if folder else ""
    every = save_every(spec)
    s3_data = program.data.format(folder=f"{_S3_FOLDER}/", corpus=corpus)
    command = launcher.usage.format(
        copies=copies,
        environment=program.environment,
        hosts=_HOSTS.get(spec.nodes, f"me@node{{0..{spec.nodes - 1}}}"),
        data=program.data.format(folder="", corpus=corpus),
        steps=_filled(program.steps, steps=spec.steps),
        saves=_filled(program.saves, folder="checkpoints", every=every),
        s3_data=f"{s3_data} {program.model.format(folder=f'{_S3_FOLDER}/model')}"
        if folder
        else s3_data,
        s3_saves=_s3_saves(program, spec.nodes, every),
        corpus=corpus,
        image=f"{_REGISTRY}/{job}",
        job_name=job,
        nodes=spec.nodes,
        node="NODE_RANK=0 MASTER_ADDR=node0 " if spec.nodes > 1 else "",
        on_node="  # on node 0, and so on" if spec.nodes > 1 else "",
    )
    return re.sub(r" +(?= [^ #])", "", command)  # where a program has no word for something


def _filled(words: Iterable[str], **given: object) -> str:
    return " ".join(words).format(kept=KEPT, **given)


def _s3_saves(program: Program, nodes: int, every: int) -> str:
    """Return the arguments by which SageMaker keeps what a job wrote, each with a space before it.

    The instances' disks are their own: several of them keep only what one process writes.
    """
    saves = _filled(program.saves, folder="/opt/ml/checkpoints", every=every)
    checkpoints = f" {saves}" if nodes == 1 else ""
    model = "" if checkpoints and program.saves_with_checkpoints else program.final
    return checkpoints + (f" {model.format(folder='/opt/ml/model')}" if model else "")


def _image_files(spec: RunSpec, written: Sequence[Target]) -> list[str]:
    names = {
        posixpath.normpath(f"{one.name}/{name}")
        for one in _installable(written)
        for name in {**one.templates, **one.more_templates(spec)}
    }
    kinds = {name: posixpath.splitext(name) for name in names}
    return sorted(
        {
            f"{posixpath.dirname(name)}/*{ending}" if "/" in name and ending != ".txt" else name
            for name, (_, ending) in kinds.items()
        }
    )


def _pods(spec: RunSpec, program: Program, corpus: str) -> dict[str, Any]:
    corpus = program.corpus or corpus
    arguments = program.data.format(folder=f"{_STORAGE}/", corpus=corpus).split()
    if local_model(spec, program):
        arguments += program.model.format(folder=f"{_STORAGE}/model").split()
    every = save_every(spec)
    words = (*program.steps, *program.saves)
    arguments += _filled(
        words, steps=spec.steps, folder=f"{_STORAGE}/checkpoints", every=every
    ).split()
    host_gib = spec.host_bytes / GIB + _PROCESS_GIB * spec.gpus_per_node
    return {
        "registry": _REGISTRY,
        "pod_arguments": arguments,
        "pod_cpus": _CPUS_PER_GPU * spec.gpus_per_node,
        "pod_memory_gib": math.ceil(host_gib),
        # One more is being written, and the model itself is the size of one at the most.
        "storage_gib": math.ceil((KEPT + 2) * spec.checkpoint_bytes / GIB) + _DATA_GIB,
        "local_model": local_model(spec, program),
    }


def local_model(spec: RunSpec, program: Program) -> str:
    """Return the folder that a script reads its model from, "" where that is on the Hub or in the bundle."""
    is_read = program.model and spec.is_pretrained and spec.model.isprintable()
    return spec.model if is_read and spec.model.startswith("/") else ""


def limit_seconds(run_seconds: float) -> int:
    """Return what a run is given: twice what it should take, and half an hour; rounded up to ten minutes."""
    return 600 * math.ceil((2 * run_seconds + _START_SECONDS) / 600)


def time_limit(run_seconds: float) -> str:
    """Return hours and minutes that Slurm gives a run: a day at the most, since the job goes on where it was stopped."""
    hours, rest = divmod(min(limit_seconds(run_seconds), 24 * 3600), 3600)
    return f"{hours:02}:{rest // 60:02}:00"


def sagemaker_hours(run_seconds: float) -> int:
    """Return the hours after which SageMaker ends a job: a day, or more for a run that may take longer.

    As many as `time_limit` asks for, and 120 at the most, which is what an account has until it asks for more.
    Source: AWS, SageMaker endpoints and quotas, "Longest run time for a training job": 432,000 s.
    """
    return min(max(24, math.ceil(limit_seconds(run_seconds) / 3600)), 120)


def _installable(written: Sequence[Target]) -> list[Target]:
    """Return the targets that an image is built for; Megatron-LM has images of its own."""
    return _startable(launchers()["docker"], written)


def _startable(launcher: Launcher, written: Sequence[Target]) -> list[Target]:
    return [one for one in written if not launcher.targets or one.name in launcher.targets]


def job_name(model: str) -> str:
    """Return the model's own name as a DNS label: a to z, 0 to 9 and inner hyphens, 40 at most."""
    # NFKD takes accents off their letters, and encoding drops the accents.
    plain = unicodedata.normalize("NFKD", model.rpartition("/")[2]).encode("ascii", "ignore")
    words = re.findall(r"[a-z0-9]+", plain.decode().lower())
    return "-".join(["train", *words])[:_LONGEST_JOB_NAME].rstrip("-")
