"""Ways to start a target's launch.sh on machines: by hand, Slurm, Docker, Kubernetes, Ray, SageMaker."""

import math
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.core.frozen import frozen
from planner.core.units import GIB
from planner.generate.programs import KEPT, STEPS, TRAIN_PY, Program, program_of, save_every
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

_CPUS_PER_GPU = 2
"""For a process and its data loader; judgement, below what any cloud has per GPU."""

_DATA_GIB = 100
"""Of storage, for data and downloads; assumed."""

_PLAIN_SCRIPTS = ("torchrun", "deepspeed", "trainer")
"""Targets whose train.py needs no more than the variables that torchrun sets."""

_WITH_REQUIREMENTS = ("torchrun", "accelerate", "trainer", "deepspeed", "torchtitan")
"""Targets that an image is built for; Megatron-LM has images of its own."""


@frozen
class Launcher:
    """Files that start any of the targets."""

    name: str
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
    needs_sagemaker: bool = False
    """Whether it starts only instances that SageMaker has."""


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        launcher.name: launcher
        for launcher in (
            Launcher(
                name="ssh",
                summary="starts every node over `ssh`, and stops all of them when one fails or you press"
                " Ctrl-C. The folder lies under the same path everywhere. `HF_TOKEN` and"
                " the environment that is active go with it.",
                alone="starts the run on a machine over `ssh`, and stops it when you press Ctrl-C. The folder lies"
                " under the same path there. `HF_TOKEN` and the environment that is active go with it.",
                templates={"ssh.sh": "launchers/ssh.sh"},
                usage="{environment}bash launchers/ssh.sh {hosts} -- {data} {steps} {saves}",
            ),
            Launcher(
                name="slurm",
                summary="one task per node; the processes meet at the job's first host. Partition, account"
                " and environment are named in the script's first lines. When its time is up, or it is"
                " preempted, the job queues again and goes on from its last checkpoint.",
                alone="one task, which starts the processes. Partition, account and environment are named in the"
                " script's first lines. When its time is up, or it is preempted, the job queues again and goes"
                " on from its last checkpoint.",
                templates={"slurm.sh": "launchers/slurm.sh"},
                usage="{environment}sbatch launchers/slurm.sh {data} {steps} {saves}",
            ),
            Launcher(
                name="docker",
                summary="builds an image with what every target needs, and runs it with the host's shared memory"
                " and network.",
                templates={
                    "docker.sh": "launchers/docker.sh",
                    "Dockerfile": "launchers/Dockerfile",
                    "../.dockerignore": "launchers/dockerignore",
                },
                usage="{node}bash launchers/docker.sh {data} {steps} {saves}{on_node}",
                targets=_WITH_REQUIREMENTS,
            ),
            Launcher(
                name="kubernetes",
                summary="a plain Job, one pod per node, which any cluster runs. The image is that of"
                " `docker.sh`, in your registry; data and checkpoints lie in the volume of"
                " `storage.yaml`; a pod that ends is started again and goes on.",
                alone="a plain Job of one pod, which any cluster runs. The image is that of `docker.sh`, in your"
                " registry; data and checkpoints lie in the volume of `storage.yaml`; a pod that ends is started"
                " again and goes on.",
                templates={
                    "storage.yaml": "launchers/storage.yaml",
                    "job.yaml": "launchers/job.yaml",
                },
                usage="docker build --file launchers/Dockerfile --tag {image} . && docker push {image}\n"
                'kubectl create secret generic huggingface --from-file=token="${{HOME}}/.cache/huggingface/token"'
                "  # of gated models alone\n"
                "kubectl apply -f launchers/storage.yaml"
                " && kubectl wait --for=condition=Ready --timeout=10m pod/{job_name}-files\n"
                "kubectl cp {corpus} {job_name}-files:/storage/{corpus}{copies}"
                " && kubectl delete pod {job_name}-files\n"
                "kubectl apply -f launchers/job.yaml"
                " && kubectl wait --for=jsonpath='{{.status.ready}}'={nodes} --timeout=1h job/{job_name}"
                "  # the image is large\n"
                "kubectl logs --follow job/{job_name}",
                targets=_WITH_REQUIREMENTS,
            ),
            Launcher(
                name="kubeflow",
                summary="the same pods by `trainjob.yaml` for Kubeflow Trainer 2, or `pytorchjob.yaml` for"
                " Kubeflow's older Training Operator; all before `job.yaml` is as for kubernetes.",
                templates={
                    "pytorchjob.yaml": "launchers/pytorchjob.yaml",
                    "trainjob.yaml": "launchers/trainjob.yaml",
                },
                usage="kubectl apply -f launchers/trainjob.yaml",
                least_nodes=2,
                targets=_WITH_REQUIREMENTS,
            ),
            Launcher(
                name="ray",
                summary="a worker of Ray Train per GPU, which runs `train.py` itself; the folder lies"
                " under the same path everywhere, and the command is for a machine of the cluster. Workers"
                " that fail are started again and go on.",
                templates={"ray_train.py": "launchers/ray_train.py"},
                usage="python launchers/ray_train.py {data} {steps} {saves}",
                targets=_PLAIN_SCRIPTS,
            ),
            Launcher(
                name="sagemaker",
                summary="a training job on the plan's instances, by version 3 of SageMaker's Python"
                " SDK; `SAGEMAKER_ROLE` is the role that the job takes, and the folder of S3_DATA holds the data.",
                templates={"sagemaker_train.py": "launchers/sagemaker_train.py"},
                usage="pip install 'sagemaker>=3'\n"
                "S3_DATA=s3://BUCKET/FOLDER python launchers/sagemaker_train.py {s3_data} {steps}{s3_saves}",
                targets=_WITH_REQUIREMENTS,
                needs_sagemaker=True,
            ),
        )
    }
)


def launcher_files(
    spec: RunSpec, written: Sequence[Target], context: Mapping[str, Any]
) -> dict[str, str]:
    """Return the files of the launchers that a plan of so many nodes can use, and their README."""
    starts = {name: _startable(launcher, written) for name, launcher in LAUNCHERS.items()}
    used = [
        launcher for name, launcher in LAUNCHERS.items() if starts[name] and _suits(launcher, spec)
    ]
    common = {
        **context,
        "job_name": job_name(spec.model),
        "installable": [one.name for one in written if one.name in _WITH_REQUIREMENTS],
        "image_files": _image_files(spec, written),
        "time_limit": time_limit(STEPS * spec.expected_step_seconds),
    }
    readme = {
        "targets": written,
        "usages": [
            (
                one.name,
                (spec.nodes == 1 and one.alone) or one.summary,
                usage(one, starts[one.name][0], spec, context["corpus"]),
            )
            for one in used
        ],
        "programs": list(dict.fromkeys(program_of(target).name for target in written)),
    }
    files = {"launchers/README.md": render("launchers/README.md", common | readme)}
    for launcher in used:
        first = starts[launcher.name][0]
        own = {**common, **_pods(spec, program_of(first), context["corpus"])}
        own |= {"default_target": first.name, "program": program_of(first)}
        own["others"] = [one.name for one in starts[launcher.name][1:]]
        for name, template in launcher.templates.items():
            files[posixpath.normpath(f"launchers/{name}")] = render(template, own)
    return files


def usage(launcher: Launcher, target: Target, spec: RunSpec, corpus: str) -> str:
    """Return the command by which a launcher starts a plan's target on a file of the user's."""
    program, job = program_of(target), job_name(spec.model)
    corpus = program.corpus or corpus
    folder = local_model(spec, program)
    copies = f"\nkubectl cp {shlex.quote(folder)} {job}-files:{_STORAGE}/model" if folder else ""
    every = save_every(spec.expected_step_seconds)
    s3_data = program.data.format(folder=f"{_S3_FOLDER}/", corpus=corpus)
    return launcher.usage.format(
        copies=copies,
        environment=program.environment,
        hosts=_HOSTS.get(spec.nodes, f"me@node{{0..{spec.nodes - 1}}}"),
        data=program.data.format(folder="", corpus=corpus),
        steps=" ".join(program.steps),
        saves=" ".join(program.saves).format(folder="checkpoints", every=every),
        s3_data=f"{s3_data} --model {_S3_FOLDER}/model" if folder else s3_data,
        s3_saves=_s3_saves(program, spec.nodes).format(every=every),
        corpus=corpus,
        image=f"{_REGISTRY}/{job}",
        job_name=job,
        nodes=spec.nodes,
        node="NODE_RANK=0 MASTER_ADDR=node0 " if spec.nodes > 1 else "",
        on_node="  # on node 0, and so on" if spec.nodes > 1 else "",
    )


def _s3_saves(program: Program, nodes: int) -> str:
    """Return the arguments by which SageMaker keeps what a job wrote, each with a space before it.

    The instances' disks are their own: several of them keep only what one process writes.
    """
    saves = " ".join(program.saves).format(folder="/opt/ml/checkpoints", every="{every}")
    checkpoints = f" {saves}" if nodes == 1 else ""
    return checkpoints + (" --save-model /opt/ml/model" if program is TRAIN_PY else "")


def _image_files(spec: RunSpec, written: Sequence[Target]) -> list[str]:
    """Return what of the targets' folders goes into an image, as patterns."""
    endings = {
        one.name: {
            posixpath.splitext(name)[1] for name in {**one.templates, **one.more_templates(spec)}
        }
        for one in written
        if one.name in _WITH_REQUIREMENTS
    }
    return [
        f"{name}/requirements.txt" if ending == ".txt" else f"{name}/*{ending}"
        for name, found in endings.items()
        for ending in sorted(found)
    ]


def _pods(spec: RunSpec, program: Program, corpus: str) -> dict[str, Any]:
    """Return what Kubernetes is told of a plan's pods, one of which takes a node."""
    corpus = program.corpus or corpus
    arguments = program.data.format(folder=f"{_STORAGE}/", corpus=corpus).split()
    arguments += ["--model", f"{_STORAGE}/model"] if local_model(spec, program) else []
    arguments += program.steps
    every = save_every(spec.expected_step_seconds)
    arguments += [
        word.format(folder=f"{_STORAGE}/checkpoints", every=every) for word in program.saves
    ]
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
    is_read = program is TRAIN_PY and spec.is_pretrained and spec.model.isprintable()
    return spec.model if is_read and spec.model.startswith("/") else ""


def time_limit(run_seconds: float) -> str:
    """Return hours and minutes that Slurm gives a run: twice what it should take, and half an hour.

    Rounded up to ten minutes; a day at the most, since the job goes on where it was stopped.
    """
    tens = math.ceil((2 * run_seconds + _START_SECONDS) / 600)
    hours, rest = divmod(min(tens, 24 * 6), 6)
    return f"{hours:02}:{rest}0:00"


def _suits(launcher: Launcher, spec: RunSpec) -> bool:
    is_there = bool(spec.sagemaker_type) or not launcher.needs_sagemaker
    return is_there and spec.nodes >= launcher.least_nodes


def _startable(launcher: Launcher, written: Sequence[Target]) -> list[Target]:
    return [one for one in written if not launcher.targets or one.name in launcher.targets]


def job_name(model: str) -> str:
    """Return the model's own name as a DNS label: a to z, 0 to 9 and inner hyphens, 40 at most."""
    # NFKD takes accents off their letters, and encoding drops the accents.
    plain = unicodedata.normalize("NFKD", model.rpartition("/")[2]).encode("ascii", "ignore")
    words = re.findall(r"[a-z0-9]+", plain.decode().lower())
    return "-".join(["train", *words])[:_LONGEST_JOB_NAME].rstrip("-")
