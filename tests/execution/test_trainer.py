"""TRL's SFTTrainer reads sft.yaml, and trains like one process."""

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import trainer_runs
import trl
import yaml
from launched import ACCUMULATED, LLAMA, STEPS, TINY
from reference import (
    GLOBAL_BATCH_SIZE,
    SEQUENCE_LENGTH,
    TOLERANCE,
    Reference,
    build,
    build_optimizer,
    distance,
    take_text_step,
)
from run_specs import refusal, with_layout
from texts import (
    END,
    FIRST_WORD,
    WORDS,
    draw_texts,
    write_chat_tokenizer,
    write_texts,
    write_tokenizer,
)
from trainer_runs import assert_parity, expected, named, rate, texts_of, tokens
from transformers import HfArgumentParser

from planner.generate import RunSpec, generate

pytestmark = [
    pytest.mark.usefixtures("preloaded"),
    pytest.mark.filterwarnings("ignore:`use_liger_kernel=True` is deprecated"),
]

PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")
SPEC = with_layout(ACCUMULATED, model_config=LLAMA)
DEEPSPEED = with_layout(SPEC, framework="deepspeed", zero_stage=2, offload="optimizer")
TEXTS = draw_texts(count=40, longest=25)


def settings(spec: RunSpec) -> dict[str, Any]:
    files = generate(spec, ["trainer"])
    read: dict[str, Any] = yaml.safe_load(files["trainer/sft.yaml"])
    return read


def parsed(settings: dict[str, Any], folder: Path) -> trl.SFTConfig:
    """Return what TRL makes of its arguments on this machine; unknown ones are an error."""
    parser = HfArgumentParser((trl.ScriptArguments, trl.ModelConfig, trl.SFTConfig))
    own = {"use_cpu": True, "output_dir": str(folder)}
    *_, arguments = parser.parse_dict(settings | own)
    assert isinstance(arguments, trl.SFTConfig)
    return arguments


@pytest.mark.parametrize("precision", PRECISIONS)
def test_trl_reads_every_layout_as_it_is_meant(precision: str, tmp_path: Path) -> None:
    for stage, recompute in product((0, 2, 3), ("none", "full")):
        spec = with_layout(SPEC, zero_stage=stage, precision=precision, recompute=recompute)
        arguments = parsed(settings(spec), tmp_path)
        assert arguments.per_device_train_batch_size == spec.micro_batch_size
        assert arguments.gradient_accumulation_steps == spec.gradient_accumulation_steps
        assert arguments.max_length == spec.sequence_length
        assert arguments.bf16 == (precision == "bf16-mixed")
        assert arguments.fp16 == (precision == "fp16-mixed")
        assert bool(arguments.fsdp) == (stage > 0)
        assert arguments.activation_checkpointing == (recompute == "full" and stage == 0)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("offload", ["none", "optimizer+parameters"])
def test_every_fsdp_key_reaches_the_plugin(stage: int, offload: str, tmp_path: Path) -> None:
    """Trainer drops unknown keys in silence; those it knows it hands on."""
    for recompute in ("none", "full"):
        spec = with_layout(SPEC, zero_stage=stage, offload=offload, recompute=recompute)
        ours = settings(spec)["fsdp_config"]
        plugin = parsed(settings(spec), tmp_path).fsdp_plugin_args
        assert plugin is not None
        for key, value in ours.items():
            name = "fsdp_version" if key == "version" else key
            assert plugin.get(name, False) == value, key
        assert ours["reshard_after_forward"] == (stage == 3)
        assert ours["activation_checkpointing"] == (recompute == "full")


def test_shards_are_reduced_after_every_micro_batch_as_planned(tmp_path: Path) -> None:
    """Trainer by itself holds whole gradients on every rank until the last one."""
    for stage, expected_value in ((0, None), (2, {"sync_each_batch": True})):
        arguments = parsed(settings(with_layout(SPEC, zero_stage=stage)), tmp_path)
        accelerated: Any = arguments.accelerator_config
        assert accelerated.gradient_accumulation_kwargs == expected_value


def test_an_unknown_argument_would_be_seen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="per_device_batch"):
        parsed(settings(SPEC) | {"per_device_batch": 2}, tmp_path)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"tensor_parallel_size": 2, "global_batch_size": 8}, "divides the data, not the model"),
        ({"zero_stage": 1}, "ZeRO-1 through DeepSpeed alone"),
        ({"recompute": "selective"}, "whole blocks or nothing"),
        ({"zero_stage": 3, "offload": "optimizer"}, "together with the optimizer's states"),
        ({"offload": "optimizer+parameters"}, "only FSDP"),
        ({"synchronize_every": 2}, "averages gradients every step"),
        (
            {"framework": "deepspeed", "offload": "optimizer"},
            "DeepSpeed offloads what ZeRO shards",
        ),
        (
            {
                "framework": "deepspeed",
                "pipeline_parallel_size": 2,
                "layers_per_stage": (1, 1),
                "global_batch_size": 8,
            },
            "divides the data, not the model",
        ),
    ],
)
def test_what_trainer_cannot_run_is_refused_with_the_reason(
    layout: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, refusal(with_layout(TINY, **layout), "trainer"))


def test_ddp_trains_like_one_process_and_resumes_exactly(tmp_path: Path) -> None:
    data = tokens(tmp_path)
    whole = trainer_runs.train(tmp_path / "whole", SPEC, *data, "--save_steps", "1")
    assert_parity(whole, expected(LLAMA))
    assert [record["tokens_per_step"] for record in whole.log if "loss" in record] == [256] * 3
    checkpoint = whole.folder / "model" / "checkpoint-1"
    resume = ("--resume_from_checkpoint", str(checkpoint))
    part = trainer_runs.train(tmp_path / "part", SPEC, *data, *resume).finish()
    assert part.losses == whole.losses[1:]
    assert distance(part.weights, whole.weights) == 0


def test_texts_train_like_one_process(tmp_path: Path) -> None:
    """The reference computes every text by itself: a look at padding would show."""
    spec = with_layout(SPEC, padding_share=0.5)
    assert_parity(
        trainer_runs.train(tmp_path, spec, *texts_of(tmp_path, TEXTS)), expected(LLAMA, TEXTS)
    )


def test_packed_texts_train_like_one_process(tmp_path: Path) -> None:
    """TRL says which texts share a sequence; the reference computes each by itself."""
    texts = draw_texts(count=160, longest=12)
    rows = [{"input_ids": [*(FIRST_WORD + word for word in text), END]} for text in texts]
    packed = trl.pack_dataset(datasets.Dataset.from_list(rows), SEQUENCE_LENGTH, "bfd")
    assert max(map(len, packed["seq_lengths"])) > 1
    data = write_texts(tmp_path / "texts.jsonl", texts)
    options = (*named(data, write_tokenizer(tmp_path / "tokenizer")), "--packing_strategy", "bfd")
    run = trainer_runs.train(tmp_path, SPEC, *options)

    model = build(LLAMA)
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer, losses = build_optimizer(model), []
    for step in range(STEPS):
        first = step * GLOBAL_BATCH_SIZE
        batch = packed.select(range(first, first + GLOBAL_BATCH_SIZE))
        samples = [
            (part, part)
            for row in batch
            for part in torch.split(torch.tensor(row["input_ids"]), row["seq_lengths"])
        ]
        losses.append(take_text_step(model, optimizer, samples, rate(step)))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    assert_parity(run, Reference(initial, weights, losses))


def test_answers_alone_are_learned_of_conversations(tmp_path: Path) -> None:
    marked = (
        "{% for message in messages %}<|{{ message.role }}|> {% if message.role == 'assistant' %}"
        "{% generation %}{{ message.content }} <end>{% endgeneration %}"
        "{% else %}{{ message.content }} <end>{% endif %} {% endfor %}"
    )
    tokenizer = write_chat_tokenizer(tmp_path / "tokenizer", marked)
    roles = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3 w4"}]
    data = tmp_path / "chats.jsonl"
    data.write_text((json.dumps({"messages": roles}) + "\n") * GLOBAL_BATCH_SIZE)
    run = trainer_runs.train(tmp_path, SPEC, *named(data, tokenizer), "--max_steps", "1")
    assert run.finish().log[0]["num_tokens"] == 8 * GLOBAL_BATCH_SIZE
    inputs = torch.tensor([FIRST_WORD + WORDS + 1, 4, 5, END, FIRST_WORD + WORDS + 2, 6, 7, END])
    labels = inputs.where(torch.arange(8) > 4, -100)
    model = build(LLAMA)
    alone = take_text_step(model, build_optimizer(model), [(inputs, labels)], rate(0))
    assert run.losses == pytest.approx([alone], abs=TOLERANCE)


def test_trainers_own_arguments_work(tmp_path: Path) -> None:
    arguments = (
        *("--lr_scheduler_type", "linear", "--train_sampling_strategy", "group_by_length"),
        *("--eval_strategy", "steps", "--eval_steps", "2", "--dataloader_num_workers", "1"),
        *("--save_strategy", "epoch", "--max_grad_norm", "0.5", "--optim", "adafactor"),
    )
    run = trainer_runs.train(tmp_path, SPEC, *texts_of(tmp_path, TEXTS), *arguments).finish()
    assert [line["learning_rate"] for line in run.log if "loss" in line] == pytest.approx(
        [1e-3, 2e-3 / 3, 1e-3 / 3]
    )
    assert [line["step"] for line in run.log if "eval_loss" in line] == [2, 3]


def test_layers_that_are_compiled_train_like_one_process(tmp_path: Path) -> None:
    """TRL puts a forward pass of its own on the model, which must find the compiled layers."""
    run = trainer_runs.train(tmp_path, replace(SPEC, compile=True), *tokens(tmp_path))
    assert_parity(run, expected(LLAMA))


def test_without_data_it_trains_on_random_tokens(tmp_path: Path) -> None:
    run = trainer_runs.train(tmp_path, SPEC, "--save_strategy", "no").finish()
    assert run.losses[0] == pytest.approx(math.log(96), abs=0.1)
    assert len(run.losses) == 3
