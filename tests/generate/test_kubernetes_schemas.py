"""Manifests are what an API server takes: checked against the schemas that kubeconform checks against.

kubernetes-validate brings the strict JSON schemas of each release of Kubernetes, without a network.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from run_specs import with_launchers
from test_generate import SPEC
from test_launchers import NETWORKS, WRONG_KEYS, launchers

RELEASES = ("1.29", "1.37")
PLAIN = ("job.yaml", "storage.yaml")


def documents(network: str) -> Iterator[dict[str, Any]]:
    """Yield what Kubernetes itself knows of a plan's manifests, of several nodes and of one."""
    of_one = with_launchers(replace(SPEC, network=network), ["torchrun"])
    for name in PLAIN:
        yield from yaml.safe_load_all(launchers(network)[name])
        yield from yaml.safe_load_all(of_one[f"launchers/{name}"])


def check(manifests: Iterable[dict[str, Any]], release: str) -> set[str]:
    """Raise where an API server of `release` would refuse one, and return their kinds."""
    kinds = set()
    for manifest in manifests:
        kubernetes_validate.validate(manifest, release, strict=True)
        kinds.add(manifest["kind"])
    return kinds


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("network", NETWORKS)
def test_an_api_server_takes_them(network: str, release: str) -> None:
    kinds = {"Job", "PersistentVolumeClaim", "Pod", "Service"}
    assert check(documents(network), release) == kinds


@WRONG_KEYS
def test_a_wrong_key_would_be_seen(right: str, wrong: str) -> None:
    for name in PLAIN:
        text = launchers()[name]
        assert right in text or name != "job.yaml"
        if right in text:
            with pytest.raises(kubernetes_validate.ValidationError):
                check(yaml.safe_load_all(text.replace(right, wrong)), RELEASES[-1])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("paralelism",), 2),
        (("template", "spec", "restartPolicy"), 7),
        (("template", "spec", "containers", 0, "resources", "limits", "nvidia.com/gpu"), [8]),
        (("template", "spec", "containers", 0, "imagePullPolicy", "when"), "Always"),
    ],
)
def test_a_wrong_field_would_be_seen(path: tuple[str | int, ...], value: object) -> None:
    (job,) = (each for each in yaml.safe_load_all(launchers()["job.yaml"]) if each["kind"] == "Job")
    wrong = deepcopy(job)
    place = wrong["spec"]
    for step in path[:-1]:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    place[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        check([wrong], RELEASES[-1])
