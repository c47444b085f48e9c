"""The launchers' files: accepted by their consumers, for every network and number of nodes."""

import ast
import math
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
from run_specs import with_launchers, with_layout
from script_checks import HOSTILE, TOOLS
from test_generate import LLAMA_8B, MANY_NODES, SPEC, in_reach

from planner.generate import TARGETS
from planner.generate.launchers import job_name, sagemaker_hours, time_limit, usage
from planner.generate.launchers import launchers as every_launcher
from planner.generate.programs import save_every

NETWORKS = ("", "ethernet", "infiniband", "efa")


def launchers(network: str = "", **changes: Any) -> dict[str, str]:
    spec = replace(MANY_NODES, network=network, sagemaker_type="ml.p4d.24xlarge")
    files = with_launchers(replace(spec, **changes), ["torchrun"])
    prefix = "launchers/"
    return {name.removeprefix(prefix): text for name, text in files.items() if prefix in name}


def test_many_nodes_have_every_launcher_and_one_node_all_but_an_operators() -> None:
    every = {name for launcher in every_launcher().values() for name in launcher.templates}
    assert launchers().keys() == every - {"../.dockerignore"} | {"README.md"}
    alone = {name for name in with_launchers(SPEC, ["torchrun"]) if name.startswith("launchers/")}
    assert alone == {
        f"launchers/{name}"
        for name in (
            *("README.md", "slurm.sh", "docker.sh", "Dockerfile"),
            *("storage.yaml", "job.yaml", "ssh.sh", "ray_train.py"),
        )
    }


def test_sagemaker_starts_only_what_it_has_and_what_it_can_install() -> None:
    name = "launchers/sagemaker_train.py"
    assert name in with_launchers(replace(SPEC, sagemaker_type="ml.g5.48xlarge"), ["trainer"])
    assert name not in with_launchers(SPEC, ["trainer"])
    assert name not in with_launchers(
        replace(MANY_NODES, sagemaker_type="ml.p4d.24xlarge"), ["megatron"]
    )


@pytest.mark.parametrize(
    ("spec", "target", "keeps"),
    [
        (
            SPEC,
            "torchrun",
            " --output /opt/ml/checkpoints --save-every 100 --keep 3 --resume latest",
        ),
        (MANY_NODES, "torchrun", ""),
    ],
)
def test_a_job_of_sagemaker_reads_its_data_and_leaves_a_model(
    spec: Any, target: str, keeps: str
) -> None:
    """Of several instances, whose disks are their own, only what one process writes is kept."""
    text = with_launchers(replace(spec, sagemaker_type="ml.g5.48xlarge"), [target])[
        "launchers/README.md"
    ]
    data = "--data /opt/ml/input/data/training/corpus.txt --steps 1000"
    assert f"sagemaker_train.py {data}{keeps} --save-model /opt/ml/model\n" in text


def test_torchtitans_shards_are_not_left_on_the_disks_of_several_instances() -> None:
    there: dict[str, Any] = {"sagemaker_type": "ml.p5.48xlarge", "model_config": LLAMA_8B}
    for spec, ending in (
        (SPEC, "--checkpoint.enable --checkpoint.interval 100 --dump_folder /opt/ml/checkpoints"),
        (MANY_NODES, "--training.steps 1000"),
    ):
        files = with_launchers(replace(spec, **there), ["torchtitan"])
        assert re.search(rf"sagemaker_train.py .+ {ending}\n", files["launchers/README.md"])
        script = files["launchers/sagemaker_train.py"]
        assert ("the last one too, need one that all see" in script) == (spec is MANY_NODES)


def test_the_readme_shows_how_each_is_started() -> None:
    text = launchers()["README.md"]
    for name, launcher in every_launcher().items():
        assert f"\n{usage(launcher, TARGETS['torchrun'], MANY_NODES, 'corpus.txt')}\n" in text
        if name != "kubeflow":
            assert any(path in text for path in launcher.templates)


def test_a_model_on_this_machines_disk_reaches_the_containers() -> None:
    local: dict[str, Any] = {"model": "/models/my gpt2"}
    files = launchers(**local)
    assert "  --volume '/models/my gpt2:/models/my gpt2:ro' \\\n" in files["docker.sh"]
    assert "\nkubectl cp '/models/my gpt2' train-my-gpt2-files:/storage/model" in files["README.md"]
    assert '"--model", "/storage/model"' in files["job.yaml"]
    assert "put /models/my gpt2 into the folder `model` of S3" in files["sagemaker_train.py"]
    in_s3 = "/opt/ml/input/data/training"
    assert f" --data {in_s3}/corpus.txt --model {in_s3}/model --steps" in files["README.md"]
    others: tuple[dict[str, Any], ...] = (
        {"model": "openai-community/gpt2"},
        {"is_pretrained": False},
        {"model": "/a\nb"},
    )
    for other in others:
        there = launchers(**{**local, **other})
        assert not any("/storage/model" in text or ":ro" in text for text in there.values())


def test_the_first_target_that_is_written_is_started() -> None:
    files = with_launchers(MANY_NODES, ["trainer", "torchrun"])
    assert '/../${TARGET:-trainer}"' in files["launchers/slurm.sh"]
    assert "starts another: trainer, torchrun" in files["launchers/README.md"]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("spec", [SPEC, MANY_NODES], ids=["one-node", "many-nodes"])
def test_scripts_pass_shellcheck(spec: Any, network: str, tmp_path: Path) -> None:
    for summary in (SPEC.plan_summary, *HOSTILE):
        hostile = replace(spec, plan_summary=summary, model=summary, network=network)
        for name, text in with_launchers(hostile, ["torchrun"]).items():
            if name.startswith("launchers/") and name.endswith(".sh"):
                (tmp_path / f"{abs(hash(summary))}-{Path(name).name}").write_text(text, "utf-8")
    scripts = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [TOOLS / "shellcheck", *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "train-llama-3-1-8b"),
        ("gpt2", "train-gpt2"),
        ("../../etc", "train-etc"),
        ("$(reboot)", "train-reboot"),
        ("", "train"),
        ("a/" + "x" * 90, "train-" + "x" * 34),
    ],
)
def test_a_job_is_named_after_its_model(model: str, name: str) -> None:
    assert job_name(model) == name


@pytest.mark.parametrize(
    ("run_seconds", "limit"),
    [
        (0, "00:30:00"),
        (750, "01:00:00"),  # 2 * 750 + 1800 = 3300, of 600 each: 5.5
        (3600, "02:30:00"),
        (1e6, "24:00:00"),
    ],
)
def test_a_batch_job_has_twice_the_time_that_its_steps_should_take(
    run_seconds: float, limit: str
) -> None:
    assert time_limit(run_seconds) == limit


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("torchrun", "--save-every 100 --keep 3 --resume latest"),
        ("megatron", "--save checkpoints --load checkpoints --save-interval 100"),
        ("torchtitan", "--checkpoint.enable --checkpoint.interval 100"),
    ],
)
def test_a_batch_job_is_queued_again_where_it_would_go_on(target: str, command: str) -> None:
    files = with_launchers(in_reach(target, MANY_NODES), [target])
    assert command in files["launchers/README.md"]
    (condition,) = re.findall(r'if \[\[ " \$\* " == (.+) ]]', files["launchers/slurm.sh"])
    pattern = condition.replace('"', "").strip("* ")
    assert f" {pattern} " in f" {command} "
    assert {"--time=01:00:00", "--requeue", "--signal=B:USR1@120"} <= {
        line.removeprefix("#SBATCH ") for line in files["launchers/slurm.sh"].splitlines()
    }


def test_a_long_step_and_a_large_checkpoint_have_time_to_end() -> None:
    slow = replace(MANY_NODES, expected_step_seconds=200.0, checkpoint_bytes=2 * 90 * 10**9)
    files = with_launchers(slow, ["torchrun"])
    seconds = 60 * math.ceil((2 * 200 + 180 / MANY_NODES.nodes) / 60)
    assert f"--signal=B:USR1@{seconds}\n" in files["launchers/slurm.sh"]
    assert f"GracePeriodSeconds: {seconds + 30} " in files["launchers/trainjob.yaml"]
    assert f"SHUTDOWN_TIMEOUT:-{seconds}}}" in files["torchrun/launch.sh"]
    assert f"for _ in {{1..{seconds - 20}}}; do # seconds" in files["launchers/slurm.sh"]


@pytest.mark.parametrize(("steps", "seconds"), [(750, 3600), (10**6, 2_002_200)])
def test_pods_have_twice_the_time_that_their_steps_should_take(steps: int, seconds: int) -> None:
    files = launchers(run_steps=steps, expected_step_seconds=1.0)
    (job,) = (each for each in yaml.safe_load_all(files["job.yaml"]) if each["kind"] == "Job")
    assert job["spec"]["activeDeadlineSeconds"] == seconds
    assert yaml.safe_load(files["trainjob.yaml"])["spec"]["activeDeadlineSeconds"] == seconds


def test_one_nodes_plan_stays_on_one_machine_of_ray() -> None:
    for spec, strategy in ((SPEC, "STRICT_PACK"), (MANY_NODES, "PACK")):
        text = with_launchers(spec, ["torchrun"])["launchers/ray_train.py"]
        assert re.findall(r'placement_strategy="(\w+)"', text) == [strategy]


@pytest.mark.parametrize(("hours", "most"), [(0.1, 24), (11, 24), (33, 67), (1000, 120)])
def test_sagemaker_ends_no_job_before_its_time(hours: float, most: int) -> None:
    assert sagemaker_hours(hours * 3600) == most
    text = launchers(run_steps=round(hours * 3600), expected_step_seconds=1.0)["sagemaker_train.py"]
    assert f"\nMAX_RUNTIME_SECONDS = {most} * 3600" in text


@pytest.mark.parametrize(("steps", "every"), [(71_526, 2_000), (1_220, 100), (7, 1)])
def test_a_run_has_ten_checkpoints_at_the_least(steps: int, every: int) -> None:
    assert save_every(replace(MANY_NODES, run_steps=steps, expected_step_seconds=1.65)) == every


def test_writing_checkpoints_takes_a_tenth_of_the_time_at_most() -> None:
    large = replace(MANY_NODES, nodes=1, expected_step_seconds=3.0, checkpoint_bytes=96 * 10**9)
    assert save_every(replace(large, run_steps=10_000)) == 1000
    assert save_every(replace(large, run_steps=1000)) == 200
    assert save_every(replace(large, run_steps=16)) == 16


@pytest.mark.parametrize(("step_seconds", "every"), [(36.0, 100), (36.1, 50), (411.0, 5), (4e3, 1)])
def test_checkpoints_are_an_hour_apart_at_most(step_seconds: float, every: int) -> None:
    slow = replace(MANY_NODES, expected_step_seconds=step_seconds)
    assert save_every(slow) == every
    files = with_launchers(slow, ["torchrun"])
    assert f"--save-every {every} --keep 3" in files["launchers/README.md"]
    assert f"`--save-every {every}` writes `checkpoints/step-{every}`" in files["README.md"]


@given(st.text(max_size=80))
def test_every_job_name_is_a_dns_label(model: str) -> None:
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", job_name(model))


def as_train_job(document: dict[str, Any]) -> dict[str, Any]:
    """Return what Kubeflow Trainer's TrainJob keeps of a document: unknown keys are dropped."""
    job = TrainerV1alpha1TrainJob.from_dict(document)
    assert job is not None
    return dict(job.to_dict())


@pytest.mark.parametrize("network", NETWORKS)
def test_kubeflow_knows_every_key(network: str) -> None:
    for document in yaml.safe_load_all(launchers(network)["trainjob.yaml"]):
        assert as_train_job(document) == document


WRONG_KEYS = pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("metadata:\n  name:", "metadata:\n  nam:"),
        ("mountPath:", "mountpath:"),
        ("resources", "resource"),
        ("emptyDir", "emptydir"),
        ("claimName", "claim"),
        ("secretKeyRef", "secretKey"),
        ("value: WARN", "valeu: WARN"),
    ],
)


@WRONG_KEYS
def test_a_wrong_key_of_a_train_job_would_be_seen(right: str, wrong: str) -> None:
    text = launchers()["trainjob.yaml"]
    assert right in text
    seen = []
    for document in yaml.safe_load_all(text.replace(right, wrong)):
        try:
            seen.append(as_train_job(document) != document)
        except ValueError:  # raised where the key must be there
            seen.append(True)
    assert any(seen)


@pytest.mark.parametrize("nodes", [2, 6])
def test_a_job_starts_one_pod_per_node_with_all_its_gpus(nodes: int) -> None:
    spec = with_layout(
        MANY_NODES, nodes=nodes, gradient_accumulation_steps=1, global_batch_size=32 * nodes
    )
    files = with_launchers(spec, ["torchrun"])
    trainer = yaml.safe_load(files["launchers/trainjob.yaml"])["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (nodes, 8)
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "8"


PODS = {
    "trainjob.yaml": {"PET_NODE_RANK": "3", "PET_MASTER_ADDR": "job-0", "PET_MASTER_PORT": "2"},
    "job.yaml": {"JOB_COMPLETION_INDEX": "3"},
}
"""The variables that what runs a job gives to its pods."""


def container_of(text: str) -> dict[str, Any]:
    """Return what the last pod of a job runs."""
    spec = list(yaml.safe_load_all(text))[-1]["spec"]
    if "trainer" in spec:
        return dict(spec["trainer"])
    return dict(spec["template"]["spec"]["containers"][0])


@pytest.mark.parametrize("name", PODS)
def test_pods_hand_their_rank_and_their_meeting_point_to_the_launch_script(
    name: str, tmp_path: Path
) -> None:
    """The command of each job, run by a shell with the variables that its pods have."""
    container = container_of(launchers()[name])
    (tmp_path / "launch.sh").write_text('echo "$NODE_RANK $MASTER_ADDR $MASTER_PORT $*"\n')
    command = [part.replace("/bundle/torchrun/", "") for part in container["command"]]
    done = subprocess.run(
        [*command, *container["args"], "a b"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", **PODS[name]},
        capture_output=True,
        text=True,
        check=True,
    )
    place = "job-0 2" if "PET_MASTER_ADDR" in PODS[name] else "train-gpt2-0.train-gpt2 "
    saved = "--output /storage/checkpoints --save-every 100 --keep 3 --resume latest"
    expected = f"3 {place} --data /storage/corpus.txt --steps 1000 {saved} a b\n"
    assert done.stdout == expected


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize(
    ("network", "adapters"),
    [("efa", {"vpc.amazonaws.com/efa": "32"}), ("infiniband", {"rdma/hca": "1"}), ("ethernet", {})],
)
def test_pods_take_the_adapters_of_their_nodes_network(
    name: str, network: str, adapters: dict[str, str]
) -> None:
    files = launchers(network, efa_interfaces=32, host_bytes=10 * 2**30)
    container = container_of(files[name])
    resources = container.get("resources") or container["resourcesPerNode"]
    assert resources["limits"] == {"nvidia.com/gpu": "8"} | adapters
    # 10 GiB of the plan and 4 for each of 8 processes.
    assert resources["requests"] == {"cpu": "16", "memory": "42Gi"}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_container_reaches_the_adapters_unless_the_network_has_none(network: str) -> None:
    files = launchers(network)
    has_adapters = network != "ethernet"
    assert ("ibverbs-providers" in files["Dockerfile"]) == has_adapters
    assert ("--device=/dev/infiniband" in files["docker.sh"]) == has_adapters


def test_a_container_is_told_what_its_user_says_to_nccl(tmp_path: Path) -> None:
    (tmp_path / "launchers").mkdir()
    script = tmp_path / "launchers" / "docker.sh"
    script.write_text(launchers()["docker.sh"])
    (tmp_path / "docker").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": "/home/me", "IMAGE": "mine"}
    for own in ({}, {"NCCL_SOCKET_IFNAME": "eth1", "NCCL_DEBUG": "INFO"}):
        command = ["bash", str(script), "--steps", "3"]
        done = subprocess.run(
            command, env=variables | own, capture_output=True, text=True, check=True
        )
        assert done.stdout.endswith(" mine --steps 3\n")
        assert all(f" --env {name} " in done.stdout for name in own)
        assert ("NCCL_" in done.stdout) == bool(own)


def test_a_volume_holds_the_checkpoints_that_are_kept() -> None:
    files = launchers(checkpoint_bytes=30 * 2**30)
    claim, _ = yaml.safe_load_all(files["storage.yaml"])
    assert claim["spec"]["resources"]["requests"]["storage"] == "250Gi"  # 5 x 30 + 100
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    alone = yaml.safe_load_all(with_launchers(SPEC, ["torchrun"])["launchers/storage.yaml"])
    assert next(alone)["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_ray_starts_only_scripts_that_need_no_launcher_of_their_own() -> None:
    for target, is_plain in (("megatron", False), ("trainer", True)):
        assert ("launchers/ray_train.py" in with_launchers(MANY_NODES, [target])) is is_plain


def test_an_image_is_built_only_of_what_it_can_install() -> None:
    files = with_launchers(MANY_NODES, ["megatron"])
    assert {name for name in files if name.startswith("launchers/")} == {
        "launchers/README.md",
        "launchers/ssh.sh",
        "launchers/slurm.sh",
    }
    both = with_launchers(MANY_NODES, ["megatron", "torchrun"])
    assert "ENV TARGET=torchrun" in both["launchers/Dockerfile"]
    assert "TARGET:-megatron}" in both["launchers/slurm.sh"]


def test_one_image_has_what_all_targets_need_and_nothing_that_a_run_leaves() -> None:
    files = with_launchers(SPEC, ["torchrun", "trainer"])
    text = files["launchers/Dockerfile"]
    for target in ("torchrun", "trainer"):
        assert f"COPY {target}/requirements.txt /requirements/{target}.txt\n" in text
        assert f" -r /requirements/{target}.txt" in text
    first, *kept = [one for one in files[".dockerignore"].splitlines() if not one.startswith("#")]
    assert first == "*"
    copied = {name for name in files for one in kept if PurePosixPath(name).match(one[1:])}
    beside = {name for name in files if "/" in name and "launchers" not in name}
    assert beside | {"launcher.py"} == copied
    for left in ("torchrun/corpus.txt", "torchrun/checkpoints/step-1/state.pt", "plan.json"):
        assert not any(PurePosixPath(left).match(one[1:]) for one in kept)


def test_each_launcher_has_its_own_first_target() -> None:
    both = with_launchers(MANY_NODES, ["megatron", "torchrun"])
    assert 'os.environ.get("TARGET", "torchrun")' in both["launchers/ray_train.py"]
    assert "${TARGET:-megatron}" in both["launchers/slurm.sh"]


_NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60))


@given(summary=_NAMES.filter(lambda text: not text.startswith("/")))
def test_no_text_escapes_its_place(summary: str) -> None:
    plain = launchers(model="m", plan_summary="s")
    files = launchers(model=summary, plan_summary=summary)
    for script in ("ray_train.py", "sagemaker_train.py"):
        trees = [
            ast.parse(one.pop(script).replace(job_name(model), "train"))
            for one, model in ((files, summary), (plain, "m"))
        ]
        assert [*map(ast.dump, trees[0].body[1:])] == [*map(ast.dump, trees[1].body[1:])]
    for name, text in files.items():
        quiet = plain[name].replace("train-m", job_name(summary)).split("\n")
        different = [a for a, b in zip(text.split("\n"), quiet, strict=True) if a != b]
        assert all(line.startswith("# Plan: ") for line in different)
        assert len(different) <= 1
        if name.endswith(".yaml"):
            first = next(iter(yaml.safe_load_all(text)))
            assert first["metadata"]["name"] == job_name(summary)


@given(name=_NAMES)
def test_a_local_model_is_one_word_wherever_it_is_named(name: str) -> None:
    folder = f"/{name}"
    files = launchers(model=folder)
    mounts = [line for line in files["docker.sh"].split("\n") if ":ro" in line]
    words = [shlex.split(line.removesuffix("\\")) for line in mounts]
    is_known = folder.isprintable()  # another is taken for a model of the Hub
    assert words == ([["--volume", f"{folder}:{folder}:ro"]] if is_known else [])
    of_sagemaker = ast.parse(files["sagemaker_train.py"]).body
    plain = ast.parse(launchers(model="/m")["sagemaker_train.py"]).body
    if is_known:
        kinds = [[type(each) for each in body] for body in (of_sagemaker, plain)]
        assert kinds[0] == kinds[1]
