"""docs/questions.md cannot lie: every table in it is what the planner answers now.

`pytest --update-golden tests/test_questions_page.py` rewrites them; read the diff.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_docs import check_block

from planner.cli import cli
from planner.core.units import format_bytes, format_seconds

PAGE = Path(__file__).parents[1] / "docs/questions.md"
QUESTIONS = (
    "Why is it not faster on more GPUs?",
    "DDP or gradient accumulation?",
    "What does --multi_gpu do?",
    "PCIe without peer-to-peer: what can be done?",
    "Why does ZeRO-3 take more memory than ZeRO-1?",
    "Do I need the second node?",
    "Which ZeRO stage?",
    "Does DPO's reference model fit?",
    "Tensor parallelism or a pipeline?",
    "DeepSpeed or FSDP?",
    "How do I get from FSDP 1 to FSDP 2?",
    "How do I save and resume?",
    "Is data loading the bottleneck?",
    "Why does evaluation run out of memory?",
    "How accurate is this?",
)
TITANS = "gpt2 --gpus 2 --gpu titan-rtx --intra-node pcie-3-x16 --no-peer-to-peer --precision fp32"
BERT = (
    "bert-large-uncased --gpus 4 --gpu titan-rtx --no-peer-to-peer --precision fp16 --seq-len 384"
    " --attention eager --task token-classification --micro-batch-size 10 --optimizer adamw --accumulation-steps 1"
    " --gradient-reduce-dtype bf16"
)
LLAMA = "meta-llama/Llama-2-7b-hf --gpus 8 --gpu a100-80gb"
PUBLISHED = (2.4, 2.8, 3.2, 3.4, 3.6)


@cache
def ask(command: str) -> Any:
    result = CliRunner().invoke(cli, [*command.split(), "--json"])
    assert result.stdout, (command, result.exception)
    return json.loads(result.stdout)


def table(
    command: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, rule: str = " ---: |"
) -> str:
    """Return a table under the command that it is from; the first column names the row."""
    lines = [f"`planner {command}`", "", f"| {' | '.join(headings)} |"]
    lines.append(f"| --- |{rule * (len(headings) - 1)}")
    return "\n".join((*lines, *(f"| {' | '.join(row)} |" for row in rows))) + "\n"


def ways(command: str) -> str:
    answer = ask(f"replicas {command}")
    rows = [
        (way["name"], format_seconds(way["step_seconds"]), f"{way['times_as_fast']:.2f}")
        for way in (answer["one_gpu"], *answer["ways"])
    ]
    return table(f"replicas {command}", ("way", "step", "times as fast"), rows)


def intervals() -> str:
    found = ask(f"replicas {BERT}")["local_sgd"]["intervals"][: len(PUBLISHED)]
    rows = [
        (f"K = {each['synchronize_every']}", f"{each['times_as_fast']:.2f}", str(measured))
        for each, measured in zip(found, PUBLISHED, strict=True)
    ]
    return table(f"replicas {BERT}", ("averaged every", "times as fast", "measured"), rows)


def stages(command: str, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        found = ask(f"estimate {command} --strategy {name}")
        memory, fits = found["memory"], "fits" if found["fits"] else "does not fit"
        reserved = format_bytes(memory["reserved_bytes"])
        step = format_seconds(found["time"]["step_seconds"])
        rows.append((name, reserved, fits, step))
    headings = ("strategy", "memory of a GPU", "", "step")
    return table(f"estimate {command} --strategy NAME", headings, rows)


def multi_gpu() -> str:
    command = "batch --gpus 4 --batch-per-gpu 128 --samples 8551 --epochs 2"
    answer = ask(command)
    rows = [(name, lines[-1]) for name, lines in answer["settings"].items()]
    steps = f"{answer['run']['steps']} steps of {answer['global_batch_size']} samples"
    return table(command, ("in", f"what to set for {steps}"), rows, rule=" --- |")


def second_node() -> str:
    command = "gpt2 --gpus 8 --gpu a100 --strategy ddp --micro-batch-size 4 --accumulation-steps 4"
    alone = ask(f"estimate {command}")
    one = alone["tokens_per_second_per_gpu"]
    rows = [("one node", format_seconds(alone["time"]["step_seconds"]), "1.00")]
    for network in ("ethernet-1g", "ethernet-10g", "roce-100g"):
        found = ask(f"estimate {command} --nodes 2 --inter-node {network}")
        fast = 2 * found["tokens_per_second_per_gpu"] / one
        rows.append((network, format_seconds(found["time"]["step_seconds"]), f"{fast:.2f}"))
    headings = ("network", "step", "tokens/s of one node")
    return table(f"estimate {command} --nodes 2 --inter-node NAME", headings, rows)


def preferences() -> str:
    command = "Qwen/Qwen2.5-7B --gpus 8 --gpu h100 --strategy zero-3 --seq-len 1024"
    layout = "--micro-batch-size 1 --accumulation-steps 4"
    rows = []
    for flags in (
        "--job dpo",
        "--job dpo --reference-model precomputed",
        "--job dpo --method lora",
        "--job simpo",
        "--job reward",
    ):
        found = ask(f"estimate {command} {layout} {flags}")
        reserved = format_bytes(found["memory"]["reserved_bytes"])
        rows.append((f"`{flags}`", reserved, format_seconds(found["time"]["step_seconds"])))
    headings = ("job", "memory of a GPU", "step of 32 pairs")
    return table(f"estimate {command} {layout} --job NAME", headings, rows)


def divided() -> str:
    command = "meta-llama/Llama-2-13b-hf --gpus 8 --global-batch-size 128 --recompute full"
    wanted = {
        "tp": "--strategy tp --tp 8 --micro-batch-size 1",
        "pp": "--strategy pp --pp 8 --micro-batch-size 1",
        "zero-3, 16 micro-batches of 1": "--strategy zero-3 --micro-batch-size 1",
        "zero-3, 2 micro-batches of 8": "--strategy zero-3 --micro-batch-size 8",
    }
    rows = []
    for name, flags in wanted.items():
        found = [
            ask(f"estimate {command} {flags} --gpu {gpu}")["time"]["step_seconds"]
            for gpu in ("a100-sxm-80gb", "a100-pcie-80gb")
        ]
        rows.append((name, *map(format_seconds, found)))
    headings = ("strategy", "NVSwitch: a100-sxm-80gb", "PCIe: a100-pcie-80gb")
    return table(f"estimate {command} --strategy NAME --gpu NAME", headings, rows)


def frameworks() -> str:
    rows = []
    for name in ("torch", "accelerate", "deepspeed"):
        found = ask(
            f"estimate {LLAMA} --framework {name} --strategy zero-3 --micro-batch-size 1"
            " --accumulation-steps 8"
        )
        reserved = format_bytes(found["memory"]["reserved_bytes"])
        rows.append((name, reserved, format_seconds(found["time"]["step_seconds"])))
    headings = ("framework", "memory of a GPU", "step")
    command = f"estimate {LLAMA} --framework NAME --strategy zero-3 --micro-batch-size 1 --accumulation-steps 8"
    return table(command, headings, rows)


def beside_training() -> str:
    command = f"{LLAMA} --strategy zero-3 --micro-batch-size 1 --accumulation-steps 8"
    found = ask(f"memory {command}")
    rows = [
        ("training", format_bytes(max(stage["reserved_bytes"] for stage in found["stages"]))),
        ("evaluation", format_bytes(found["evaluation_peak_bytes"])),
        ("a checkpoint of shards", format_bytes(found["checkpoint_peak_bytes"]["sharded"])),
        ("a whole checkpoint", format_bytes(found["checkpoint_peak_bytes"]["full"])),
        ("host, to load the model", format_bytes(found["host_memory"]["loading_bytes"])),
    ]
    return table(f"memory {command}", ("at its peak", "of a GPU, or of the host"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "not-faster": lambda: ways(f"{TITANS} --micro-batch-size 4 --accumulation-steps 1"),
    "accumulation": lambda: ways(
        "gpt2 --gpus 3 --gpu a100 --micro-batch-size 10 --accumulation-steps 3"
    ),
    "multi-gpu": multi_gpu,
    "without-p2p": intervals,
    "zero-3-takes-more": lambda: stages(
        "gpt2 --gpus 2 --gpu 3090 --framework deepspeed --micro-batch-size 1 --accumulation-steps 1",
        ("zero-1", "zero-2", "zero-3"),
    ),
    "second-node": second_node,
    "which-stage": lambda: stages(
        f"{LLAMA} --micro-batch-size 1 --accumulation-steps 8",
        ("ddp", "zero-1", "zero-2", "zero-3"),
    ),
    "reference-model": preferences,
    "tensor-or-pipeline": divided,
    "deepspeed-or-fsdp": frameworks,
    "evaluation": beside_training,
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_table_is_what_the_planner_answers(name: str, *, request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    assert f"<!-- {name} -->" in PAGE.read_text(encoding="utf-8")
    check_block(name, BLOCKS[name](), update=update, page=PAGE)


def test_every_question_has_its_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert tuple(titles) == QUESTIONS


def test_what_the_text_claims_of_the_tables_holds() -> None:
    """The sentences around the tables, which no command prints."""
    slow = {
        way["name"]: way
        for way in ask(f"replicas {TITANS} --micro-batch-size 4 --accumulation-steps 1")["ways"]
    }
    assert slow["nn.DataParallel"]["times_as_fast"] < slow["DDP"]["times_as_fast"] < 1.8
    small = "estimate gpt2 --gpus 2 --gpu 3090 --framework deepspeed --micro-batch-size 1 --accumulation-steps 1"
    one, three = (
        ask(f"{small} --strategy {name}")["memory"]["reserved_bytes"]
        for name in ("zero-1", "zero-3")
    )
    assert three > one
    large = f"estimate {LLAMA} --micro-batch-size 1 --accumulation-steps 8 --strategy"
    assert [ask(f"{large} {name}")["fits"] for name in ("ddp", "zero-1", "zero-2")] == [
        False,
        False,
        True,
    ]
