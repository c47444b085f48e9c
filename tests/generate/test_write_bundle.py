import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_specs import EVERY, script_of

import planner.generate.folder
import planner.generate.write_bundle
from planner import answers
from planner.advice.plan import Plan
from planner.answers.shapes import SuggestionAnswer
from planner.core.errors import InvalidInputError
from planner.domain.strategy import FIELDS, Layout, Recompute
from planner.generate import RunSpec
from planner.generate.earlier_plan import earlier_files, edited_files
from planner.generate.plan_json import digest
from planner.generate.write_bundle import bundle_files, has_peer_to_peer, network_kind, write_bundle
from planner.request.schema import parse_request, resolve
from planner.request.sections import FilesRequest

MODULES = ("settings", "data", "model", "checkpoints")
FILES = {
    *(f"torchrun/{name}.py" for name in MODULES),
    "launcher.py",
    "README.md",
    "plan.json",
    *(f"torchrun/{name}" for name in ("train.py", "launch.sh", "config.json", "requirements.txt")),
    *(f"trainer/{name}" for name in ("train.py", "launch.sh", "sft.yaml")),
    "trainer/requirements.txt",
    *(f"llama-factory/{name}" for name in ("config.yaml", "dataset_info.json", "launch.sh")),
    "llama-factory/requirements.txt",
    *(f"launchers/{name}" for name in ("README.md", "slurm.sh", "docker.sh", "Dockerfile")),
    *(f"launchers/{name}" for name in ("ssh.sh", "ray_train.py", "storage.yaml", "job.yaml")),
    ".dockerignore",
}


@pytest.fixture
def planned() -> tuple[Plan, SuggestionAnswer]:
    request = parse_request({"model": "gpt2", "cluster": {"gpus_per_node": 2}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    return plan, answers.answer_plan(resolved, plan, None)


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_holds_every_file(tmp_path: Path, planned: tuple[Plan, Any]) -> None:
    folder = tmp_path / "deep" / "plan"
    write_bundle(folder, *planned, EVERY, force=False)
    assert written(folder) == FILES
    assert (folder / "torchrun/launch.sh").stat().st_mode & 0o100
    assert [path.name for path in folder.parent.iterdir()] == ["plan"]


def test_an_empty_folder_may_be_filled(tmp_path: Path, planned: tuple[Plan, Any]) -> None:
    (tmp_path / "plan").mkdir()
    write_bundle(tmp_path / "plan", *planned, EVERY, force=False)
    assert written(tmp_path / "plan") == FILES


def test_an_existing_folder_is_kept_unless_forced(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    write_bundle(tmp_path, *planned, EVERY, force=False)
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(InvalidInputError, match="not empty") as caught:
        write_bundle(tmp_path, *planned, EVERY, force=False)
    assert "--force" in caught.value.hint
    assert write_bundle(tmp_path, *planned, EVERY, force=True) == ()
    assert written(tmp_path) == {*FILES, "mine.txt"}
    assert mine.read_text() == "mine"


def test_what_was_edited_is_kept_when_it_is_replaced_or_removed(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    write_bundle(tmp_path, *planned, EVERY, force=False)
    new = {name: (tmp_path / name).read_text() for name in FILES}
    first, again = ("torchrun/train.py", "trainer/sft.yaml", "plan.json"), "torchrun/train.py"
    mine = {name: new[name].replace("import", "export").replace("true", "false") for name in first}
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    kept = write_bundle(tmp_path, *planned, EVERY, force=True)
    assert set(kept) == {f"{name}.orig" for name in first}
    (tmp_path / again).write_text("again")
    (tmp_path / "trainer" / "train.py").write_text("another")
    one = FilesRequest(targets=["torchrun"])
    kept = write_bundle(tmp_path, *planned, one, force=True)
    assert set(kept) == {f"{again}.orig.1", "trainer/train.py.orig"}
    for name, text in mine.items():
        assert (tmp_path / f"{name}.orig").read_text() == text
    assert (tmp_path / f"{again}.orig.1").read_text() == "again"
    assert (tmp_path / again).read_text() == new[again]
    left = {name for name in written(tmp_path) if name.startswith("trainer/")}
    assert left == {"trainer/sft.yaml.orig", "trainer/train.py.orig"}


def test_a_plan_json_names_no_file_but_those_of_plans(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    """It may come from anybody, and what it names is removed."""
    folder = tmp_path / "plan"
    write_bundle(folder, *planned, force=False)
    mine = {"notes.txt", "../outside.txt", "data/corpus.txt", "trainer/../../outside.txt"}
    plan = json.loads((folder / "plan.json").read_text())
    for name in mine:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
        plan["files"][name] = digest("mine")
    (folder / "plan.json").write_text(json.dumps(plan))
    assert not mine & earlier_files(folder).keys()
    write_bundle(folder, *planned, force=True)
    assert all((folder / name).read_text() == "mine" for name in mine)


def test_a_target_that_was_given_up_is_replaced_as_others_are(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    write_bundle(tmp_path, *planned, force=False)
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "train.py").write_text("earlier")
    plan["files"]["accelerate/train.py"] = digest("earlier")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    write_bundle(tmp_path, *planned, force=True)
    assert not (tmp_path / "accelerate").exists()


def test_files_that_no_plan_wrote_are_not_overwritten(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "torchrun").mkdir()
    (tmp_path / "torchrun" / "train.py").write_text("mine")
    for plan_json in (
        "",
        "[]",
        '{"files": 1}',
        '{"schema_version": 1, "files": {"README.md": 1}}',
        "{",
    ):
        (tmp_path / "plan.json").write_text(plan_json)
        with pytest.raises(InvalidInputError, match=r"README\.md, .*torchrun/train\.py") as caught:
            write_bundle(tmp_path, *planned, EVERY, force=True)
        assert caught.value.field == "out"
    assert written(tmp_path) == {"README.md", "plan.json", "torchrun/train.py"}
    assert (tmp_path / "README.md").read_text() == "mine"


def test_another_plan_leaves_no_target_of_the_earlier_one(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    write_bundle(tmp_path, *planned, EVERY, force=False)
    kept = {"torchrun/corpus.txt", "trainer/notes.py", "deepspeed/train.py", "checkpoints/final/a"}
    for name in kept:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    write_bundle(tmp_path, *planned, FilesRequest(targets=["torchrun"]), force=True)
    beside = {"README.md", "plan.json", "launcher.py"}
    of_torchrun = {name for name in FILES if name.startswith("torchrun/")}
    assert written(tmp_path) == of_torchrun | beside | kept
    assert not (tmp_path / "llama-factory").exists()
    (tmp_path / "llama-factory").symlink_to(tmp_path / "torchrun")
    with pytest.raises(InvalidInputError, match=r"llama-factory/launch\.sh, .*no plan wrote"):
        write_bundle(tmp_path, *planned, EVERY, force=True)


@pytest.mark.parametrize(
    ("recipe", "strategy"),
    [
        ({}, {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}),
        ({"framework": "deepspeed"}, {"zero_stage": 3}),
        ({"framework": "megatron"}, {}),
    ],
)
def test_every_file_of_a_plan_is_known_as_one(
    recipe: dict[str, Any], strategy: dict[str, Any], tmp_path: Path
) -> None:
    cluster = {"instance": "p4d.24xlarge", "nodes": 2}
    payload = {"model": "gpt2", "cluster": cluster, "recipe": recipe, "strategy": strategy}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    write_bundle(tmp_path, plan, answers.answer_plan(resolved, plan, None), EVERY, force=False)
    assert earlier_files(tmp_path).keys() == written(tmp_path)
    assert edited_files(tmp_path, earlier_files(tmp_path)) == set()


def test_a_failure_leaves_no_half_written_folder(
    tmp_path: Path, planned: tuple[Plan, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(planner.generate.folder, "_publish", full_disk)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_bundle(tmp_path / "plan", *planned, EVERY, force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(
    tmp_path: Path, planned: tuple[Plan, Any]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot write"):
        write_bundle(tmp_path / "file" / "plan", *planned, EVERY, force=False)


def test_the_files_carry_the_plans_numbers(planned: tuple[Plan, Any]) -> None:
    plan, answer = planned
    files = bundle_files(plan, answer, EVERY)
    strategy = plan.chosen.strategy
    assert f"MICRO_BATCH_SIZE = {strategy.micro_batch_size}" in script_of(files, "torchrun")
    assert "Train openai-community/gpt2" in files["README.md"]


def test_weights_on_the_disk_are_what_the_script_starts_from(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2}')
    request = parse_request({"model": str(tmp_path), "cluster": {"gpu": "a100"}})

    def script() -> str:
        resolved, plan = answers.suggest(request, allow_paths=True)
        return script_of(
            bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY), "torchrun"
        )

    assert 'default="pretrained"' not in script()
    (tmp_path / "model.safetensors").touch()
    assert f'MODEL = "{tmp_path}"' in script()
    assert 'default="pretrained"' in script()


@pytest.mark.parametrize(
    ("framework", "first"),
    [("torch", "trainer"), ("accelerate", "trainer"), ("deepspeed", "trainer")],
)
def test_a_framework_has_the_targets_that_its_estimates_hold_for(
    framework: str, first: str
) -> None:
    request = parse_request({"model": "gpt2", "recipe": {"framework": framework}})
    resolved, plan = answers.suggest(request, allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert f"${{TARGET:-{first}}}" in files["launchers/slurm.sh"]
    assert ("trainer/ds_config.json" in files) == (framework == "deepspeed")


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ({}, set()),
        ({"method": "lora"}, {"peft"}),
        ({"method": "qlora"}, {"peft", "bitsandbytes"}),
        ({"optimizer": "paged-adamw"}, {"bitsandbytes"}),
        ({"framework": "deepspeed"}, {"deepspeed"}),
    ],
)
def test_a_bundle_was_checked_with_what_its_files_import(
    recipe: dict[str, str], more: set[str]
) -> None:
    resolved, plan = answers.suggest(
        parse_request({"model": "gpt2", "recipe": {"framework": "torch"} | recipe}),
        allow_paths=False,
    )
    readme = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)["README.md"]
    _, checked = readme.split("**Checked with**: ")
    named = {words.split()[0] for words in checked.strip().split(", ")}
    assert named == {"torch", "transformers", "accelerate", "trl"} | more


def test_a_bundle_of_adapters_can_be_read_whole() -> None:
    cluster, recipe = {"gpu": "a100", "gpus_per_node": 4}, {"method": "lora"}
    request = parse_request({"model": "Qwen/Qwen3-8B", "cluster": cluster, "recipe": recipe})
    resolved, plan = answers.suggest(request, allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None))
    assert len(files) <= 8
    assert sum(text.count("\n") for text in files.values()) <= 350


def test_a_plans_numbers_are_literals_in_its_scripts(planned: tuple[Plan, Any]) -> None:
    """An estimate is NumPy's number, whose own text would be a name that no script has."""
    for name, text in bundle_files(*planned, EVERY).items():
        if name.endswith("/settings.py"):
            line = next(line for line in text.splitlines() if line.startswith("EXPECTED_TOKENS"))
            assert ast.literal_eval(line.partition(" = ")[2]) > 0


def test_the_spec_has_every_field_of_the_layout(
    planned: tuple[Plan, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the search proposes reaches the files, or is refused there."""
    seen: list[RunSpec] = []

    def keep(spec: RunSpec, *_: object) -> dict[str, str]:
        seen.append(spec)
        return {}

    monkeypatch.setattr(planner.generate.write_bundle, "generate", keep)
    plan, answer = planned
    pipeline = Layout(
        pipeline_parallel_size=2,
        tensor_parallel_size=3,
        gradient_accumulation_steps=2,
        zero_stage=1,
        recompute=Recompute.FULL,
    )
    chosen = replace(plan.chosen, strategy=pipeline)
    bundle_files(replace(plan, chosen=chosen), answer, EVERY)
    for name in FIELDS:
        assert getattr(seen[0], name) == getattr(pipeline, name)
    assert seen[0].layers_per_stage == (6, 6)


def test_a_refusal_says_with_what_there_are_files() -> None:
    recipe = {"framework": "nanotron", "sequence_length": 512, "global_batch_size": 64}
    model = "gpt2"
    resolved, plan = answers.suggest(
        parse_request({"model": model, "recipe": recipe}), allow_paths=False
    )
    (offer,) = plan.offers
    framework = offer.changes["recipe.framework"]
    with pytest.raises(InvalidInputError, match="type llama and mistral, not gpt2") as caught:
        bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert f"--framework {framework}" in caught.value.hint
    assert caught.value.hint.endswith(f": {offer.candidate.strategy.family}")
    again = {"model": model, "recipe": {**recipe, "framework": framework}}
    resolved, plan = answers.suggest(parse_request(again), allow_paths=False)
    assert "README.md" in bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


@pytest.mark.parametrize(
    ("cluster", "network", "is_direct"),
    [
        ({"gpu": "a100-sxm-80gb", "gpus_per_node": 8}, "", True),
        ({"gpu": "rtx-4090", "gpus_per_node": 4}, "", False),
        ({"nodes": 2, "inter_node": "ethernet-10g"}, "ethernet", True),
        ({"nodes": 2, "inter_node": "infiniband-ndr"}, "infiniband", True),
        ({"nodes": 2, "inter_node": "roce-400g"}, "infiniband", True),
        ({"nodes": 2, "inter_node": "aws-efa-v2"}, "efa", True),
        ({"nodes": 2}, "", True),
    ],
)
def test_what_nccl_talks_over(cluster: dict[str, Any], network: str, *, is_direct: bool) -> None:
    request = parse_request({"model": "gpt2", "cluster": {"gpu": "a100", **cluster}})
    resolved_cluster = resolve(request, allow_paths=False).job.cluster
    assert network_kind(resolved_cluster) == network
    assert has_peer_to_peer(resolved_cluster) is is_direct


def test_the_network_of_a_large_aws_instance_is_efa() -> None:
    payload = {"model": "gpt2", "cluster": {"instance": "p4d.24xlarge", "nodes": 2}}
    resolved_cluster = resolve(parse_request(payload), allow_paths=False).job.cluster
    assert network_kind(resolved_cluster) == "efa"


def test_a_model_folder_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tk").mkdir()
    Path("tk/config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 2}))
    for _ in range(2):
        recipe = {"framework": "torch"}
        cluster = {"gpus_per_node": 2}
        request = parse_request({"model": "./tk", "cluster": cluster, "recipe": recipe})
        resolved, plan = answers.suggest(request, allow_paths=True)
        files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
        assert f'MODEL = "{tmp_path}/tk"\n' in files["torchrun/settings.py"]
        Path("tk/model.safetensors").touch()


@pytest.mark.parametrize(
    ("framework", "model", "name", "words"),
    [
        ("torch", "gpt2", "launchers/slurm.sh", "get USR1, by which they save"),
        ("megatron", "gpt2", "launchers/slurm.sh", "scancel --signal=TERM"),
        (
            "torchtitan",
            "meta-llama/Llama-3.1-8B",
            "launchers/slurm.sh",
            "saves at its own interval",
        ),
        (
            "torchtitan",
            "meta-llama/Llama-3.1-8B",
            "README.md",
            "sdpa (in torchtitan `flex`) attention",
        ),
        (
            "torchtitan",
            "meta-llama/Llama-3.1-8B",
            "torchtitan/model.py",
            'attention_config("flex")',
        ),
        ("torch", "gpt2", "launcher.py", "setLevel(logging.CRITICAL)"),
    ],
)
def test_the_words_are_true_of_the_program_that_is_started(
    framework: str, model: str, name: str, words: str
) -> None:
    recipe = {"framework": framework, "attention": "sdpa"}
    payload = {"model": model, "cluster": {"gpus_per_node": 8, "gpu": "h100"}, "recipe": recipe}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert words in files[name]
    assert ("USR1, by which" in files["launchers/slurm.sh"]) == (framework == "torch")
