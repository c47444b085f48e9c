"""Plans of TRL's and transformers' Trainer, started through their own launch.sh on two CPU processes.

Trainer has a warm-up and a decay of its own: the reference is told of them, and is as independent.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import BETA2, STEPS, WEIGHT_DECAY, Run, run, write
from reference import (
    GLOBAL_BATCH_SIZE,
    PEAK_LEARNING_RATE,
    TOLERANCE,
    Reference,
    build_optimizer,
    causal_sample,
    distance,
)
from reference import train as train_alone
from texts import write_texts, write_tokenizer

from planner.generate import RunSpec

ON_CPUS = ("--use_cpu", "true")
HYPERPARAMETERS = (
    *ON_CPUS,
    *("--max_steps", str(STEPS), "--learning_rate", str(PEAK_LEARNING_RATE), "--warmup_steps", "0"),
    *("--adam_beta2", str(BETA2), "--weight_decay", str(WEIGHT_DECAY)),
    *("--train_sampling_strategy", "sequential", "--seed", "0"),
)
AS_GPUS = {
    "PYTHONPATH": str(Path(__file__).parent / "gloo_only"),
    "ACCELERATE_USE_CPU": "false",
    "ACCELERATE_ENGINE": "fsdp",
}
"""Processes that Accelerate takes for GPUs, where FSDP runs."""
ON_GLOO = {key: value for key, value in AS_GPUS.items() if key != "ACCELERATE_ENGINE"}
"""Where DeepSpeed does."""
_DROPOUTS = (
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob"),
    *("attention_probs_dropout_prob", "dropout", "dropout_rate", "attention_dropout"),
    "activation_dropout",
)


@dataclass
class TrainerRun(Run):
    """A launched plan, whose log is what it prints."""

    def finish(self) -> "TrainerRun":
        self.output()
        return self

    @property
    def log(self) -> list[dict[str, Any]]:
        # Bars of other packages go to the same terminal.
        return [json.loads(line) for line in re.findall(r'\{"step": [^{}]*\}', self.printed)]


def rate(step: int) -> float:
    """A cosine from the peak to a tenth of it, without a warm-up."""
    return PEAK_LEARNING_RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))


def without_dropout(spec: RunSpec) -> RunSpec:
    return replace(spec, model_config={**spec.model_config, **dict.fromkeys(_DROPOUTS, 0.0)})


def train(folder: Path, spec: RunSpec, *arguments: str, **environment: str) -> TrainerRun:
    """Write the plan's files, and start them on what the arguments name; the model goes into `model`."""
    write(folder, without_dropout(spec), "trainer")
    return start(folder, *HYPERPARAMETERS, *arguments, **environment)


def start(folder: Path, *arguments: str, **environment: str) -> TrainerRun:
    (folder / "home").mkdir(exist_ok=True)
    output = ("--output_dir", str(folder / "model"))
    home = {"HF_HOME": str(folder / "home"), **environment}
    started = run(folder, "bash", "trainer/launch.sh", *output, *arguments, **home)
    return TrainerRun(folder, started.process)


def tokens(folder: Path) -> tuple[str, ...]:
    """Write the synthetic samples of the reference; return the arguments that name them."""
    data = folder / "tokens.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    rows = (causal_sample(index, 96)[0].tolist() for index in range(STEPS * GLOBAL_BATCH_SIZE))
    data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    return named(data, write_tokenizer(folder / "tokenizer"))


def named(data: Path, model: Path) -> tuple[str, ...]:
    return ("--dataset_name", str(data), "--model_name_or_path", str(model))


def ordered(texts: list[list[int]]) -> list[list[int]]:
    """Return the texts in the order in which the reference reads them."""
    found = []
    for index in range(STEPS * GLOBAL_BATCH_SIZE):
        epoch, position = divmod(index, len(texts))
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(epoch))
        found.append(texts[int(order[position])])
    return found


def texts_of(folder: Path, texts: list[list[int]], *, classes: int = 1) -> tuple[str, ...]:
    """Write texts in the order of the reference; return the arguments that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = write_texts(folder / "texts.jsonl", ordered(texts), classes=classes)
    return named(data, write_tokenizer(folder / "tokenizer"))


def expected(model_config: Mapping[str, Any], texts: list[list[int]] | None = None) -> Reference:
    """Train on one process, as fast as Trainer does."""
    return train_alone(model_config, texts, rate=rate, step_with=step_with)


def step_with(model: Any) -> torch.optim.AdamW:
    """Return AdamW that decays as Trainer's does: T5's table of positions is a bias to it."""
    optimizer = build_optimizer(model)
    tables = {id(each) for name, each in model.named_parameters() if "_bias." in name}
    decayed, others = optimizer.param_groups
    others["params"] += [each for each in decayed["params"] if id(each) in tables]
    decayed["params"] = [each for each in decayed["params"] if id(each) not in tables]
    return optimizer


def assert_parity(run: TrainerRun, reference: Reference) -> None:
    """Wait for a run, and compare every step's loss and all weights, which moved."""
    assert {record["world_size"] for record in run.finish().log} == {2}
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    # With DeepSpeed, Trainer saves tied weights under both names.
    assert reference.weights.keys() <= run.weights.keys()
    assert distance(reference.weights, run.weights) <= TOLERANCE
    assert distance(reference.initial, reference.weights) > 100 * TOLERANCE
