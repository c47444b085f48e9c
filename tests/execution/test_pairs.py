"""TRL's DPOTrainer and RewardTrainer read what is written, and train like a loop of our own in one process."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import trl
import yaml
from launched import ACCUMULATED, LLAMA, STEPS
from reference import (
    GLOBAL_BATCH_SIZE,
    TOLERANCE,
    Reference,
    build,
    build_optimizer,
    distance,
    update,
)
from run_specs import with_layout
from test_lora import MODULES, adapted, plan
from texts import END, FIRST_WORD, WORDS, write_tokenizer
from torch import Tensor
from torch.nn.functional import logsigmoid
from trainer_runs import AS_GPUS, ON_GLOO, TrainerRun, assert_parity, named, rate, train
from transformers import HfArgumentParser

from planner.generate import RunSpec, generate

pytestmark = [
    pytest.mark.usefixtures("preloaded"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]

SPEC = with_layout(
    ACCUMULATED,
    model_config=LLAMA,
    is_pretrained=True,
    job="dpo",
    reference_model="loaded",
    loss="chunked",
)
SCORER = LLAMA | {
    "architectures": ["LlamaForSequenceClassification"],
    "num_labels": 1,
    "pad_token_id": END,
}
REWARD = replace(
    SPEC,
    job="reward",
    reference_model=None,
    loss="standard",
    task="sequence-classification",
    model_config=SCORER,
)
BETA = 0.1
"""DPOConfig's own."""
Pair = tuple[list[int], list[int], list[int]]


def pairs() -> list[Pair]:
    """Return prompts with two answers each, of different lengths, in the order of the run."""
    chance = random.Random(0)

    def words(longest: int) -> list[int]:
        return [chance.randrange(WORDS) for _ in range(chance.randint(1, longest))]

    return [(words(6), words(8), words(8)) for _ in range(STEPS * GLOBAL_BATCH_SIZE)]


def write_pairs(folder: Path) -> Path:
    def text(words: Sequence[int]) -> str:
        return "".join(f" w{word}" for word in words)

    rows = [
        {"prompt": text(prompt), "chosen": text(chosen), "rejected": text(rejected)}
        for prompt, chosen, rejected in pairs()
    ]
    data = folder / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return data


def answers(pair: Pair) -> tuple[Tensor, Tensor]:
    prompt, chosen, rejected = pair
    both = (
        [FIRST_WORD + word for word in (*prompt, *answer)] + [END] for answer in (chosen, rejected)
    )
    first, second = (torch.tensor(tokens)[None] for tokens in both)
    return first, second


def log_probability(model: Any, tokens: Tensor, start: int) -> Tensor:
    logits = model(input_ids=tokens).logits[0, :-1].log_softmax(-1)
    scored: Tensor = logits.gather(1, tokens[0, 1:, None])[start - 1 :].sum()
    return scored


def compared(reference: Any) -> Callable[[Any, Pair], Tensor]:
    def loss(model: Any, pair: Pair) -> Tensor:
        start, margins = len(pair[0]), []
        for tokens in answers(pair):
            with torch.no_grad():
                before = log_probability(reference, tokens, start)
            margins.append(log_probability(model, tokens, start) - before)
        return -logsigmoid(BETA * (margins[0] - margins[1]))

    return loss


def scored(model: Any, pair: Pair) -> Tensor:
    chosen, rejected = (model(input_ids=tokens).logits[0, 0] for tokens in answers(pair))
    return -logsigmoid(chosen - rejected)


def train_alone(model: Any, loss_of: Callable[[Any, Pair], Tensor]) -> Reference:
    """Train on one pair after another, each answer by itself: a look at padding would show."""
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer, losses = build_optimizer(model), []
    every = pairs()
    for step in range(STEPS):
        batch = every[step * GLOBAL_BATCH_SIZE : (step + 1) * GLOBAL_BATCH_SIZE]
        total = torch.stack([loss_of(model, pair) for pair in batch]).mean()
        total.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        losses.append(update(model, optimizer, rate(step), total, 1.0))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return Reference(initial, weights, losses)


def of_dpo() -> Reference:
    model = build(LLAMA)
    return train_alone(model, compared(deepcopy(model)))


def run(folder: Path, spec: RunSpec, *arguments: str, **environment: str) -> TrainerRun:
    """Train from the reference's initial weights."""
    build(spec.model_config).save_pretrained(folder / "start")
    options = named(write_pairs(folder), write_tokenizer(folder / "start"))
    return train(folder, spec, *options, *arguments, **environment)


def parsed(spec: RunSpec, kind: type, folder: Path) -> Any:
    """Return what TRL makes of its arguments on this machine; unknown ones are an error."""
    files = generate(spec, ["trainer"])
    settings = yaml.safe_load(files[f"trainer/{spec.job}.yaml"])
    parser = HfArgumentParser((trl.ScriptArguments, trl.ModelConfig, kind))  # type: ignore[arg-type]
    own = {"use_cpu": True, "output_dir": str(folder)}
    return parser.parse_dict(settings | own)


LAYOUTS: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "replicas": ({}, {}),
    "computed before": ({"reference_model": "precomputed"}, {}),
    "recomputed": ({"recompute": "full"}, {}),
    "zero-3": ({"zero_stage": 3}, AS_GPUS),
    "deepspeed": ({"framework": "deepspeed", "zero_stage": 2}, ON_GLOO),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_dpo_trains_like_one_process(name: str, tmp_path: Path) -> None:
    layout, environment = LAYOUTS[name]
    assert_parity(run(tmp_path, with_layout(SPEC, **layout), **environment), of_dpo())


def test_one_process_does_too(tmp_path: Path) -> None:
    spec = with_layout(SPEC, gpus_per_node=1, gradient_accumulation_steps=8)
    done = run(tmp_path, spec).finish()
    assert done.losses == pytest.approx(of_dpo().losses, abs=TOLERANCE)


@pytest.mark.parametrize("layout", [{}, {"zero_stage": 3}])
def test_a_reward_model_trains_like_one_process(layout: dict[str, Any], tmp_path: Path) -> None:
    environment = AS_GPUS if layout else {}
    done = run(tmp_path, with_layout(REWARD, **layout), **environment)
    assert_parity(done, train_alone(build(SCORER), scored))


def test_adapters_are_compared_with_the_policy_without_them(tmp_path: Path) -> None:
    base = plan()
    assert base.adapters is not None
    spec = replace(SPEC, adapters=replace(base.adapters, dropout=0.0), reference_model="shared")
    done = run(tmp_path, spec).finish()
    model = adapted(build(LLAMA), MODULES["llama"]).train()
    alone = train_alone(model, compared(build(LLAMA)))
    assert done.losses == pytest.approx(alone.losses, abs=TOLERANCE)
    trained = {
        name.replace(".default", ""): weight
        for name, weight in alone.weights.items()
        if ".lora_" in name
    }
    assert distance(done.adapters, trained) <= TOLERANCE


def test_adapters_of_a_reward_model_keep_its_score(tmp_path: Path) -> None:
    spec = replace(REWARD, adapters=plan().adapters)
    done = run(tmp_path, spec).finish()
    assert len(done.losses) == STEPS
    assert any("score" in name for name in done.adapters)


@pytest.mark.parametrize("spec", [SPEC, REWARD], ids=["dpo", "reward"])
def test_made_up_pairs_fill_the_sequence(spec: RunSpec, tmp_path: Path) -> None:
    build(spec.model_config).save_pretrained(tmp_path / "start")
    start = ("--model_name_or_path", str(tmp_path / "start"))
    done = train(tmp_path, spec, *start).finish()
    each = 2 * spec.sequence_length * GLOBAL_BATCH_SIZE
    assert [
        each * 0.9 <= line["tokens_per_step"] <= each for line in done.log if "loss" in line
    ] == [True] * STEPS


def test_a_set_without_pairs_is_named(tmp_path: Path) -> None:
    build(LLAMA).save_pretrained(tmp_path / "start")
    data = tmp_path / "texts.jsonl"
    data.write_text('{"text": "w1 w2"}\n' * 64)
    printed = train(tmp_path, SPEC, *named(data, write_tokenizer(tmp_path / "start"))).fail()
    assert "there is no column chosen, rejected" in printed


def test_trl_reads_what_the_plan_means(tmp_path: Path) -> None:
    before = replace(SPEC, reference_model="precomputed", sequence_length=12)
    *_, dpo = parsed(before, trl.DPOConfig, tmp_path)
    assert (dpo.max_length, dpo.precompute_ref_log_probs) == (12, True)
    assert dpo.per_device_train_batch_size == SPEC.micro_batch_size
    assert not dpo.activation_checkpointing
    *_, model, reward = parsed(
        replace(REWARD, adapters=plan().adapters), trl.RewardConfig, tmp_path
    )
    assert (model.lora_task_type, reward.max_length) == ("SEQ_CLS", 16)
    assert isinstance(reward, trl.RewardConfig)
    assert transformers.TrainingArguments in type(reward).__mro__
