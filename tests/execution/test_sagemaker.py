"""The launcher of SageMaker jobs, run against the recorded parameters of SageMaker's Python SDK.

The SDK itself is 900 MB, and starts no job without an account.
"""

import runpy
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
from launched import TINY, write
from run_specs import EVERY, with_layout

from planner import answers
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

FACTS = Path(__file__).parents[1] / "facts" / "sagemaker_arguments.txt"
ONE = replace(TINY, sagemaker_type="ml.g5.12xlarge")
TWO = with_layout(ONE, nodes=2, global_batch_size=32)
IMAGE = "an image"


def recorded() -> dict[str, set[str]]:
    """Return the parameters of each name of the SDK."""
    lines = [line for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    pairs = (line.partition(": ") for line in lines)
    return {name: set(parameters.split()) for name, _, parameters in pairs}


class Recorded:
    """A class of the SDK: it keeps the arguments that it knows, and refuses others."""

    parameters: frozenset[str]
    made: list[Any]

    def __init__(self, **arguments: Any) -> None:
        assert arguments.keys() <= self.parameters
        self.arguments = arguments
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        return self.arguments[name]


class Session(Recorded):
    boto_region_name = "eu-west-1"


class ModelTrainer(Recorded):
    started: Mapping[str, Any]

    def train(self, **arguments: Any) -> Self:
        assert arguments.keys() <= recorded()["sagemaker.train.ModelTrainer.train"]
        self.started = arguments
        return self


def retrieve(**arguments: Any) -> str:
    assert arguments.keys() <= recorded()["sagemaker.core.image_uris.retrieve"]
    assert arguments["region"] == Session.boto_region_name
    return IMAGE


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Put the recorded names where the SDK has them; return what is made of each class."""
    made: dict[str, list[Any]] = {}
    modules: dict[str, ModuleType] = {}
    own = {"Session": Session, "ModelTrainer": ModelTrainer}
    for path, parameters in recorded().items():
        place, _, name = path.rpartition(".")
        if not name[0].isupper():
            continue
        made[name] = []
        fields = {"parameters": frozenset(parameters), "made": made[name]}
        module = modules.setdefault(place, ModuleType(place))
        setattr(module, name, type(name, (own.get(name, Recorded),), fields))
    core = ModuleType("sagemaker.core")
    core.image_uris = ModuleType("sagemaker.core.image_uris")  # type: ignore[attr-defined]
    core.image_uris.retrieve = retrieve
    names = ("sagemaker", "sagemaker.core.helper")
    packages = {name: ModuleType(name) for name in names}
    for name, module in (packages | modules | {"sagemaker.core": core}).items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("HF_TOKEN", "IMAGE", "S3_DATA", "SAGEMAKER_ROLE", "TARGET"):
        monkeypatch.delenv(name, raising=False)
    return made


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    script = folder / "launchers" / "sagemaker_train.py"
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_job_has_the_plans_instances(
    nodes: int, sdk: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(write(tmp_path, ONE if nodes == 1 else TWO, "torchrun"), monkeypatch, "--steps", "3")
    (trainer,) = sdk["ModelTrainer"]
    assert trainer.compute.instance_type == "ml.g5.12xlarge"
    assert trainer.compute.instance_count == nodes
    assert trainer.training_image == IMAGE
    assert trainer.environment == {"NCCL_DEBUG": "WARN"}
    assert trainer.started == {"input_data_config": None}
    assert len(sdk["CheckpointConfig"]) == (nodes == 1)
    source = Path(trainer.source_code.source_dir)
    assert source == tmp_path
    assert (source / trainer.source_code.requirements).is_file()


def test_what_the_job_needs_is_taken_from_the_environment(
    sdk: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"HF_TOKEN": "secret", "IMAGE": "mine", "S3_DATA": "s3://bucket/corpus"}
    for name, value in {**variables, "SAGEMAKER_ROLE": "a-role", "TARGET": "trainer"}.items():
        monkeypatch.setenv(name, value)
    start(write(tmp_path, ONE, "torchrun", "trainer"), monkeypatch)
    (trainer,), (channel,) = sdk["ModelTrainer"], sdk["InputData"]
    assert (trainer.training_image, trainer.role) == ("mine", "a-role")
    assert trainer.environment["HF_TOKEN"] == "secret"  # noqa: S105
    assert trainer.source_code.requirements == "trainer/requirements.txt"
    assert trainer.started == {"input_data_config": [channel]}
    assert channel.arguments == {"channel_name": "training", "data_source": "s3://bucket/corpus"}


def test_the_second_instance_joins_the_first(
    sdk: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command, as the SDK joins it with its arguments, under the variables that it sets."""
    start(write(tmp_path, TWO, "torchrun"), monkeypatch, "--data", "my corpus.txt", "$(reboot)")
    (trainer,) = sdk["ModelTrainer"]
    source = trainer.source_code
    (tmp_path / "torchrun" / "launch.sh").write_text(
        'echo "$NODE_RANK $MASTER_ADDR $MASTER_PORT $NCCL_SOCKET_IFNAME"; printf "%s\\n" "$@"\n'
    )
    variables = dict.fromkeys(recorded()["environment"], "") | {
        "SM_CURRENT_HOST_RANK": "1",
        "SM_MASTER_ADDR": "algo-1",
        "SM_MASTER_PORT": "7777",
        "SM_NETWORK_INTERFACE_NAME": "eth0",
    }
    command = " ".join([*source.command.split(), *map(shlex.quote, source.args)])
    done = subprocess.run(
        ["bash", "-euc", command],  # noqa: S607
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 algo-1 7777 eth0\n--data\nmy corpus.txt\n$(reboot)\n"


def test_a_name_that_the_sdk_lacks_would_be_seen(
    sdk: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, ONE, "torchrun") / "launchers" / "sagemaker_train.py"
    script.write_text(script.read_text().replace("instance_count=", "instance_number="))
    with pytest.raises(AssertionError):
        start(tmp_path, monkeypatch)
    assert not sdk["ModelTrainer"]


@pytest.mark.parametrize(
    ("cluster", "line"),
    [
        ({"instance": "p4d.24xlarge", "nodes": 2}, 'INSTANCE_TYPE = "ml.p4d.24xlarge"'),
        ({"instance": "g4dn.metal"}, None),
        ({"gpu": "a100", "gpus_per_node": 8}, None),
    ],
)
def test_only_plans_on_instances_of_sagemaker_have_the_launcher(
    cluster: dict[str, Any], line: str | None
) -> None:
    request = parse_request({"model": "gpt2", "cluster": cluster})
    resolved, plan = answers.suggest(request, allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    script = files.get("launchers/sagemaker_train.py")
    assert (script is None) == (line is None)
    assert script is None or line in script.splitlines()
