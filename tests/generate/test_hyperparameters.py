"""The learning rate and what goes with it: one figure for a plan, the same in every target."""

import re
from dataclasses import replace

import pytest
import yaml
from run_specs import script_of
from test_generate import LLAMA, LLAMA_8B, SPEC

from planner.generate import generate
from planner.generate.hyperparameters import hyperparameters

BIG = replace(SPEC, model_config=LLAMA, parameters=8_000_000_000)


def default(script: str, flag: str) -> float:
    (found,) = re.findall(
        rf'add\("--{flag}", type=(?:float|number\(float, [^)]+\)), default=([^,)]+)', script
    )
    return float(found)


@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_every_script_writes_the_same_figures(weights: str) -> None:
    spec = replace(BIG, is_pretrained=weights == "pretrained")
    files, adamw = generate(spec, ["torchrun", "trainer"]), hyperparameters(spec)
    settings = yaml.safe_load(files["trainer/sft.yaml"])
    assert (settings["learning_rate"], settings["warmup_steps"]) == (
        adamw.learning_rate,
        adamw.warmup_fraction,
    )
    assert (settings["weight_decay"], settings["adam_beta2"]) == (adamw.weight_decay, adamw.beta2)
    script = script_of(files, "torchrun")
    assert default(script, "lr") == adamw.learning_rate
    assert default(script, "warmup") == adamw.warmup_fraction
    assert default(script, "weight-decay") == adamw.weight_decay
    assert default(script, "beta2") == adamw.beta2
    assert f"`--lr {adamw.learning_rate}` is for 256 sequences" in files["README.md"]


LLAMA = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def test_megatron_starts_from_random_weights_where_nothing_converts_those_that_there_are() -> None:
    spec = replace(SPEC, framework="megatron", parameters=8_000_000_000, is_pretrained=True)
    files = generate(spec, ["megatron"])
    assert "--pretrained-checkpoint" not in files["megatron/launch.sh"]
    assert "import_ckpt" not in files["README.md"]
    # GPT-3's 1.2e-4 at 2 million tokens, and 256 sequences of 1,024 tokens are an eighth of them.
    assert "  --lr 4.3e-05\n  --min-lr 4.3e-06\n" in files["megatron/launch.sh"]
    assert "  --lr-warmup-fraction 0.01\n  --weight-decay 0.1\n" in files["megatron/launch.sh"]
    assert "`--lr 4.3e-05` is for 256 sequences" in files["README.md"]


def test_megatron_starts_from_weights_that_megatron_bridge_converts() -> None:
    spec = replace(BIG, model_config=LLAMA_8B, framework="megatron")
    files, random = (
        generate(spec, ["megatron"]),
        generate(replace(spec, is_pretrained=False), ["megatron"]),
    )
    # Tulu's 2e-5 at 128 sequences, and 256 are twice as many.
    assert "  --lr 2.8e-05\n" in files["megatron/launch.sh"]
    assert "weights=(--pretrained-checkpoint pretrained)" in files["megatron/launch.sh"]
    assert 'A.import_ckpt(sys.argv[1], "pretrained"' in files["README.md"]
    assert "  --lr 4.3e-05\n" in random["megatron/launch.sh"]
    assert "pretrained" not in random["megatron/launch.sh"]


def test_torchtitan_starts_from_the_weights_beside_its_tokenizer() -> None:
    for is_pretrained, rate in ((True, 2.8e-5), (False, 4.3e-5)):
        spec = replace(BIG, model_config=LLAMA_8B, is_pretrained=is_pretrained)
        plan = generate(replace(spec, framework="torchtitan"), ["torchtitan"])["torchtitan/plan.py"]
        assert f'ADAMW = {{"lr": {rate}' in plan
        assert ("initial_load_in_hf=True" in plan) is is_pretrained


def test_the_rate_follows_size_batch_start_and_method() -> None:
    rates = {
        hyperparameters(replace(BIG, **fields)).learning_rate
        for fields in (
            {"is_pretrained": False},
            {"is_pretrained": False, "parameters": 124_000_000},
            {"is_pretrained": True},
            {"is_pretrained": True, "parameters": 70_000_000_000},
            {"is_pretrained": True, "task": "sequence-classification"},
        )
    }
    assert rates == {4.3e-5, 4.3e-4, 2.8e-5, 1.4e-5, 4e-5}
    assert hyperparameters(BIG, 0.5).learning_rate == 2e-5


def test_a_rate_without_a_rule_for_the_optimizer_is_said_to_be_adamws() -> None:
    for optimizer, is_said in (("rmsprop", True), ("lion", False), ("adamw-8bit", False)):
        readme = generate(replace(BIG, optimizer=optimizer), ["torchrun"])["README.md"]
        assert (f"AdamW's rate: we know no published rule for {optimizer}" in readme) is is_said
        assert ("AdamW's rate" in readme) is is_said


def test_lion_takes_a_smaller_rate_and_a_larger_decay() -> None:
    adamw = hyperparameters(replace(BIG, is_pretrained=False))
    lion = hyperparameters(replace(BIG, is_pretrained=False, optimizer="lion"))
    assert (lion.learning_rate, lion.weight_decay) == (8.7e-6, 0.5)
    assert (adamw.learning_rate, adamw.weight_decay) == (4.3e-5, 0.1)
