"""Each tool's own words, as its own code takes them: precision, memory, axes, method; what is left out is named."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.configs import signs, tool
from planner.configs.found import Setup
from planner.configs.jobs import method_of
from planner.configs.layout import recipe_fields, strategy_fields
from planner.configs.meaning import model_names, written_deepspeed
from planner.configs.megatron_sizes import model_config
from planner.configs.recognise import recognise
from planner.configs.tools import left_out
from planner.request.model import load_model

CASES = tomllib.loads((Path(__file__).parent / "tool_words.toml").read_text(encoding="utf-8"))
TOOLS = (
    *("accelerate", "axolotl", "deepspeed", "llamafactory", "megatron"),
    *("swift", "torchtitan", "trainer", "trl"),
)


def setup(case: dict[str, Any]) -> Setup:
    text = CASES["base"].get(case.get("base", ""), "") + case["text"]
    return Setup(found=recognise(text, case.get("file", "a.yaml")))


def named(cases: list[Any]) -> list[Any]:
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


@pytest.mark.parametrize("case", named(CASES["recipe"]))
def test_a_word_means_this_of_the_recipe(case: dict[str, Any]) -> None:
    recipe = recipe_fields(setup(case))
    assert {key: recipe.get(key, "") for key in case["is"]} == case["is"]


@pytest.mark.parametrize("case", named(CASES["layout"]))
def test_a_word_means_this_of_the_layout(case: dict[str, Any]) -> None:
    layout = strategy_fields(setup(case), case.get("gpus", 8), 1)
    assert {key: layout[key] for key in case["is"]} == case["is"]


@pytest.mark.parametrize("case", named(CASES["method"]))
def test_what_is_no_sft_is_known_for_what_it_is(case: dict[str, Any]) -> None:
    method = method_of(setup(case))
    assert (method.text if method else "") == case["is"]


@pytest.mark.parametrize("case", named(CASES["left_out"]))
def test_what_is_not_modelled_is_named_with_its_way(case: dict[str, Any]) -> None:
    assert list(left_out(setup(case))) == case["is"]


@pytest.mark.parametrize("case", named(CASES["known"]))
def test_a_file_is_known_by_its_own_keys(case: dict[str, Any]) -> None:
    found = setup(case).found
    assert [(each.kind, each.tool) for each in found] == [tuple(each) for each in case["is"]]


@pytest.mark.parametrize("case", named(CASES["model"]))
def test_a_model_is_named_in_the_tools_own_way(case: dict[str, Any]) -> None:
    assert [each.text for each in model_names(setup(case))] == [case["is"]]


@pytest.mark.parametrize(
    ("flags", "model_type", "billions"),
    [
        ("--vocab-size 50257", "gpt2", 0.31),
        ("--vocab-size 32000 --swiglu --ffn-hidden-size 2816 --num-query-groups 4", "llama", 0.29),
        ("--vocab-size 32000 --swiglu --ffn-hidden-size 2816 --num-experts 8", "mixtral", 1.77),
    ],
)
def test_megatrons_sizes_are_the_model(flags: str, model_type: str, billions: float) -> None:
    command = (
        "torchrun --nproc_per_node 8 train.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16"
        f" --micro-batch-size 1 --global-batch-size 8 --max-position-embeddings 1024 {flags}"
    )
    config = model_config(Setup(found=recognise(command, "a.sh")))
    assert config is not None
    assert config["model_type"] == model_type
    model = load_model(config, allow_paths=False)[0]
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.2)


def test_megatrons_sizes_without_a_vocabulary_name_no_model() -> None:
    command = f"{CASES['base']['megatron']} --tokenizer-type Llama3Tokenizer"
    assert model_config(Setup(found=recognise(command, "a.sh"))) is None


@pytest.mark.parametrize("name", TOOLS)
def test_each_key_is_of_one_kind(name: str) -> None:
    record = tool(name)
    every = [*record.reads, *record.no_effect, *record.same, *record.ways]
    twice = {key for key in every if every.count(key) > 1}
    assert twice == set()
    assert set(record.others) <= record.known


@pytest.mark.parametrize("name", TOOLS)
def test_each_way_says_more_or_less(name: str) -> None:
    words = {"less memory", "more memory", "faster", "slower", "either way"}
    for way in (*tool(name).unmodelled, *(each.moves for each in tool(name).means if each.moves)):
        assert set(way.split(", ")) <= words


def test_signs_name_records_that_are_there() -> None:
    assert {sign.tool for sign in signs()} - {""} <= set(TOOLS)


@pytest.mark.parametrize("value", ["${BF16}", "maybe", "[true]"])
def test_an_unknown_value_is_not_taken_for_off(value: str) -> None:
    """Nor for on: the planner's own default is estimated, and the note names the key."""
    text = f"output_dir: o\nper_device_train_batch_size: 1\nbf16: {value}\n"
    assert "precision" not in recipe_fields(Setup(found=recognise(text, "a.yaml")))


@pytest.mark.parametrize(
    ("command", "is_written"),
    [
        ("deepspeed main.py --per_device_train_batch_size 4 --zero_stage 3 --deepspeed", True),
        ("deepspeed train.py --per_device_train_batch_size 4 --deepspeed ds.json", False),
        ("deepspeed t.py --output_dir o --deepspeed --deepspeed_config ds.json", False),
        ("NPROC_PER_NODE=8 swift sft --model gpt2 --deepspeed zero3", False),
    ],
)
def test_a_switch_names_no_file(command: str, *, is_written: bool) -> None:
    files = Setup(found=recognise(command, "a.sh"))
    assert (written_deepspeed(files) is not None) == is_written
