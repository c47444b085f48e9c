"""Megatron-LM's arguments: every name is one it has, and megatron-core accepts the values."""

import json
import re
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import JobMaker
from launched import GPT2, LLAMA, TINY, start, write
from megatron_cpu import CORE, core_config, options
from run_specs import job_of, layout_of, refusal, with_layout

from planner.catalog import records
from planner.domain.recompute_modules import names_of
from planner.domain.strategy import Recompute
from planner.generate import RunSpec
from planner.hardware.placement import RankGrid
from planner.targets import refusals

with warnings.catch_warnings():  # it misses Transformer Engine and Apex, which need a GPU
    warnings.simplefilter("ignore")
    from megatron.core.parallel_state import RankGenerator
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

FACTS = Path(__file__).parents[1] / "facts" / "megatron_options.txt"
KINDS = {"tensor": "tp", "context": "cp", "expert": "ep", "data": "dp", "pipeline": "pp"}
BIG = with_layout(
    TINY,
    nodes=2,
    gpus_per_node=8,
    model_config={
        **LLAMA,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    precision="bf16-mixed",
)
MIXTRAL = {
    **BIG.model_config,
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.02,
}
QWEN_MOE = {
    **BIG.model_config,
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 48,
    "num_experts": 8,
    "num_experts_per_tok": 4,
    "norm_topk_prob": False,
}


DEALT = {1: (1, 2, 3, 2), 2: (0, 1, 1, 1, 2, 1, 1, 1)}
"""Of 8 layers on 4 stages, chunk by chunk; by the chunks of a stage."""


def layouts() -> Iterator[RunSpec]:
    def batch(**layout: Any) -> RunSpec:
        spec = with_layout(BIG, **layout)
        size = spec.micro_batch_size * spec.gradient_accumulation_steps
        return with_layout(
            spec,
            global_batch_size=size * spec.data_parallel_size,
            data_parallel_replicate_size=spec.data_parallel_replicate_size,
        )

    for tensor, stages, context, stage in product((1, 2, 4), (1, 2), (1, 2), (0, 1)):
        yield batch(
            tensor_parallel_size=tensor,
            sequence_parallel=tensor > 1,
            pipeline_parallel_size=stages,
            layers_per_stage=(8 // stages,) * stages if stages > 1 else (),
            context_parallel_size=context,
            zero_stage=stage,
            gradient_accumulation_steps=4,
        )
    for virtual, layers in ((2, (2, 2, 2, 2)), (1, (1, 3, 3, 1))):
        yield batch(
            pipeline_parallel_size=4,
            virtual_pipeline_size=virtual,
            pipeline_schedule="interleaved-1f1b" if virtual > 1 else "1f1b",
            layers_per_stage=layers,
            gradient_accumulation_steps=8,
            zero_stage=1,
            offload="optimizer",
        )
    for virtual, chunks in DEALT.items():
        yield batch(
            pipeline_parallel_size=4,
            virtual_pipeline_size=virtual,
            pipeline_schedule="interleaved-1f1b" if virtual > 1 else "1f1b",
            pipeline_layout=chunks,
            layers_per_stage=tuple(sum(chunks[stage::4]) for stage in range(4)),
            gradient_accumulation_steps=8,
        )
    for precision, recompute, attention in product(
        ("fp32", "fp16-mixed", "bf16-mixed", "fp8"),
        ("none", "selective", "full"),
        ("eager", "flash"),
    ):
        yield batch(precision=precision, recompute=recompute, attention=attention)
    for scales in ("tensorwise", "blockwise", "mxfp8"):
        yield batch(precision="fp8", fp8_recipe=scales)
    for config, expert, tensor, precision in product(
        (MIXTRAL, QWEN_MOE), (1, 4), (1, 2), ("bf16-mixed", "fp8", "fp16-mixed")
    ):
        yield batch(
            model_config=config,
            expert_parallel_size=expert,
            tensor_parallel_size=tensor,
            sequence_parallel=tensor > 1,
            precision=precision,
            zero_stage=1,
        )
    yield batch(model_config=GPT2)
    yield batch(activation_offload_layers=7)
    yield batch(recompute="selective", recompute_modules=("mlp", "core_attn"))
    for modules, current in product(
        (("moe_act", "layernorm"), ("moe", "shared_experts")), (None, "tensorwise")
    ):
        yield batch(
            model_config=QWEN_MOE,
            recompute="selective",
            recompute_modules=modules,
            precision="fp8" if current else "bf16-mixed",
            fp8_recipe=current,
        )


def test_every_option_is_one_that_megatron_has() -> None:
    explicit = {line for line in FACTS.read_text().splitlines() if line.startswith("--")}
    assert len(explicit) > 500
    for spec in layouts():
        assert options(spec).keys() <= explicit | CORE.keys()


def dealt(config: TransformerConfig, spec: RunSpec) -> tuple[int, ...]:
    """Return how many layers Megatron builds of each stage in turn, chunk by chunk."""
    layout = config.pipeline_model_parallel_layout
    assert isinstance(layout, PipelineParallelLayerLayout)
    assert layout.virtual_pipeline_model_parallel_size == spec.virtual_pipeline_size
    stages, chunks = range(spec.pipeline_parallel_size), range(spec.virtual_pipeline_size)
    built = layout.layout
    return tuple(
        built[stage][chunk].count(LayerType.decoder) for chunk in chunks for stage in stages
    )


def test_megatron_core_accepts_every_layout_as_it_is_meant() -> None:
    for spec in layouts():
        config = core_config(options(spec))
        assert config.tensor_model_parallel_size == spec.tensor_parallel_size
        assert config.pipeline_model_parallel_size == spec.pipeline_parallel_size
        assert config.context_parallel_size == spec.context_parallel_size
        if spec.pipeline_layout:
            assert dealt(config, spec) == spec.pipeline_layout
        assert config.sequence_parallel == spec.sequence_parallel
        assert config.cpu_offloading == (spec.activation_offload_layers > 0)
        assert config.cpu_offloading_num_layers == spec.activation_offload_layers
        assert config.bf16 == (spec.precision in {"bf16-mixed", "fp8"})
        format_of_8_bit = "e4m3" if spec.fp8_recipe == "mxfp8" else "hybrid"
        assert config.fp8 == (format_of_8_bit if spec.precision == "fp8" else None)
        if spec.precision == "fp8":
            assert config.fp8_recipe == (spec.fp8_recipe or "delayed")
        assert config.expert_model_parallel_size == spec.expert_parallel_size
        assert config.expert_tensor_parallel_size == spec.ranks_per_expert
        assert config.fp16 == (spec.precision == "fp16-mixed")
        assert config.recompute_granularity == (
            None if spec.recompute == Recompute.NONE else str(spec.recompute)
        )
        is_named = spec.recompute == Recompute.SELECTIVE and spec.recompute_modules
        assert config.recompute_modules == (
            list(names_of(spec.recompute_modules)) if is_named else ["core_attn"]
        )


@pytest.mark.parametrize(
    "change",
    [
        {"--sequence-parallel": None},
        {"--tensor-model-parallel-size": "3"},
        {"--recompute-granularity": "some"},
        {"--recompute-granularity": "selective", "--recompute-modules": "moe_act"},
        {"--recompute-granularity": "selective", "--recompute-modules": "mla_up_proj"},
        {
            "--recompute-granularity": "selective",
            "--recompute-modules": "layernorm",
            "--fp8-format": "hybrid",
        },
        {"--num-query-groups": "3", "--tensor-model-parallel-size": "2"},
        {"--expert-model-parallel-size": "2"},
        {"--cpu-offloading": None, "--cpu-offloading-num-layers": "8"},
    ],
)
def test_megatron_core_would_refuse_a_contradiction(change: dict[str, str | None]) -> None:
    with pytest.raises((ValueError, AssertionError)):
        core_config(options(with_layout(BIG, global_batch_size=128)) | change)


@pytest.mark.parametrize(
    "model",
    [
        "meta-llama/Llama-3.1-8B",
        "Qwen/Qwen3-0.6B",
        "openai-community/gpt2",
        "mistralai/Mixtral-8x7B-v0.1",
        "Qwen/Qwen1.5-MoE-A2.7B",
        "Qwen/Qwen3-30B-A3B",
        "tiiuae/falcon-40b",
        "bigcode/starcoder",
        "bigcode/starcoder2-7b",
        "EleutherAI/gpt-neox-20b",
    ],
)
def test_published_models_keep_their_parameters(model: str, make_job: JobMaker) -> None:
    """Counted from Megatron's shapes: what its arguments build is the model of the plan."""
    published = make_job(model).model
    given = options(with_layout(TINY, model_config=published.config, sequence_length=1024))
    config = core_config(given)
    hidden, layers = config.hidden_size, config.num_layers
    attention = (
        2 * hidden * config.kv_channels * (config.num_attention_heads + config.num_query_groups)
    )
    width = config.ffn_hidden_size
    if config.num_moe_experts:
        shared = config.moe_shared_expert_intermediate_size or 0
        width = config.num_moe_experts * config.moe_ffn_hidden_size + shared
    mlp = (3 if "--swiglu" in given else 2) * hidden * width
    mlp += hidden * (config.num_moe_experts or 0)
    is_tied = "--untie-embeddings-and-output-weights" not in given
    embeddings = published.config["vocab_size"] * hidden * (1 if is_tied else 2)
    matrices = layers * (attention + mlp) + embeddings
    # Biases, norms and learned positions are what is left.
    assert matrices <= published.parameters <= 1.01 * matrices


@pytest.mark.parametrize(
    ("tensor", "context", "data", "pipeline"),
    [(2, 2, 4, 2), (4, 1, 8, 1), (1, 2, 2, 4), (8, 1, 1, 2)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_planners_groups_of_ranks_are_megatrons(
    kind: str, tensor: int, context: int, data: int, pipeline: int
) -> None:
    grid = RankGrid(
        tensor=tensor, context=context, expert=1, data=data, pipeline=pipeline, gpus_per_node=8
    )
    sizes = {"tp": tensor, "cp": context, "dp": data, "pp": pipeline, "ep": 1}
    theirs = RankGenerator(**sizes, order="tp-cp-ep-dp-pp").get_ranks(KINDS[kind])
    assert sorted(map(list, grid.groups(kind))) == sorted(theirs)


@pytest.mark.parametrize(("expert", "data"), [(2, 4), (4, 4)])
def test_the_planners_groups_of_experts_are_megatrons(expert: int, data: int) -> None:
    grid = RankGrid(tensor=1, context=1, expert=expert, data=data, pipeline=2, gpus_per_node=8)
    sizes = {"tp": 1, "cp": 1, "dp": data // expert, "pp": 2, "ep": expert}
    theirs = RankGenerator(**sizes, order="tp-cp-ep-dp-pp").get_ranks("ep")
    assert sorted(map(list, grid.groups("expert"))) == sorted(theirs)


TENSOR = {"tensor_parallel_size": 2, "global_batch_size": 8}


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"zero_stage": 3}, "ZeRO-1"),
        ({"precision": "bf16"}, "32-bit copy"),
        ({"model_config": {"model_type": "bloom"}}, "no sdpa attention for models of type bloom"),
        (
            {"model_config": {**LLAMA, "model_type": "gemma"}},
            "models of type gpt2, gpt_bigcode, .* more types, not gemma",
        ),
        (
            {
                "model_config": {**LLAMA, "model_type": "mistral", "sliding_window": 4},
                "context_parallel_size": 2,
                "global_batch_size": 8,
            },
            "rings no keys and values of attention within a window",
        ),
        (
            {"model_config": {**LLAMA, "rope_scaling": {"rope_type": "longrope"}}},
            "kind of rotary embedding",
        ),
        (
            {"model_config": {**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 32.0}}},
            "no arguments say factor of its rotary embedding",
        ),
        ({"model_config": {**LLAMA, "attention_bias": True}}, "biases everywhere"),
        ({"model_config": {**LLAMA, "rms_norm_eps": "$(reboot)"}}, "rms_norm_eps of its config"),
        ({"model_config": {**LLAMA, "rope_scaling": {"factor": []}}}, "factor of its config.json"),
        ({"model_config": {**LLAMA, "hidden_act": "gelu"}}, "with a gate whose function is gelu"),
        ({"model_config": {**GPT2, "n_head": 1}} | TENSOR, "1 attention heads, 1 of keys"),
        (
            {
                "model_config": {
                    **LLAMA,
                    "num_attention_heads": 6,
                    "hidden_size": 48,
                    "num_key_value_heads": 3,
                }
            }
            | TENSOR,
            "3 of keys",
        ),
        ({"synchronize_every": 2}, "averages gradients every step"),
        ({"offload": "optimizer"}, "offloads the optimizer's states alone"),
        ({"task": "masked-lm"}, "predicts the next token"),
        ({"expert_parallel_size": 2}, "without experts has none"),
        (
            {"model_config": MIXTRAL, "tensor_parallel_size": 2, "global_batch_size": 8},
            "sequence parallelism alone",
        ),
        ({"precision": "fp8", "framework": "megatron"}, "a100-sxm-80gb does not multiply in 8 bit"),
    ],
)
def test_what_megatron_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    spec = with_layout(TINY, **({"model_config": LLAMA} | layout))
    assert re.search(reason, refusal(spec, "megatron"))


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (
            MIXTRAL,
            {
                "--num-experts": "8",
                "--moe-ffn-hidden-size": "64",
                "--moe-router-topk": "2",
                "--moe-aux-loss-coeff": "0.02",
                "--moe-grouped-gemm": None,
                "--expert-model-parallel-size": "4",
                "--expert-tensor-parallel-size": "2",
            },
        ),
        (
            QWEN_MOE,
            {
                "--num-experts": "8",
                "--moe-ffn-hidden-size": "16",
                "--moe-router-topk": "4",
                "--moe-router-pre-softmax": None,
                "--moe-shared-expert-intermediate-size": "48",
                "--moe-shared-expert-gate": None,
                "--add-qkv-bias": None,
            },
        ),
    ],
)
def test_a_mixtures_experts_router_and_groups_are_arguments(
    config: dict[str, Any], arguments: dict[str, str | None]
) -> None:
    layout = {"expert_parallel_size": 4, "tensor_parallel_size": 2, "sequence_parallel": True}
    spec = with_layout(BIG, model_config=config, global_batch_size=64, zero_stage=1, **layout)
    assert not refusal(spec, "megatron")
    given = options(spec)
    assert arguments.items() <= given.items()
    # Mixtral's scores of the chosen experts sum to one, Qwen's as its config says.
    assert ("--moe-router-pre-softmax" in given) == (config is QWEN_MOE)
    scaled = with_layout(spec, model_config={**config, "norm_topk_prob": True})
    assert "--moe-router-pre-softmax" not in options(scaled)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({}, ""),
        ({"tensor_parallel_size": 4, "global_batch_size": 32}, "4 tensor-parallel ranks leave"),
        ({"sequence_length": 9, "micro_batch_size": 1, "global_batch_size": 16}, "multiples of 8"),
    ],
)
def test_eight_bit_takes_even_channels_and_tokens(layout: dict[str, Any], reason: str) -> None:
    spec = with_layout(BIG, precision="fp8", framework="megatron", **layout)
    job = job_of(spec)
    job = replace(job, cluster=replace(job.cluster, gpu=records.gpu("h100")))
    breaches = refusals(job, layout_of(spec), ["megatron"])
    assert (breaches["megatron"].reason if breaches else "").find(reason) >= 0
    assert bool(breaches) == bool(reason)


PRETRAIN = """
import json, os, sys
with open(f"{os.environ['RECORD']}-{os.environ['RANK']}", "w") as record:
    json.dump(sys.argv[1:], record)
"""


@pytest.mark.usefixtures("preloaded")
@pytest.mark.parametrize(
    "data",
    [
        (),
        ("--data-path", "corpus $(touch pwned)"),
        ("--data-path=corpus",),
        ("--train-data-path", "corpus"),
        ("--data-args-path=corpus",),
        ("--per-split-data-args-path", "corpus.json"),
        ("--data-cache-path", "cache"),
    ],
)
def test_the_script_hands_the_arguments_to_every_process(
    data: tuple[str, ...], tmp_path: Path
) -> None:
    model = 'it\'s/a "model"; $(touch pwned)'
    spec = with_layout(TINY, model=model, zero_stage=1)
    folder = write(tmp_path / "bundle", spec, "megatron")
    (tmp_path / "pretrain_gpt.py").write_text(PRETRAIN)
    variables = {"MEGATRON_PATH": str(tmp_path), "RECORD": str(tmp_path / "arguments")}
    start(folder, "bash", "megatron/launch.sh", *data, **variables).finish()
    first, second = (json.loads((tmp_path / f"arguments-{rank}").read_text()) for rank in range(2))
    assert first == second
    assert first[: first.index("--lr")].count("--use-distributed-optimizer") == 1
    if data and "cache" not in data:
        assert first[first.index("--tokenizer-model") + 1] == model
        assert "--mock-data" not in first
    else:
        assert "--mock-data" in first
    assert " ".join(data) in " ".join(first)
    assert not list(tmp_path.rglob("pwned"))


def test_a_missing_checkout_is_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "megatron")
    done = subprocess.run(
        ["bash", folder / "megatron" / "launch.sh"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "MEGATRON_PATH: set it to a checkout" in done.stderr


FALCON = {
    "model_type": "falcon",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
FINDS_LAYER = """
import importlib.util, sys
assert sys.argv[sys.argv.index("--spec") + 1 :][:2] == ["parallel_layer", "LAYER"]
print("found", importlib.util.find_spec("parallel_layer").origin)
"""


@pytest.mark.usefixtures("preloaded")
def test_a_layer_that_no_argument_says_is_found(tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", with_layout(TINY, model_config=FALCON), "megatron")
    (tmp_path / "pretrain_gpt.py").write_text(FINDS_LAYER)
    run = start(folder, "bash", "megatron/launch.sh", MEGATRON_PATH=str(tmp_path))
    assert f"found {folder}/megatron/parallel_layer.py" in run.output()


def test_weights_that_are_not_converted_yet_are_asked_for(tmp_path: Path) -> None:
    spec = with_layout(TINY, framework="megatron", model_config=LLAMA, is_pretrained=True)
    folder = write(tmp_path, spec, "megatron") / "megatron"
    bash = ["bash", str(folder / "launch.sh")]
    variables = {"PATH": "/usr/bin:/bin", "MEGATRON_PATH": str(tmp_path)}
    done = subprocess.run(bash, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 1
    assert "no folder pretrained: README.md makes it" in done.stderr
