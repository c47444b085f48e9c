"""nanotron's config.yaml has the keys of its dataclasses, with values of their types; its script starts run_train.py."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import LLAMA, TINY, start, write
from run_specs import refusal, with_layout

from planner.generate import RunSpec, generate

FACTS = tomllib.loads((Path(__file__).parents[1] / "facts" / "nanotron.toml").read_text())
TYPES = {"int": int, "float": float, "bool": bool, "str": str, "dict": dict, "list": list}


def plan(**layout: Any) -> RunSpec:
    options = {"framework": "nanotron", "precision": "bf16-mixed", "model_config": LLAMA}
    return with_layout(TINY, **(options | layout))


PLANS = {
    "ddp": plan(),
    "sharded": plan(zero_stage=1, recompute="full"),
    "tensor": plan(
        model_config=LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True},
        tensor_parallel_size=2,
        sequence_parallel=True,
        gradient_accumulation_steps=2,
    ),
    "pipeline": plan(
        pipeline_parallel_size=2,
        layers_per_stage=(1, 1),
        pipeline_schedule="gpipe",
        gradient_accumulation_steps=2,
    ),
}


def config_of(spec: RunSpec) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(generate(spec, ["nanotron"])["nanotron/config.yaml"])
    return found


def assert_fits(value: object, kind: str, path: str) -> None:
    """Refuse what dacite would, which nanotron reads its YAML with, strictly."""
    if kind in FACTS["classes"]:
        assert isinstance(value, dict), path
        fields = FACTS["classes"][kind]
        needed = {name for name, of in fields.items() if not of.endswith("?")}
        assert needed <= value.keys() <= fields.keys(), path
        for name, each in value.items():
            assert_fits(each, fields[name].rstrip("?"), f"{path}.{name}")
    elif kind.startswith("[]"):
        assert isinstance(value, list), path
        for each in value:
            assert_fits(each, kind.removeprefix("[]"), path)
    elif value is not None:
        allowed = {"float": (int, float)}.get(kind, TYPES[kind])
        assert isinstance(value, allowed), path
        assert kind == "bool" or not isinstance(value, bool), path


@pytest.mark.parametrize("name", PLANS)
def test_the_yaml_is_read_by_its_dataclasses(name: str) -> None:
    assert not refusal(PLANS[name], "nanotron")
    assert_fits(config_of(PLANS[name]), "Config", name)


@pytest.mark.parametrize("name", PLANS)
def test_the_yaml_says_the_plan(name: str) -> None:
    spec, config = PLANS[name], config_of(PLANS[name])
    sizes, tokens = config["parallelism"], config["tokens"]
    assert sizes["dp"] * sizes["tp"] * sizes["pp"] == spec.world_size
    assert sizes["tp_mode"] == ("REDUCE_SCATTER" if spec.sequence_parallel else "ALL_REDUCE")
    assert sizes["pp_engine"] == ("afab" if name == "pipeline" else "1f1b")
    assert sizes["recompute_layer"] == (name == "sharded")
    assert config["optimizer"]["zero_stage"] == spec.zero_stage
    samples = sizes["dp"] * tokens["micro_batch_size"] * tokens["batch_accumulation_per_replica"]
    assert samples == spec.global_batch_size
    model = config["model"]["model_config"]
    shape = {key: model[key] for key in LLAMA if key in model}
    assert shape == {key: value for key, value in spec.model_config.items() if key in shape}
    assert model["tie_word_embeddings"] == (name == "tensor")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"zero_stage": 2}, "ZeRO-1"),
        ({"precision": "fp32"}, "bf16 with gradients added up in fp32"),
        ({"attention": "eager"}, "FlashAttention's"),
        ({"model_config": LLAMA | {"model_type": "qwen2"}}, "llama and mistral, not qwen2"),
        ({"model_config": LLAMA | {"rope_scaling": {"rope_type": "yarn"}}}, "no scaled rotary"),
        ({"model_config": LLAMA | {"attention_bias": True, "mlp_bias": True}}, "no biases"),
        ({"model_config": LLAMA | {"head_dim": 8}}, "share out the hidden channels"),
        ({"tensor_parallel_size": 2, "global_batch_size": 8}, "1 heads of keys and values"),
        ({"context_parallel_size": 2, "global_batch_size": 8}, "divides no sequence"),
        ({"offload": "optimizer"}, "keeps all states on the GPU"),
    ],
)
def test_what_nanotron_cannot_run_is_refused_with_the_reason(
    change: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(plan(**change), "nanotron")


RUN_TRAIN = """
import json, os, sys
with open(f"{os.environ['RECORD']}-{os.environ['RANK']}", "w") as record:
    json.dump(sys.argv[1:], record)
"""


@pytest.mark.usefixtures("preloaded")
def test_the_script_gives_the_yaml_to_every_process(tmp_path: Path) -> None:
    model = 'it\'s/a "model": {$(touch pwned)}\n- x'
    spec = replace(plan(), model=model)
    folder = write(tmp_path / "bundle", spec, "nanotron")
    (tmp_path / "run_train.py").write_text(RUN_TRAIN)
    variables = {"NANOTRON_PATH": str(tmp_path), "RECORD": str(tmp_path / "arguments")}
    start(folder, "bash", "nanotron/launch.sh", **variables).finish()
    for rank in range(2):
        given = json.loads((tmp_path / f"arguments-{rank}").read_text())
        assert given[:2] == ["--config-file", "config.yaml"]
    assert config_of(spec)["tokenizer"]["tokenizer_name_or_path"] == model
    assert not list(tmp_path.rglob("pwned"))
