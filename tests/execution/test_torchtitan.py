"""plan.py as torchtitan's own ConfigManager and ParallelDims read it, and its launch script."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launched import TINY, start, write
from run_specs import refusal, with_layout
from script_checks import FORMAT, HOSTILE, LINT

from planner.generate import RunSpec, generate
from planner.generate.programs import KEPT, save_every

SHELLCHECK = Path(sys.executable).parent / "shellcheck"
READ_PLAN = Path(__file__).parent / "titan" / "read_plan.py"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
MIXTURE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "vocab_size": 151936,
}
DEEPSEEK = json.loads(Path("data/models/deepseek-ai--DeepSeek-V3.json").read_text())["config"]
GPT_OSS = json.loads(Path("data/models/openai--gpt-oss-20b.json").read_text())["config"]
VERSIONS = {"torch": "2.14.0", "torchtitan": "0.3.0", "torchao": "0.18.0"}
TITAN = replace(TINY, framework="torchtitan", versions=VERSIONS)
LLAMA = with_layout(TITAN, model_config=CONFIG, gpus_per_node=8, global_batch_size=64)


def on_eight_gpus(**layout: Any) -> RunSpec:
    """Return the plan with that layout, and the global batch that follows from it."""
    spec = with_layout(LLAMA, **layout)
    size = spec.micro_batch_size * spec.gradient_accumulation_steps * spec.data_parallel_size
    return replace(spec, global_batch_size=size)


PIPELINE = {
    "pipeline_parallel_size": 2,
    "layers_per_stage": (16, 16),
    "gradient_accumulation_steps": 8,
}
LAYOUTS = {
    "ddp": LLAMA,
    "sharded": on_eight_gpus(zero_stage=3, precision="bf16-mixed", recompute="full"),
    "gathered": on_eight_gpus(zero_stage=2, precision="bf16", recompute="selective"),
    "hybrid": on_eight_gpus(
        zero_stage=3, data_parallel_replicate_size=2, data_parallel_shard_size=4
    ),
    "offloaded": on_eight_gpus(zero_stage=3, offload="optimizer+parameters"),
    "compiled": on_eight_gpus(zero_stage=3, compile=True),
    "rowwise": on_eight_gpus(
        zero_stage=3, compile=True, precision="fp8", fp8_recipe="rowwise", tensor_parallel_size=2
    ),
    "mxfp8": on_eight_gpus(zero_stage=3, compile=True, precision="fp8", fp8_recipe="mxfp8"),
    "mixture": on_eight_gpus(
        model_config=MIXTURE,
        zero_stage=3,
        expert_parallel_size=4,
        compile=True,
        precision="fp8",
        fp8_recipe="rowwise",
    ),
    "mixture-mxfp8": on_eight_gpus(
        model_config=MIXTURE, zero_stage=3, compile=True, precision="fp8", fp8_recipe="mxfp8"
    ),
    "folded": on_eight_gpus(
        model_config=DEEPSEEK,
        zero_stage=3,
        precision="bf16-mixed",
        tensor_parallel_size=4,
        sequence_parallel=True,
        expert_parallel_size=8,
        expert_tensor_parallel_size=1,
    ),
    "uneven": on_eight_gpus(
        model_config=DEEPSEEK,
        zero_stage=2,
        precision="bf16-mixed",
        expert_parallel_size=2,
        pipeline_parallel_size=4,
        layers_per_stage=(15, 15, 16, 15),
        gradient_accumulation_steps=8,
    ),
    "gpt-oss": on_eight_gpus(
        model_config=GPT_OSS, zero_stage=3, precision="bf16-mixed", expert_parallel_size=8
    ),
    "tensor": on_eight_gpus(zero_stage=2, tensor_parallel_size=2, sequence_parallel=True),
    "context": on_eight_gpus(zero_stage=3, context_parallel_size=2),
    "pipeline": on_eight_gpus(zero_stage=2, **PIPELINE),
    "interleaved": on_eight_gpus(
        virtual_pipeline_size=2, pipeline_schedule="interleaved-1f1b", **PIPELINE
    ),
}


def read(folder: Path, jobs: list[list[Any]]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", READ_PLAN],
        cwd=folder,
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


MISTAKES = {
    ("tensor_parallel_degree=1", "tensor_parallel_degre=1"): "TypeError",
    ("tensor_parallel_degree=1", "tensor_parallel_degree=3"): "Invalid parallel dims",
    ("seq_len=", "sequence_length="): "TypeError",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What torchtitan makes of all layouts, in one process: its imports take seconds."""
    folder = tmp_path_factory.mktemp("plans")
    jobs = [
        [str(write(folder / name, spec, "torchtitan") / "torchtitan"), spec.world_size]
        for name, spec in LAYOUTS.items()
    ]
    for number, (right, wrong) in enumerate(MISTAKES):
        path = write(folder / str(number), LLAMA, "torchtitan") / "torchtitan" / "plan.py"
        text = path.read_text()
        assert right in text
        path.write_text(text.replace(right, wrong))
        jobs.append([str(path.parent), LLAMA.world_size])
    return read(folder, jobs)


@pytest.mark.parametrize("name", LAYOUTS)
def test_torchtitan_reads_every_layout_as_it_is_meant(name: str, answers: dict[str, Any]) -> None:
    spec, plan = LAYOUTS[name], answers["plans"][list(LAYOUTS).index(name)]
    training, parallelism = plan["training"], plan["parallelism"]
    assert plan["dims"] == {
        "dp_replicate": spec.data_parallel_replicate_size,
        "dp_shard": spec.data_parallel_shard_size,
        "tp": spec.tensor_parallel_size,
        "pp": spec.pipeline_parallel_size,
        "ep": spec.expert_parallel_size,
    }
    assert parallelism["context_parallel_degree"] == spec.context_parallel_size
    assert parallelism["enable_sequence_parallel"] == spec.sequence_parallel
    policy = {0: "default", 2: "never", 3: "always"}[spec.zero_stage]
    assert parallelism["fsdp_reshard_after_forward"] == policy
    assert plan["checkpoint"]["interval"] == save_every(spec)
    assert plan["checkpoint"]["keep_latest_k"] == KEPT
    assert plan["checkpoint"]["initial_load_in_hf"] == spec.is_pretrained
    assert training["global_batch_size"] == spec.global_batch_size
    assert training["seq_len"] == spec.sequence_length
    assert training["enable_cpu_offload"] == spec.offloads_optimizer
    assert training["dtype"] == ("bfloat16" if spec.precision == "bf16" else "float32")
    assert training["mixed_precision_param"] == (
        "float32" if spec.precision == "fp32" else "bfloat16"
    )
    assert (
        plan["recompute"]
        == {"none": None, "full": "FullAC", "selective": "SelectiveAC"}[str(spec.recompute)]
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("compiled", "Linear"), ("rowwise", "Float8Linear"), ("mxfp8", "MXFP8Linear")],
)
def test_the_linears_of_blocks_multiply_in_8_bit(
    name: str, kind: str, answers: dict[str, Any]
) -> None:
    linears = answers["plans"][list(LAYOUTS).index(name)]["linears"]
    of_blocks = 32 * len(("qkv", "wo", "w1", "w2", "w3"))
    expected = dict.fromkeys(linears, 0) | {"Linear": 1}  # the head
    expected[kind] += of_blocks
    assert linears == expected


@pytest.mark.parametrize(("name", "kind"), [("mixture", 1), ("mixture-mxfp8", 2)])
def test_experts_multiply_in_8_bit_and_routers_do_not(
    name: str, kind: int, answers: dict[str, Any]
) -> None:
    plan = answers["plans"][list(LAYOUTS).index(name)]
    assert plan["experts"] == [48 if number == kind else 0 for number in range(3)]
    assert sorted(plan["linears"].values()) == [0, 49, 96]  # routers and the head; qkv and wo


@pytest.mark.parametrize("name", ["pipeline", "interleaved", "uneven"])
def test_a_pipeline_has_the_plans_micro_batches_and_stages(
    name: str, answers: dict[str, Any]
) -> None:
    spec, plan = LAYOUTS[name], answers["plans"][list(LAYOUTS).index(name)]
    training, parallelism = plan["training"], plan["parallelism"]
    size = parallelism["pipeline_parallel_microbatch_size"]
    assert size == spec.micro_batch_size
    assert training["local_batch_size"] // size == spec.gradient_accumulation_steps
    stages = parallelism["module_fqns_per_model_part"]
    layers = [[part for part in stage if part.startswith("layers.")] for stage in stages]
    expected = [f"layers.{number}" for number in range(sum(spec.layers_per_stage))]
    assert [layer for stage in layers for layer in stage] == expected
    ranks = spec.pipeline_parallel_size
    assert [sum(map(len, layers[rank::ranks])) for rank in range(ranks)] == [*spec.layers_per_stage]
    assert (stages[0][0], stages[-1][-2:]) == ("tok_embeddings", ["norm", "lm_head"])
    schedule = {"interleaved": "Interleaved1F1B"}.get(name, "1F1B")
    assert parallelism["pipeline_parallel_schedule"] == schedule


@pytest.mark.parametrize(
    ("layout", "parameters"),
    [
        ("ddp", 8_030_261_248),
        # Without the layer that predicts a second token, which torchtitan's has where it is asked for.
        ("folded", 671_026_404_352),
        ("gpt-oss", 20_914_757_184),
    ],
)
def test_a_model_has_as_many_parameters_as_transformers_has(
    layout: str, parameters: int, answers: dict[str, Any]
) -> None:
    assert answers["plans"][list(LAYOUTS).index(layout)]["parameters"] == parameters


def test_a_mistake_would_be_seen(answers: dict[str, Any]) -> None:
    found = answers["plans"][len(LAYOUTS) :]
    for error, answer in zip(MISTAKES.values(), found, strict=True):
        assert error in answer["error"]


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"model_config": {**CONFIG, "model_type": "gemma"}}, "not gemma"),
        ({"model_config": {**CONFIG, "hidden_size": "2048"}}, "no size in hidden_size"),
        ({"model_config": {**CONFIG, "attention_bias": True}}, "no attention_bias of True"),
        (
            {"model_config": {**CONFIG, "model_type": "mistral"}, "sequence_length": 8192},
            "last 4096",
        ),
        ({"model_config": {**CONFIG, "rope_scaling": {"type": "linear"}}}, "not linear"),
        ({"model_config": {**CONFIG, "rope_theta": "1e4"}}, "no numbers"),
        ({"model_config": {**GPT_OSS, "num_hidden_layers": 12}}, "20b and 120b alone"),
        ({"model_config": {**DEEPSEEK, "n_group": 200}}, "in 200 groups"),
        (
            {"model_config": {**DEEPSEEK, "rope_scaling": {"type": "yarn", "mscale": 2.0}}},
            "mscale_all_dim differ",
        ),
        ({"task": "sequence-classification"}, "trains causal-lm"),
        (
            {
                "model_config": {**CONFIG, "tie_word_embeddings": True},
                "pipeline_parallel_size": 2,
                "layers_per_stage": (16, 16),
            },
            "do not tie",
        ),
        ({"context_parallel_size": 2, "attention": "flash"}, "FlexAttention alone"),
        ({"context_parallel_size": 2, "sequence_length": 128}, "blocks of 128"),
        ({"zero_stage": 1}, "not ZeRO-1"),
        ({"precision": "fp16-mixed"}, "fp32 computed with in bf16"),
        ({"attention": "eager"}, "masks documents"),
        ({"offload": "optimizer", "zero_stage": 3}, "with the parameters"),
        ({"offload": "optimizer+parameters"}, "what FSDP shards"),
        ({"synchronize_every": 2}, "averages gradients every step"),
        ({"model_config": MIXTURE}, "multiply in bf16"),
        ({"model_config": MIXTURE, "precision": "bf16", "expert_parallel_size": 8}, "is no part"),
        (
            {
                "model_config": MIXTURE,
                "precision": "bf16",
                "zero_stage": 3,
                "tensor_parallel_size": 4,
                "expert_parallel_size": 2,
            },
            "not divided",
        ),
    ],
)
def test_what_torchtitan_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(with_layout(LLAMA, **layout), "torchtitan"))


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_text_escapes_its_place(nodes: int, tmp_path: Path) -> None:
    spec = with_layout(LLAMA, nodes=nodes, global_batch_size=64 * nodes)
    quiet = generate(spec, ["torchtitan"])
    expected = ast.parse(quiet["torchtitan/plan.py"])
    for number, text in enumerate(HOSTILE):
        hostile = replace(spec, plan_summary=text, model=text, revision=text)
        files = generate(hostile, ["torchtitan"])
        tree = ast.parse(files["torchtitan/plan.py"])
        assert [*map(ast.dump, tree.body[1:])] == [*map(ast.dump, expected.body[1:])]
        assert files["torchtitan/requirements.txt"] == quiet["torchtitan/requirements.txt"]
        (tmp_path / f"{number}.sh").write_text(files["torchtitan/launch.sh"])
        (tmp_path / f"{number}.py").write_text(files["torchtitan/plan.py"])
        assert files["torchtitan/model.py"] == quiet["torchtitan/model.py"]
    scripts = sorted(tmp_path.glob("*.sh"))
    subprocess.run([SHELLCHECK, *scripts], check=True)
    for command in (FORMAT, LINT):
        subprocess.run([*command, tmp_path], check=True)


TRAIN = """
import json, os, sys
import plan
with open(f"{os.environ['RECORD']}-{os.environ['RANK']}", "w") as record:
    json.dump(sys.argv[1:], record)
"""


def test_every_process_starts_torchtitan_with_the_plan(tmp_path: Path) -> None:
    spec = with_layout(LLAMA, gpus_per_node=2, global_batch_size=16)
    folder = write(tmp_path / "a folder", spec, "torchtitan")
    package = tmp_path / "torchtitan"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(TRAIN)
    (folder / "torchtitan" / "plan.py").write_text("")
    variables = {"PYTHONPATH": str(tmp_path), "RECORD": str(tmp_path / "arguments")}
    start(folder, "bash", "torchtitan/launch.sh", "--a", "b c", **variables).finish()
    for rank in range(2):
        arguments = json.loads((tmp_path / f"arguments-{rank}").read_text())
        assert arguments[:6] == ["--module", "plan", "--config", "plan", "--a", "b c"]
