"""The generated files: complete, well formed, and closed to whatever a user's text contains."""

import ast
import io
import json
import posixpath
import re
import shlex
import subprocess
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_specs import divided, refusal, refused, script_of, with_layout
from run_specs import written as files_of
from script_checks import FORMAT, HOSTILE, LINT, TOOLS

from planner.core.errors import InvalidInputError
from planner.domain.strategy import Offload
from planner.generate import TARGETS, RunSpec, generate

SPEC = RunSpec(
    cuda_visible_devices="",
    model="openai-community/gpt2",
    revision="main",
    model_config={
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "note": 'it\'s <b>"fine"</b> & {{ so }}',
    },
    is_pretrained=True,
    task="causal-lm",
    nodes=1,
    gpus_per_node=8,
    data_parallel_replicate_size=8,
    data_parallel_shard_size=1,
    zero_stage=0,
    micro_batch_size=4,
    gradient_accumulation_steps=8,
    global_batch_size=256,
    sequence_length=1024,
    precision="bf16-mixed",
    attention="sdpa",
    optimizer="adamw",
    expected_peak_bytes=5 * 2**30,
    expected_reserved_bytes=6 * 2**30,
    expected_step_seconds=0.75,
    expected_tokens_per_second_per_gpu=43_690.6,
    flops_per_token=8.6e8,
    peak_flops_per_second=312e12,
    plan_summary="DDP on 8 GPUs, 4 sequences each, because the model fits with room to spare.",
    versions={
        "torch": "2.13.0+cpu",
        "transformers": "5.23.0",
        "accelerate": "1.15.0",
        "torchtitan": "0.3.0",
        "torchao": "0.18.0",
    },
)
GPT2 = {"model_type": "gpt2", "n_head": 4}
MANY_NODES = with_layout(SPEC, nodes=6, gradient_accumulation_steps=1, global_batch_size=192)
ONE_GPU = with_layout(SPEC, gpus_per_node=1, global_batch_size=32)
OWN_MODELS = ("nanotron", "torchtitan")
"""Targets that have no GPT-2, and are tried with a Llama."""
CONFIGURED = ("axolotl", "llama-factory")
"""Targets that are told all by a file."""
SCRIPTS = ("torchrun", "trainer")
ALL = tuple(name for name in TARGETS if name not in OWN_MODELS)
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
MODEL_KEYS = ("tokenizer_name_or_path", "base_model", "model_name_or_path")
TOKENIZER = "      data=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "


def in_reach(target: str, spec: RunSpec) -> RunSpec:
    """Return the spec, of a Llama where the target has no GPT-2."""
    return spec if target in ALL else replace(spec, model_config=LLAMA_8B)


def variants() -> Iterator[RunSpec]:
    precisions = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
    for zero_stage, precision, recompute, task in product(
        range(4),
        precisions,
        ("none", "full"),
        ("causal-lm", "masked-lm", "sequence-classification"),
    ):
        yield with_layout(
            SPEC, zero_stage=zero_stage, precision=precision, recompute=recompute, task=task
        )
        yield with_layout(
            replace(SPEC, framework="deepspeed"),
            zero_stage=zero_stage,
            precision=precision,
            recompute=recompute,
            task=task,
        )
        if zero_stage == 0:
            yield with_layout(
                ONE_GPU, precision=precision, recompute=recompute, task=task, is_pretrained=False
            )
    yield with_layout(SPEC, attention="flash")
    for zero_stage, task in product((0, 3), ("causal-lm", "sequence-classification")):
        yield with_layout(replace(SPEC, compile=True, task=task), zero_stage=zero_stage)
    yield with_layout(SPEC, synchronize_every=4)
    yield with_layout(SPEC, optimizer="muon")
    yield with_layout(ONE_GPU, optimizer="muon", compile=True, precision="fp16-mixed")
    hybrid = {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 4, "zero_stage": 3}
    yield with_layout(SPEC, **hybrid, offload="optimizer+parameters", recompute="selective")
    yield from divided_variants()
    for spec in (SPEC, MANY_NODES):
        yield replace(spec, sagemaker_type="ml.p4d.24xlarge")


LLAMA = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2}
TENSOR = {"tensor_parallel_size": 2}
PIPELINE = {"pipeline_parallel_size": 2}
CONTEXT = {"context_parallel_size": 2}
V_SHAPED = {"pipeline_schedule": "zbv", "virtual_pipeline_size": 2}


def divided_variants() -> Iterator[RunSpec]:
    """Yield plans that split the model: every axis with every way to reduce gradients."""
    splits: tuple[dict[str, Any], ...] = (
        TENSOR,
        TENSOR | {"sequence_parallel": True, "recompute": "selective"},
        PIPELINE | {"attention": "eager"},
        PIPELINE | V_SHAPED,
        CONTEXT | {"recompute": "full"},
        CONTEXT | PIPELINE | {"recompute": "selective"},
        CONTEXT | PIPELINE | V_SHAPED | TENSOR | {"sequence_parallel": True},
    )
    for split, zero_stage, data, precision, config in product(
        splits, range(4), (1, 2), ("fp32", "bf16-mixed"), (LLAMA, GPT2)
    ):
        layout = split | {"zero_stage": zero_stage, "data_parallel_size": data}
        yield divided(replace(SPEC, model_config=config, precision=precision), **layout)
    hybrid = {"data_parallel_replicate_size": 2, "data_parallel_shard_size": 2}
    for zero_stage, split in product((1, 3), splits[:3]):
        layout = split | hybrid | {"data_parallel_size": 4, "zero_stage": zero_stage}
        yield divided(replace(SPEC, model_config=LLAMA), **layout)


def test_a_bundle_has_every_file_of_its_targets() -> None:
    files = generate(SPEC, ALL)
    wanted = {
        posixpath.normpath(f"{target}/{name}")
        for target in ALL
        for name in (*TARGETS[target].templates, *TARGETS[target].more_templates(SPEC))
    }
    assert files.keys() == {"README.md"} | wanted
    assert json.loads(files["torchrun/config.json"]) == SPEC.model_config
    others = tuple(f"{target}/" for target in TARGETS if target != "torchrun")
    assert generate(SPEC, ["torchrun"]).keys() == {
        name for name in files if not name.startswith(others)
    }


def written(files: dict[str, str]) -> list[str]:
    """Return the targets that did not refuse the plan."""
    return [target for target in ALL if f"{target}/train.py" in files]


def scripts(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Every Python file that the targets and launchers write."""
    for name, text in files_of(spec, ALL).items():
        if name.endswith(".py"):
            yield name, text


@pytest.fixture(scope="module")
def distinct_scripts() -> set[str]:
    """What all variants write: many of them write the same."""
    return {text for spec in variants() for _, text in scripts(spec)}


@pytest.mark.parametrize("command", [FORMAT, LINT], ids=["format", "lint"])
def test_every_variant_is_formatted_linted_and_typed_python(
    distinct_scripts: set[str], command: tuple[str, ...], tmp_path: Path
) -> None:
    for number, text in enumerate(distinct_scripts):
        (tmp_path / f"{number}.py").write_text(text, encoding="utf-8")
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variant_compiles(distinct_scripts: set[str]) -> None:
    # The formatter has two empty lines between functions and nowhere else: what stands between
    # them is the same in many scripts, and compiles by itself.
    for part in {part for text in distinct_scripts for part in text.split("\n\n\n")}:
        compile(part, "train.py", "exec")


def test_only_the_chosen_strategy_is_in_the_script() -> None:
    names = (
        "DistributedDataParallel",
        "ZeroRedundancyOptimizer",
        "fully_shard",
        "GradScaler",
        "mask",
    )
    names_by_stage = {
        stage: [
            name
            in script_of(generate(with_layout(SPEC, zero_stage=stage), ["torchrun"]), "torchrun")
            for name in names
        ]
        for stage in range(4)
    }
    alone = script_of(generate(ONE_GPU, ALL), "torchrun")
    assert not any(name in alone for name in names)
    assert names_by_stage == {
        0: [True, False, False, False, False],
        1: [True, True, False, False, False],
        2: [False, False, True, False, False],
        3: [False, False, True, False, False],
    }


def test_only_the_chosen_division_is_in_the_script() -> None:
    words = ("parallelize_module", "PipelineStage", "all_gather_single", "fully_shard", "deal(")
    plan = replace(SPEC, model_config=LLAMA)

    def words_in_script(**layout: Any) -> list[bool]:
        script = script_of(generate(divided(plan, **layout), ["torchrun"]), "torchrun")
        return [word in script for word in words]

    assert words_in_script(**TENSOR) == [True, False, False, False, False]
    assert words_in_script(**PIPELINE) == [False, True, False, False, False]
    assert words_in_script(**CONTEXT) == [False, False, True, False, False]
    assert words_in_script(**TENSOR, zero_stage=3) == [True, False, False, True, False]
    assert words_in_script(**PIPELINE, zero_stage=1) == [False, True, False, False, True]


@pytest.mark.parametrize("spec", [SPEC, MANY_NODES], ids=["one-node", "many-nodes"])
@pytest.mark.parametrize("target", TARGETS)
def test_launchers_pass_shellcheck(target: str, spec: RunSpec, tmp_path: Path) -> None:
    script, own = tmp_path / "launch.sh", in_reach(target, spec)
    for summary in (SPEC.plan_summary, *HOSTILE):
        script.write_text(
            generate(replace(own, plan_summary=summary), [target])[f"{target}/launch.sh"],
            encoding="utf-8",
        )
        done = subprocess.run(
            [TOOLS / "shellcheck", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_the_readme_has_the_plans_numbers() -> None:
    readme = generate(SPEC, ALL)["README.md"]
    for number in ("5.00 GiB", "6.00 GiB", "750 ms", "43,691", "349,525", "262,144 a step"):
        assert number in readme
    assert readme.count("launch.sh --data") == len(ALL) - len(CONFIGURED)
    assert readme.count("\nbash launch.sh\n") == len(CONFIGURED)
    nodes = generate(MANY_NODES, ALL)["README.md"]
    assert "NODE_RANK=1 MASTER_ADDR=node0 bash launch.sh" in nodes
    assert "up to NODE_RANK=5 on node 5" in nodes


def requirements(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_requirements_name_kernels_for_layers_that_scan() -> None:
    config = {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}
    for target in ("torchrun", "trainer"):
        name = f"{target}/requirements.txt"
        scanning = generate(replace(SPEC, model_config=config), (target,))[name]
        assert "flash-linear-attention causal-conv1d" in scanning.splitlines()[-1]
        assert requirements(scanning) == requirements(generate(SPEC, (target,))[name])
        assert "flash-linear" not in generate(SPEC, (target,))[name]


def test_requirements_begin_with_the_oldest_that_ran_and_end_before_what_may_break_it() -> None:
    files = generate(replace(SPEC, oldest_versions={"accelerate": "1.10.1"}), ALL)
    assert requirements(files["torchrun/requirements.txt"]) == [
        "torch>=2.13.0,<2.14",
        "transformers>=5.23.0,<6",
        "datasets",
    ]
    text = files["trainer/requirements.txt"]
    assert "accelerate>=1.10.1,<2" in requirements(text)
    titan = generate(replace(SPEC, model_config=LLAMA_8B), ["torchtitan"])
    assert requirements(titan["torchtitan/requirements.txt"])[0] == "torch>=2.13.0,<2.14"
    assert "CUDA 13.0, which takes NVIDIA's driver 580 or newer" in text


def test_another_pytorch_that_is_installed_stays(tmp_path: Path) -> None:
    text = generate(SPEC, ("torchrun",))["torchrun/requirements.txt"]
    (command,) = re.findall(
        r"stays with: (grep .+) \| pip install -r /dev/stdin$", text, re.MULTILINE
    )
    (tmp_path / "requirements.txt").write_text(text + "torchao\n")
    left = subprocess.run(
        shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert requirements(left.stdout) == [*requirements(text)[1:], "torchao"]


def test_a_compiled_plan_compiles_its_blocks_or_is_refused() -> None:
    compiled = replace(SPEC, compile=True)
    for zero_stage in (0, 3):
        files = files_of(with_layout(compiled, zero_stage=zero_stage), ["torchrun"])
        assert script_of(files, "torchrun").count("block.compile()") == 1
        whole = with_layout(replace(compiled, compiles_whole=True), zero_stage=0)
        script = script_of(files_of(whole, ["torchrun"]), "torchrun")
        assert (script.count("model.compile()"), script.count("block.compile()")) == (1, 0)
    for is_whole in (False, True):
        files = generate(replace(compiled, compiles_whole=is_whole), ["trainer"])
        assert yaml.safe_load(files["trainer/sft.yaml"])["torch_compile"] is True
        assert ("USE_REGIONAL_COMPILATION=true" in files["trainer/launch.sh"]) != is_whole
    divided_over = divided(replace(compiled, model_config=LLAMA), **TENSOR)
    assert "divided over GPUs are not compiled" in refusal(divided_over, "torchrun")
    selective = with_layout(compiled, recompute="selective")
    assert "operations that compiling joins" in refusal(selective, "torchrun")


def test_the_kernel_of_flash_attention_is_installed_with_it() -> None:
    for attention in ("flash", "sdpa"):
        files = generate(with_layout(SPEC, attention=attention), ALL)
        texts = [files[f"{target}/requirements.txt"] for target in SCRIPTS]
        texts += [script_of(files, target) for target in SCRIPTS if target != "trainer"]
        for text in texts:
            assert ("pip install --no-build-isolation" in text) == (attention == "flash")
        readme = files["README.md"]
        shown = readme.count("\npip install --no-build-isolation flash-attn")
        assert shown == (4 if attention == "flash" else 0)
    hopper = generate(replace(SPEC, attention="flash", flash_version=3), ["torchrun"])
    assert "#subdirectory=hopper" in hopper["README.md"]
    assert '"flash_attn_interface"' in script_of(hopper, "torchrun")
    blackwell = generate(replace(SPEC, attention="flash", flash_version=4), ["torchrun"])
    assert "--no-build-isolation flash-attn-4" in blackwell["README.md"]
    assert "flash_attention_4" in script_of(blackwell, "torchrun")


def test_a_bare_configuration_starts_from_random_weights() -> None:
    """Unless the user names another model, whose weights are meant then."""
    meant = 'args.init = args.init or ("random" if args.model == MODEL else "pretrained")'
    for is_pretrained in (True, False):
        script = script_of(
            generate(with_layout(SPEC, is_pretrained=is_pretrained), ALL), "torchrun"
        )
        default = 'add("--init", choices=["pretrained", "random"], default="pretrained")'
        assert (default in script) == is_pretrained
        assert (meant in script) != is_pretrained


def test_an_unknown_target_is_refused_with_a_near_one() -> None:
    with pytest.raises(InvalidInputError, match="unknown target 'axolotll'") as caught:
        generate(SPEC, ["axolotll"])
    assert caught.value.hint == "did you mean axolotl?"
    with pytest.raises(InvalidInputError) as caught:
        generate(SPEC, ["slurm"])
    assert caught.value.hint == f"known targets: {', '.join(TARGETS)}"


def test_a_batch_that_does_not_multiply_out_is_refused() -> None:
    with pytest.raises(
        InvalidInputError, match="micro batch 4 x accumulation 8 x 8 GPUs = 256, not"
    ):
        generate(with_layout(SPEC, global_batch_size=255), ALL)


def texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(HOSTILE),
        st.text(max_size=60),
        st.text(alphabet="\"'\\`$(){}%;|&<>\n\r #!*[]", max_size=30),
    )


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_no_hostile_text_escapes_its_place(number: int) -> None:
    """Each is the model, the summary, and a name and a value of the configuration, on one node and on many."""
    model, summary, name, value = (HOSTILE[(number + turn) % len(HOSTILE)] for turn in range(4))
    plain = (SPEC, MANY_NODES)[number % 2]
    assert_all_in_place(plain, model, summary, {name: value})


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plain=st.sampled_from((SPEC, MANY_NODES)),
    model=texts(),
    summary=texts(),
    config=st.dictionaries(st.just("note") | texts(), texts(), max_size=2),
)
def test_no_text_escapes_its_place(
    plain: RunSpec, model: str, summary: str, config: dict[str, str]
) -> None:
    assert_all_in_place(plain, model, summary, config)


def assert_all_in_place(plain: RunSpec, model: str, summary: str, config: dict[str, str]) -> None:
    """Of the targets' files and the README; the launchers' have tests of their own, and so has each README alone."""
    for targets, base in ((ALL, SPEC.model_config), (OWN_MODELS, LLAMA_8B)):
        model_config = {**base, **config}
        hostile = replace(plain, model=model, plan_summary=summary, model_config=model_config)
        quiet = replace(plain, model="m", plan_summary="s", model_config=model_config)
        files, expected = generate(hostile, targets), generate(quiet, targets)
        assert files.keys() == expected.keys()
        folders = tuple(f"{target}/" for target in targets)
        is_whole = targets == ALL
        names = [name for name in files if name.startswith(folders)] + ["README.md"] * is_whole
        for name in names:
            assert_in_place(name, files[name], expected[name], model, model_config)


def assert_in_place(
    name: str, text: str, other: str, model: str, model_config: Mapping[str, object]
) -> None:
    if name.endswith(".py"):
        assert_same_python(text, other, model)
    elif name.endswith("/config.json"):
        assert json.loads(text) == model_config
    elif name == "README.md":
        assert_same_markdown(text, other, model)
    elif name.endswith((".sh", ".yaml")):
        assert_same_lines(text, other, model)
    else:
        assert text == other
    if name.endswith(".yaml"):
        read, expected = (yaml.safe_load(each) for each in (text, other))
        for key in MODEL_KEYS:
            for said, quiet in (
                (read, expected),
                (read.get("tokenizer"), expected.get("tokenizer")),
            ):
                if quiet and key in quiet:
                    assert (said.pop(key), quiet.pop(key)) == (model, "m")
        assert read == expected


def assert_same_python(script: str, expected: str, model: str) -> None:
    """The module docstring and, where a module has it, the value of MODEL differ, and no other code does."""
    if '\nMODEL = "m"\n' not in expected:
        expected += '\nMODEL = "m"\n'
        script += f"\nMODEL = {model!r}\n"
    expected_head, marker, rest = expected.partition('\nMODEL = "m"\n')
    assert marker
    # Where the first lines are whole statements and the others are equal, so is what those mean.
    assert script.endswith(f"\n{rest}")
    tree, expected_tree = ast.parse(script.removesuffix(rest)), ast.parse(expected_head)
    assignment = tree.body.pop()
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "MODEL"
    assert ast.literal_eval(assignment.value) == model
    for one in (tree, expected_tree):
        assert ast.get_docstring(one) is not None
        del one.body[0]
    assert ast.dump(tree) == ast.dump(expected_tree)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(script.encode()).readline)
    assert encoding == "utf-8"


def assert_same_lines(text: str, expected: str, model: str) -> None:
    """One comment differs, and stays on its line; a model is one quoted word, or one of YAML's texts."""
    lines = zip(text.splitlines(), expected.splitlines(), strict=True)
    different = [line for line, other in lines if line != other]
    words = [line for line in different if line.startswith(TOKENIZER)]
    for line in words:
        visible = "".join(c if c.isprintable() else " " for c in model)
        quoted = line.removeprefix(TOKENIZER).removesuffix(") ;;")
        assert shlex.split(quoted) == [" ".join(visible.split())]
    words += [line for line in different if line.lstrip().startswith(MODEL_KEYS)]
    comments = [line for line in different if line not in words]
    assert all(line.startswith("# Plan: ") for line in comments)
    assert len(comments) <= 1


def assert_same_markdown(text: str, expected: str, model: str) -> None:
    """The title and the summary differ, and neither becomes markup, HTML or a link; a command has the model as a word."""
    pairs = list(enumerate(zip(text.split("\n"), expected.split("\n"), strict=True)))
    shown = " ".join("".join(c if c.isprintable() else " " for c in model).split())
    for _, (line, other) in pairs:
        if line != other and other.startswith("python -c "):
            words = [shown if word == "m" else word for word in shlex.split(other)]
            assert shlex.split(line) == words
    different = [
        number
        for number, (line, other) in pairs
        if line != other and not other.startswith("python -c ")
    ]
    assert set(different) <= {0, 2}
    for number in different:
        line = text.split("\n")[number].replace("\\\\", "")
        assert "<" not in line
        assert "://" not in line
        assert all(line[i - 1] == "\\" for i, c in enumerate(line) if c in "`*_[|$" and i)


@pytest.mark.parametrize("target", TARGETS)
def test_ranks_follow_the_wiring_unless_the_user_says_otherwise(target: str) -> None:
    plain = in_reach(target, SPEC)
    crossed = generate(with_layout(plain, cuda_visible_devices="0,2,1,3"), [target])
    assert '"${CUDA_VISIBLE_DEVICES:-0,2,1,3}"' in crossed[f"{target}/launch.sh"]
    assert "CUDA_DEVICE_ORDER" not in generate(plain, [target])[f"{target}/launch.sh"]


def test_a_target_that_cannot_write_a_plan_is_left_out_with_its_reason() -> None:
    files = files_of(divided(replace(SPEC, model_config=LLAMA), **TENSOR), ALL)
    assert written(files) == ["torchrun"]
    assert "No files for **trainer**: Trainer divides the data" in files["README.md"]


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"model_config": {"model_type": "bert"}, **TENSOR}, "not models of type bert"),
        ({"model_config": LLAMA, "tensor_parallel_size": 4}, "do not divide 4 heads, 2 of keys"),
        ({"model_config": LLAMA, "expert_parallel_size": 2, **TENSOR}, "experts"),
        ({"model_config": LLAMA, "pipeline_schedule": "naive", **PIPELINE}, "naive"),
        ({"model_config": LLAMA, "pipeline_schedule": "zbv", **PIPELINE}, "1 chunks"),
        ({"model_config": LLAMA, "recompute": "full", **PIPELINE, **V_SHAPED}, "put off"),
        ({"model_config": LLAMA, "data_parallel_size": 8, **PIPELINE}, "at least 2 micro-batches"),
        (
            {"model_config": LLAMA | {"model_type": "mistral", "sliding_window": 512}, **CONTEXT},
            "the last 512 tokens",
        ),
        ({"model_config": LLAMA, "attention": "eager", **CONTEXT}, "eager"),
        ({"model_config": LLAMA, "offload": "optimizer", "zero_stage": 3}, "host memory together"),
        ({"model_config": LLAMA, "synchronize_every": 4, **TENSOR}, "whole replicas"),
        ({"synchronize_every": 4, "zero_stage": 1, "data_parallel_size": 2}, "whole replicas"),
    ],
)
def test_what_no_target_can_run_is_refused_with_each_ones_reason(
    layout: dict[str, Any], reason: str
) -> None:
    config = layout.pop("model_config", LLAMA)
    spec = divided(replace(SPEC, model_config=config), **layout)
    reasons = refused(spec, ("torchrun", "trainer"))
    assert list(reasons) == ["torchrun", "trainer"]
    assert reason in reasons["torchrun"]


def test_sizes_and_stages_must_multiply_out() -> None:
    with pytest.raises(InvalidInputError, match="8 x 1 x 2 x 1 x 1 = 16, not the 8 GPUs"):
        generate(replace(SPEC, tensor_parallel_size=2), ALL)
    with pytest.raises(InvalidInputError, match="3 stages have layers, not the 2"):
        generate(divided(SPEC, layers_per_stage=(1, 1, 1), **PIPELINE), ALL)


def test_chunks_lie_on_the_stages_as_their_schedule_says() -> None:
    interleaved = {"pipeline_schedule": "interleaved-1f1b", "virtual_pipeline_size": 2}
    plan = replace(SPEC, model_config=LLAMA)
    dealt = {
        name: generate(divided(plan, layers_per_stage=(3, 4), **PIPELINE, **schedule), ["torchrun"])
        for name, schedule in (("interleaved", interleaved), ("v", V_SHAPED))
    }
    # Stage 0 has 2 + 1 layers, stage 1 has 2 + 2; in a V the second chunks run backwards.
    assert "LAYERS_PER_STAGE = (2, 2, 1, 2)" in script_of(dealt["interleaved"], "torchrun")
    assert "LAYERS_PER_STAGE = (2, 2, 2, 1)" in script_of(dealt["v"], "torchrun")


@pytest.mark.parametrize("target", TARGETS)
def test_the_environment_follows_the_wiring(target: str) -> None:
    def launcher(**facts: Any) -> str:
        spec = replace(in_reach(target, MANY_NODES), **facts)
        return generate(spec, [target])[f"{target}/launch.sh"]

    assert "expandable_segments:True" in launcher()
    assert "NCCL_" not in launcher()
    assert "NCCL_P2P_DISABLE:-1" in launcher(has_peer_to_peer=False)
    assert "NCCL_IB_DISABLE:-1" in launcher(network="ethernet")
    assert "NCCL_IB_HCA" in launcher(network="infiniband")
    assert "FI_PROVIDER:-efa" in launcher(network="efa")


EIGHT_CORES = """nproc() { echo 16; }
lscpu() { printf '# CORE,SOCKET\\n'; for core in 0 1 2 3 0 1 2 3; do echo $core,0; echo $core,1; done; }"""


def test_an_optimizer_on_the_cpu_has_its_cores(tmp_path: Path) -> None:
    in_memory = with_layout(SPEC, gpus_per_node=2, global_batch_size=64, zero_stage=3)
    offloaded = replace(in_memory, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    for spec, threads in ((in_memory, "1"), (offloaded, "4")):
        files = generate(spec, ["torchrun"])
        assert (", fused=True" in script_of(files, "torchrun")) == (threads != "1")
        launcher = files["torchrun/launch.sh"].partition("\nexec ")[0]
        said = run_shell(f"{EIGHT_CORES}\n{launcher}\necho $OMP_NUM_THREADS", tmp_path)
        assert said == threads
        said = run_shell(f"nproc() {{ echo 1; }}\n{launcher}\necho $OMP_NUM_THREADS", tmp_path)
        assert said == "1"


def run_shell(script: str, folder: Path) -> str:
    """Return the last word of a script that is started without a number of threads."""
    file = folder / "script.sh"
    file.write_text(script)
    command = ["env", "-u", "OMP_NUM_THREADS", "bash", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_readme_says_who_does_what() -> None:
    layout = {"sequence_parallel": True, "zero_stage": 1, "data_parallel_size": 2}
    plan = divided(replace(SPEC, model_config=LLAMA), **TENSOR, **PIPELINE, **layout)
    readme = files_of(plan, ALL)["README.md"]
    for words in (
        plan.plan_summary,
        f"{plan.sequence_length:,} tokens a sequence",
        "N is a multiple of 4",
        "resumes on another number of GPUs, and on another layout",
    ):
        assert words in readme
    local = generate(with_layout(SPEC, synchronize_every=4), ["torchrun"])
    assert "DistributedDataParallel" not in script_of(local, "torchrun")
    once = script_of(generate(with_layout(SPEC, synchronize_every=1), ["torchrun"]), "torchrun")
    assert "average_parameters" not in once
