"""Ways to start a target's launch.sh on machines: by hand, Slurm, Docker, Kubernetes, Ray, SageMaker."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner.generate.bundle import Bundle
from planner.generate.target import Target

_LONGEST_JOB_NAME = 40
"""Kubernetes appends to the name of a job, and gives a pod's name 63 characters in all."""

_PLAIN_SCRIPTS = ("torchrun", "deepspeed", "trainer")
"""Targets whose train.py needs no more than the variables that torchrun sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Files that start any of the targets."""

    name: str
    summary: str
    """One sentence for launchers/README.md; Markdown."""
    templates: Mapping[str, str]
    """File name to the template that writes it."""
    usage: str
    """The command that starts it, from the folder of the bundle."""
    least_nodes: int = 1
    targets: tuple[str, ...] = ()
    """Those it can start; empty for all of them."""


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        launcher.name: launcher
        for launcher in (
            Launcher(
                name="ssh",
                summary="starts every node over `ssh`, and stops all of them when one fails; the"
                " folder lies under the same path everywhere.",
                templates={"ssh.sh": "launchers/ssh.sh"},
                usage="bash launchers/ssh.sh node0 node1 -- --data corpus.txt --steps 1000",
                least_nodes=2,
            ),
            Launcher(
                name="slurm",
                summary="one task per node; the processes meet at the job's first host.",
                templates={"slurm.sh": "launchers/slurm.sh"},
                usage="sbatch launchers/slurm.sh --data corpus.txt --steps 1000",
            ),
            Launcher(
                name="docker",
                summary="builds an image with the folder in it, and runs it with the host's shared"
                " memory and network.",
                templates={
                    "docker.sh": "launchers/docker.sh",
                    "Dockerfile": "launchers/Dockerfile",
                },
                usage="bash launchers/docker.sh --data corpus.txt --steps 1000",
            ),
            Launcher(
                name="kubernetes",
                summary="`pytorchjob.yaml` for Kubeflow's Training Operator, `trainjob.yaml` for"
                " Kubeflow Trainer 2; both need the image of `docker.sh` in your registry.",
                templates={
                    "pytorchjob.yaml": "launchers/pytorchjob.yaml",
                    "trainjob.yaml": "launchers/trainjob.yaml",
                },
                usage="kubectl apply -f launchers/pytorchjob.yaml",
                least_nodes=2,
            ),
            Launcher(
                name="ray",
                summary="a worker of Ray Train per GPU, which runs `train.py` itself; the folder lies"
                " under the same path everywhere.",
                templates={"ray_train.py": "launchers/ray_train.py"},
                usage="ray job submit --working-dir . -- python launchers/ray_train.py --steps 1000",
                least_nodes=2,
                targets=_PLAIN_SCRIPTS,
            ),
        )
    }
)


def launchers_of(bundle: Bundle, written: Sequence[Target]) -> list[Launcher]:
    """Return the launchers that a plan of so many nodes, with those targets, can use."""
    names = {target.name for target in written}
    return [
        one
        for one in LAUNCHERS.values()
        if bundle.nodes >= one.least_nodes and (not one.targets or names & set(one.targets))
    ]


def launcher_context(bundle: Bundle, written: Sequence[Target]) -> dict[str, Any]:
    """Return what the launchers' templates need beside the common variables."""
    scripts = (target.name for target in written if target.name in _PLAIN_SCRIPTS)
    return {
        "launchers": launchers_of(bundle, written),
        "script_target": next(scripts, None),
        "job_name": job_name(bundle.model),
        "default_target": written[0].name,
        "targets": written,
    }


def job_name(model: str) -> str:
    """Return the model's own name as a DNS label: a to z, 0 to 9 and inner hyphens, 40 at most."""
    plain = unicodedata.normalize("NFKD", model.rpartition("/")[2]).encode("ascii", "ignore")
    words = re.findall(r"[a-z0-9]+", plain.decode().lower())
    return "-".join(["train", *words])[:_LONGEST_JOB_NAME].rstrip("-")
