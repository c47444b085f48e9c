"""What a log says of its precision, recompute, sharding and method: taken, and a layout of another refused."""

from typing import Any

import log_samples
import pytest

from planner.calibrate.logs.layout import measured_run
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.cli.layouts import read_layout
from planner.core.errors import InvalidInputError
from planner.request.schema import parse_request, resolve
from planner.request.strategy import requested_layout

LLAMA: dict[str, Any] = {"model": "meta-llama/Llama-2-7b-hf", "cluster": {"gpu": "h100"}}
TITAN: dict[str, Any] = {"model": "meta-llama/Llama-2-7b-hf"}
TRAINER: dict[str, Any] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "cluster": {"gpu": "h100", "gpus_per_node": 2},
    "recipe": {"sequence_length": 2048},
}
MESH = "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1"
MOST = 6_738_415_616
"""Parameters of Llama 2 7B."""


def read(text: str) -> Reading:
    return read_log_bytes("run.log", text.encode())


def megatron(**arguments: str) -> str:
    """A log of Megatron-LM whose table has these arguments, too."""
    lines = log_samples.megatron().splitlines()
    table = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    kept = [line for line in lines if not any(f" {name} .." in line for name in arguments)]
    return "\n".join([*kept[:2], *table, *kept[2:]])


def titan(*said: str, mesh: str = MESH) -> str:
    """A log of torchtitan that says more before its first step."""
    return "\n".join([*said, log_samples.torchtitan().replace(MESH, mesh)])


def with_(layout: dict[str, Any], section: str, **fields: Any) -> dict[str, Any]:
    return {**layout, section: {**layout.get(section, {}), **fields}}


def request_of(text: str, layout: dict[str, Any]) -> dict[str, Any]:
    run, _ = measured_run(read(text), layout)
    return {"recipe": {}, "strategy": {}, **run.request}


BLOCK = {
    "recompute_granularity": "full",
    "recompute_method": "block",
    "recompute_num_layers": "4",
}
UNIFORM = {**BLOCK, "recompute_method": "uniform", "recompute_num_layers": "1"}


def test_megatron_says_how_many_layers_recompute() -> None:
    some = request_of(megatron(**BLOCK), LLAMA)["strategy"]
    assert (some["recompute"], some["recompute_layers"]) == ("full", 4)
    every = request_of(megatron(**UNIFORM), LLAMA)["strategy"]
    assert every["recompute"] == "full"
    assert "recompute_layers" not in every
    unused = request_of(megatron(recompute_method="block", recompute_num_layers="4"), LLAMA)
    assert "recompute_layers" not in unused["strategy"]


@pytest.mark.parametrize("table", [BLOCK, UNIFORM])
def test_other_layers_than_megatron_recomputed_are_refused(table: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=r"recompute_layers.*, and the layout 8"):
        request_of(megatron(**table), with_(LLAMA, "strategy", recompute_layers=8))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"bf16": "True", "fp16": "False"}, {"precision": "bf16-mixed"}),
        ({"bf16": "False", "fp16": "True"}, {"precision": "fp16-mixed"}),
        ({"bf16": "True", "fp8": "hybrid", "fp8_recipe": "delayed"}, {"precision": "fp8"}),
        (
            {"bf16": "True", "fp8": "e4m3", "fp8_recipe": "mxfp8"},
            {"precision": "fp8", "fp8_recipe": "mxfp8"},
        ),
        ({"bf16": "True", "fp8": "None", "fp8_recipe": "delayed"}, {"precision": "bf16-mixed"}),
        ({"bf16": "False", "fp16": "False"}, {}),
    ],
)
def test_megatron_says_its_precision(table: dict[str, str], said: dict[str, str]) -> None:
    recipe = request_of(megatron(**table), LLAMA)["recipe"]
    assert {name: recipe[name] for name in recipe if name in {"precision", "fp8_recipe"}} == said
    if said:
        with pytest.raises(InvalidInputError, match=f"says precision {said['precision']}, and"):
            request_of(megatron(**table), with_(LLAMA, "recipe", precision="fp32"))


@pytest.mark.parametrize(
    ("line", "section", "name", "value", "other"),
    [
        (
            "Applied full activation checkpointing to the model",
            "strategy",
            "recompute",
            "full",
            "none",
        ),
        (
            "Applied selective activation checkpointing to the model",
            "strategy",
            "recompute",
            "selective",
            "full",
        ),
        ("Float8 training active", "recipe", "precision", "fp8", "bf16-mixed"),
        (
            "Float8 tensorwise scaled training active",
            "recipe",
            "precision",
            "fp8",
            "bf16-mixed",
        ),
        ("Compiling each TransformerBlock with torch.compile", "recipe", "compile", True, False),
    ],
)
def test_torchtitan_says_what_it_applied(
    line: str, section: str, name: str, value: Any, other: Any
) -> None:
    assert request_of(titan(line), TITAN)[section][name] == value
    assert name not in request_of(titan(), TITAN)[section]
    with pytest.raises(InvalidInputError, match=f"says {name} {value}, and the layout {other}"):
        request_of(titan(line), with_(TITAN, section, **{name: other}))


@pytest.mark.parametrize(
    ("said", "mesh", "stage"),
    [
        ((), MESH, 3),
        ((), "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]", 3),
        ((), MESH.replace("dp_replicate=1, dp_shard=4", "dp_replicate=2, dp_shard=2"), 3),
        ((), MESH.replace("dp_replicate=1, dp_shard=4", "dp_replicate=4, dp_shard=1"), None),
        (('fsdp_reshard_after_forward = "never"',), MESH, 2),
        (("fsdp_reshard_after_forward='always'",), MESH, 3),
    ],
)
def test_a_mesh_that_shards_is_fsdp(said: tuple[str, ...], mesh: str, stage: int | None) -> None:
    request = request_of(titan(*said, mesh=mesh), TITAN)
    assert request["strategy"].get("zero_stage") == stage
    assert request["cluster"]["gpus_per_node"] == 8
    job = resolve(parse_request(request), allow_paths=False).job
    assert requested_layout(parse_request(request).strategy, job).zero_stage == (stage or 0)


def test_a_layout_says_its_own_kind_of_fsdp_and_no_ddp() -> None:
    for strategy in ({"zero_stage": 2}, {"family": "tp+zero-2"}):
        request = request_of(titan(), {**TITAN, "strategy": strategy})
        assert request["strategy"].get("zero_stage", 2) == 2
    for strategy in ({"zero_stage": 0}, {"family": "ddp"}):
        with pytest.raises(InvalidInputError, match=r"FSDP \(data_parallel_shard_size 4\), and"):
            request_of(titan(), {**TITAN, "strategy": strategy})


def test_a_pipeline_of_torchtitan_is_asked_for_its_micro_batch() -> None:
    mesh = MESH.replace("pp=1", "pp=2").replace("dp_shard=4", "dp_shard=2")
    with pytest.raises(InvalidInputError, match="--micro-batch-size N missing"):
        request_of(titan(mesh=mesh), TITAN)
    request = request_of(titan(mesh=mesh), with_(TITAN, "strategy", micro_batch_size=1))
    assert request["strategy"]["zero_stage"] == 2


@pytest.mark.parametrize(
    ("name", "precision", "same", "other"),
    [
        ("bfloat16", "bf16-mixed", "bf16", "fp16-mixed"),
        ("fp16", "fp16-mixed", "fp16-mixed", "bf16-mixed"),
    ],
)
def test_deepspeed_says_its_precision(name: str, precision: str, same: str, other: str) -> None:
    text = log_samples.deepspeed()
    for each in ("bfloat16", "fp16"):
        text = f"[config.py:1003:print]   {each}_enabled ............. {each == name}\n{text}"
    layout = with_(TRAINER, "cluster", gpus_per_node=2)
    assert request_of(text, layout)["recipe"]["precision"] == precision
    assert request_of(text, with_(layout, "recipe", precision=same))["recipe"]["precision"] == same
    with pytest.raises(InvalidInputError, match=f"says precision {precision}, and the layout"):
        request_of(text, with_(layout, "recipe", precision=other))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (log_samples.megatron(), "megatron"),
        (log_samples.torchtitan(), "torchtitan"),
        (log_samples.deepspeed(), "deepspeed"),
    ],
)
def test_a_layout_of_another_framework_is_refused(text: str, said: str) -> None:
    layout = with_(TRAINER, "recipe", framework="torch")
    layout["cluster"] = {"gpu": "h100"}
    with pytest.raises(InvalidInputError, match=f"says framework {said}, and the layout torch"):
        request_of(text, layout)


def trained(parameters: int) -> str:
    start = "  Total optimization steps = 30"
    more = f"{start}\n  Number of trainable parameters = {parameters:,}"
    return log_samples.trainer().replace(start, more)


@pytest.mark.parametrize(
    ("parameters", "method"),
    [
        (MOST, {}),
        (MOST // 2, {}),  # what a rank of FSDP's first version holds
        (8_388_608, {"method": "lora", "lora": {"rank": 16}}),
        (8_388_608, {"method": "qlora", "lora": {"rank": 16}}),
    ],
)
def test_what_trainer_says_to_train_is_the_layouts(parameters: int, method: dict[str, Any]) -> None:
    request_of(trained(parameters), with_(TRAINER, "recipe", **method))


@pytest.mark.parametrize(
    ("parameters", "method", "said"),
    [
        (20_971_520, {}, "adapters .lora or qlora. or frozen layers, and the layout full with"),
        (MOST, {"method": "qlora"}, "full fine-tuning, and the layout qlora with"),
        (20_971_520, {"method": "lora"}, "and the layout lora with"),
    ],
)
def test_another_method_than_trainer_says_is_refused(
    parameters: int, method: dict[str, Any], said: str
) -> None:
    with pytest.raises(
        InvalidInputError, match=f"says {parameters:,} trainable parameters: .*{said}"
    ):
        request_of(trained(parameters), with_(TRAINER, "recipe", **method))


NANOGPT = "gpt2 --gpus 1 --gpu a100 --seq-len 1024 --micro-batch-size 4"
"""The log's steps are of 8,192 tokens."""


@pytest.mark.parametrize("batch", ["", "--global-batch-size 8192tokens", "--global-batch-size 8"])
def test_a_batch_may_be_said_in_tokens_by_log_or_layout(batch: str) -> None:
    layout = read_layout(f"{NANOGPT} {batch}")
    assert layout is not None
    request = request_of(log_samples.nanogpt(), layout)
    assert request["recipe"]["global_batch_size"] == 8
    assert "global_batch_tokens" not in request["recipe"]


@pytest.mark.parametrize("batch", ["--global-batch-size 0.5M", "--accumulation-steps 1"])
def test_another_batch_than_a_log_says_in_tokens_is_refused(batch: str) -> None:
    layout = read_layout(f"{NANOGPT} {batch}")
    assert layout is not None
    with pytest.raises(InvalidInputError, match="says 8,192 tokens a step, and the layout"):
        request_of(log_samples.nanogpt(), layout)


def test_a_layout_in_tokens_is_compared_with_a_log_in_sequences() -> None:
    """128 sequences of 2,048 tokens are 262,144."""
    said = request_of(log_samples.megatron(), with_(LLAMA, "recipe", global_batch_tokens=250_000))
    assert said["recipe"]["global_batch_size"] == 128
    assert "global_batch_tokens" not in said["recipe"]
    with pytest.raises(InvalidInputError, match="batch_size 128, and the layout 500,000 tokens"):
        request_of(log_samples.megatron(), with_(LLAMA, "recipe", global_batch_tokens=500_000))
