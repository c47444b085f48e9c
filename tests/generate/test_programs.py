"""A bundle speaks of the program that it starts: Megatron-LM's and torchtitan's have words of their own."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from run_specs import EVERY, with_launchers, with_layout
from script_checks import HOSTILE
from test_generate import LLAMA_8B, MANY_NODES, SPEC

from planner import answers
from planner.domain.strategy import Recompute
from planner.generate import TARGETS, RunSpec
from planner.generate.programs import main_program, program_of
from planner.generate.write_bundle import MEGATRON_COMMIT, bundle_files
from planner.request.schema import parse_request

FACTS = Path(__file__).parents[1] / "facts" / "megatron_options.txt"
ONE = with_layout(SPEC, model_config=LLAMA_8B)
SPECS = {
    "one-node": ONE,
    "recomputed": replace(ONE, recompute=Recompute.FULL, is_pretrained=False),
    "pipeline": with_layout(
        ONE, pipeline_parallel_size=2, layers_per_stage=(16, 16), gradient_accumulation_steps=16
    ),
    "many-nodes": replace(MANY_NODES, model_config=LLAMA_8B, sagemaker_type="ml.p4d.24xlarge"),
}
OURS = (
    r"(?<!_)train\.py",
    "--init ",
    r"--save-model",
    r"--save-every",
    r"--resume",
    r"--profile\b",
    r"--batch-size",
    r"--data ",
    r"--dataset ",
    r"--steps\b",
    r"--max-steps",
    r"--output(`| /)",
    r"--warmup",
    "GLOBAL_BATCH_SIZE",
    "MICRO_BATCH_SIZE",
    r"other scripts?",
    "pretrained weights",
    "step 1/1000: loss",
)
"""What only a train.py has."""


def files_for(framework: str) -> dict[str, str]:
    request = parse_request(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "cluster": {"gpu": "a100", "gpus_per_node": 8},
            "recipe": {"framework": framework},
        }
    )
    resolved, plan = answers.suggest(request, allow_paths=False)
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)


def text_of(files: dict[str, str]) -> str:
    return "\n".join(text for name, text in files.items() if name != "plan.json")


@pytest.mark.parametrize("target", ["megatron", "nanotron", "torchtitan"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_no_file_speaks_of_a_script_that_is_not_there(spec: RunSpec, target: str) -> None:
    text = text_of(with_launchers(spec, [target]))
    assert [word for word in OURS if re.search(word, text)] == []


def test_a_train_py_has_every_one_of_those_words_beside_it() -> None:
    text = text_of(with_launchers(SPECS["many-nodes"], ["torchrun"])) + "the other scripts"
    assert [word for word in OURS if not re.search(word, text)] == []


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_a_train_py_or_a_program_of_its_own(name: str) -> None:
    target = TARGETS[name]
    assert target.is_script == program_of(target).is_train_py


def test_where_one_script_is_a_train_py_the_readme_is_about_it() -> None:
    both = [TARGETS["megatron"], TARGETS["torchrun"]]
    assert main_program(both) == main_program(both[::-1]) == main_program([])
    assert main_program([]).is_train_py
    assert main_program(both[:1]) == program_of(TARGETS["megatron"])


def test_every_launcher_starts_megatron_by_its_own_arguments() -> None:
    files = with_launchers(SPECS["many-nodes"], ["megatron"])
    text = files["launchers/README.md"]
    own = "--data-path corpus_text_document --train-iters 1000 --save checkpoints"
    assert f"\nMEGATRON_PATH=~/Megatron-LM sbatch launchers/slurm.sh {own} " in text
    assert f"\nMEGATRON_PATH=~/Megatron-LM bash launchers/ssh.sh me@node{{0..5}} -- {own} " in text
    assert "go to `pretrain_gpt.py`" in text
    for name in ("slurm.sh", "ssh.sh"):
        assert "arguments of pretrain_gpt.py]" in files[f"launchers/{name}"]


def test_every_launcher_starts_torchtitan_by_its_own_arguments() -> None:
    files = with_launchers(SPECS["many-nodes"], ["torchtitan"])
    assert files["launchers/README.md"].count(" --training.steps 1000") == 4
    for name in ("job.yaml", "trainjob.yaml"):
        assert '"--training.steps", "1000"' in files[f"launchers/{name}"]


def test_each_launcher_shows_the_arguments_of_what_it_starts() -> None:
    text = with_launchers(SPECS["many-nodes"], ["megatron", "torchrun"])["launchers/README.md"]
    assert "sbatch launchers/slurm.sh --data-path" in text
    assert "docker.sh --data corpus.txt --steps 1000 --output" in text
    assert "go to `pretrain_gpt.py` or `train.py`" in text


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_megatron_has_every_argument_that_its_readmes_name(spec: RunSpec) -> None:
    files = with_launchers(spec, ["megatron"])
    text = files["README.md"] + files["launchers/README.md"]
    named = set(re.findall(r"--[a-z][a-z-]+", re.sub(r"--input.+\n.+\n", "", text)))
    assert {"--data-path", "--micro-batch-size", "--save-interval"} <= named
    assert named - {"--append", "--help", "--machine", "--pid", "--plan", "--recompute"} <= set(
        FACTS.read_text().split()
    )


def test_the_versions_are_those_of_the_bundles_own_targets() -> None:
    def checked(framework: str) -> list[str]:
        _, said = files_for(framework)["README.md"].split("**Checked with**: ")
        return said.partition(".\n")[0].split(", ")

    assert checked("megatron") == [
        "megatron-bridge 0.6.0",
        "megatron-core 0.16.1",
        f"Megatron-LM {MEGATRON_COMMIT}",
    ]
    assert f"Megatron-LM at {MEGATRON_COMMIT} " in FACTS.read_text()
    assert checked("torchtitan") == ["torch 2.14.0", "torchtitan 0.3.0"]
    assert "accelerate 1.10.1 and 1.15.0" in checked("torch")


@pytest.mark.parametrize("target", ["megatron", "nanotron", "torchtitan"])
def test_a_models_name_stays_in_its_place(target: str) -> None:
    quiet = with_launchers(replace(ONE, model="m"), [target])["README.md"].splitlines()
    for model in HOSTILE:
        readme = with_launchers(replace(ONE, model=model), [target])["README.md"].splitlines()
        changed = [line for line, other in zip(readme, quiet, strict=True) if line != other]
        assert all(
            line.startswith(("# ", "  --tokenizer-type", "hf ", "python -c ")) for line in changed
        )
