import json
from pathlib import Path
from typing import Any

import pytest

from planner.core.errors import (
    InvalidInputError,
    InvalidRequestError,
    PlannerError,
    UnknownNameError,
    UnsupportedError,
    problems_of,
)
from planner.core.units import GIGA
from planner.domain.cluster import Provenance
from planner.request.schema import Request, Resolved, parse_request, resolve
from planner.search.largest_that_fits import with_gpus

GPT2: dict[str, Any] = {"model": "gpt2", "cluster": {"gpu": "h100", "gpus_per_node": 4}}

CHOSEN = {"precision": "bf16-mixed", "attention": "sdpa", "optimizer": "adamw"}


def resolved(**parts: Any) -> Resolved:
    return resolve(parse_request({**GPT2, **parts}), allow_paths=False)


def problem(payload: object) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request(payload)
    return caught.value


@pytest.mark.parametrize(
    ("payload", "field", "hint"),
    [
        ({"modle": "gpt2"}, "modle", "did you mean model?"),
        ({**GPT2, "cluster": {"gpus": 4}}, "cluster.gpus", "did you mean gpus_per_node?"),
        ({**GPT2, "recipe": {"seqence_length": 4}}, "recipe.seqence_length", "sequence_length"),
        ({**GPT2, "strategy": {"zero": 3}}, "strategy.zero", "zero_stage"),
        ({**GPT2, "strategy": {"qqq": 3}}, "strategy.qqq", "known: data_parallel"),
        ({**GPT2, "Gpus": 4}, "Gpus", "did you mean cluster.gpus_per_node?"),
        ({**GPT2, "str": 4}, "str", "did you mean"),
        ({**GPT2, "cluster": {"GPU": "a100"}}, "cluster.GPU", "did you mean gpu?"),
        ({**GPT2, "strategy": {"TP": 2}}, "strategy.TP", "did you mean tensor_parallel_size?"),
        ({**GPT2, "cluster": {"inter_node": {"Bus": 1}}}, "cluster.inter_node.Bus", "gb_per_s"),
        ({**GPT2, "recipe": {"lora": {"Rank": 2}}}, "recipe.lora.Rank", "did you mean rank?"),
    ],
)
def test_an_unknown_field_names_the_nearest_known_one(
    payload: dict[str, Any], field: str, hint: str
) -> None:
    problems = {p.field: p.hint for p in problem(payload).problems}
    assert hint in problems[field]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({**GPT2, "cluster": {"gpus_per_node": 0}}, "cluster.gpus_per_node"),
        ({**GPT2, "cluster": {"gpus_per_node": -3}}, "cluster.gpus_per_node"),
        ({**GPT2, "cluster": {"gpus_per_node": "4"}}, "cluster.gpus_per_node"),
        ({**GPT2, "cluster": {"nodes": 10**9}}, "cluster.nodes"),
        ({**GPT2, "cluster": {"gpu": "t4," * 200}}, "cluster.gpu"),
        ({**GPT2, "cluster": {"instance": 4}}, "cluster.instance"),
        ({**GPT2, "cluster": {"peer_to_peer": "yes"}}, "cluster.peer_to_peer"),
        ({**GPT2, "recipe": {"global_batch_size": 0}}, "recipe.global_batch_size"),
        ({**GPT2, "recipe": {"precision": "bf17"}}, "recipe.precision"),
        ({**GPT2, "strategy": {"zero_stage": 4}}, "strategy.zero_stage"),
        ({"model": 7}, "model"),
        ({}, "model"),
        (
            {**GPT2, "cluster": {"intra_node": {"bus_gb_per_s": 1e-320}}},
            "cluster.intra_node.bus_gb_per_s",
        ),
        ([], ""),
        ("gpt2", ""),
        (None, ""),
    ],
)
def test_a_value_out_of_range_names_its_field(payload: object, field: str) -> None:
    assert field in [p.field for p in problem(payload).problems]


def test_all_problems_are_listed_at_once() -> None:
    error = problem({"cluster": {"nodes": 0}, "recipe": {"x": 1}})
    assert {p.field for p in error.problems} == {"model", "cluster.nodes", "recipe.x"}
    assert "(and 2 more)" in error.message


def test_gaps_are_filled_and_each_is_said() -> None:
    job = resolve(parse_request({"model": "gpt2", "cluster": {"nodes": 2}}), allow_paths=False)
    assert [a.field for a in job.assumptions] == [
        "cluster.gpu",
        "cluster.gpus_per_node",
        "cluster.inter_node",
        "recipe.job",
        "recipe.sequence_length",
        "recipe.global_batch_size",
        "recipe",
    ]
    assert job.assumptions[-1].text == "bf16-mixed, adamw-fused, sdpa"
    assert job.job.recipe.sequence_length == 1024
    assert job.job.recipe.global_batch_size == 32


def test_more_gpus_than_a_node_has_need_a_network_that_is_said() -> None:
    def fields(**parts: Any) -> list[str]:
        payload = {
            "model": "gpt2",
            "cluster": {"gpu": "h100:8", **parts.pop("cluster", {})},
            **parts,
        }
        return [a.field for a in resolve(parse_request(payload), allow_paths=False).assumptions]

    assert "cluster.inter_node" in fields(max_gpus=32)
    assert "cluster.inter_node" not in fields(max_gpus=8)
    assert "cluster.inter_node" not in fields(
        max_gpus=32, cluster={"gpu": None, "instance": "p5.48xlarge"}
    )


def test_a_network_that_was_said_is_that_of_more_nodes_too() -> None:
    """One node is asked for, up to four may be taken: their network is the asked one, not what is usual."""
    cluster = {"gpu": "h100", "gpus_per_node": 8, "inter_node": "10Gbit/s"}
    wanted = parse_request({"model": "gpt2", "cluster": cluster, "max_gpus": 32})
    found = resolve(wanted, allow_paths=False)
    assert "cluster.inter_node" not in [each.field for each in found.assumptions]
    grown = with_gpus(found.job, 8, 4).cluster.inter_node
    assert grown is not None
    assert grown.bytes_per_second < 10 * GIGA / 8


@pytest.mark.parametrize(
    ("max_gpus", "cluster", "size"),
    [
        (64, {"gpu": "h100"}, 8),
        (4, {"gpu": "h100"}, 4),
        (64, {"gpu": "h100", "gpus_per_node": 2}, 2),
        (64, {"gpu": "h100:4"}, 4),
        (64, {"instance": "g5.12xlarge"}, 4),
        (None, {"gpu": "h100"}, 1),
    ],
)
def test_where_only_the_most_gpus_are_said_nodes_are_full(
    max_gpus: int | None, cluster: dict[str, Any], size: int
) -> None:
    wanted = parse_request({"model": "gpt2", "cluster": cluster, "max_gpus": max_gpus})
    found = resolve(wanted, allow_paths=False)
    assert found.job.cluster.gpus_per_node == size
    texts = [each.text for each in found.assumptions]
    assert (f"up to {size} GPUs per node" in texts) == (
        cluster == {"gpu": "h100"} and bool(max_gpus)
    )


def test_what_is_said_is_not_assumed() -> None:
    recipe = {"sequence_length": 512, "global_batch_size": 8, "precision": "bf16-mixed"}
    (left,) = resolved(recipe={**recipe, "attention": "flash"}).assumptions
    assert (left.text, left.field) == ("adamw-fused optimizer", "recipe.optimizer")
    assert resolved(recipe={**recipe, **CHOSEN}).assumptions == ()


@pytest.mark.parametrize(
    ("gpu", "precision"), [("h100", "bf16-mixed"), ("v100", "fp16-mixed"), ("p40", "fp32")]
)
def test_precision_defaults_to_the_best_the_card_has(gpu: str, precision: str) -> None:
    cluster = {"gpu": gpu}
    assert resolved(cluster=cluster).job.recipe.precision == precision


def test_a_strategy_implies_its_batch() -> None:
    strategy = {"micro_batch_size": 2, "gradient_accumulation_steps": 3}
    assert resolved(strategy=strategy).job.recipe.global_batch_size == 2 * 3 * 4
    assert resolved(strategy={"micro_batch_size": 2}).job.recipe.global_batch_size == 32


@pytest.mark.parametrize(
    ("parts", "kind", "field"),
    [
        ({"recipe": {"lora": {}}}, InvalidInputError, "recipe.lora"),
        ({"recipe": {"precision": "fp8"}}, InvalidInputError, "recipe.precision"),
        ({"recipe": {"optimizer": "lionn"}}, InvalidInputError, "recipe.optimizer"),
        ({"recipe": {"framework": "maxtext"}}, UnsupportedError, "recipe.framework"),
        ({"recipe": {"sequence_length": 4096}}, InvalidInputError, "recipe.sequence_length"),
        ({"cluster": {"gpu": "h101"}}, InvalidInputError, "cluster.gpu"),
        ({"cluster": {"gpu": "h100:0"}}, InvalidInputError, "cluster.gpu"),
        ({"cluster": {"instance": "p4"}}, InvalidInputError, "cluster.instance"),
        ({"cluster": {"intra_node": "pcie-9"}}, InvalidInputError, "cluster.intra_node"),
        ({"cluster": {"nodes": 2, "inter_node": "x"}}, InvalidInputError, "cluster.inter_node"),
        ({"cluster": {"topology": "none"}}, InvalidInputError, "cluster.topology"),
        ({"model": {"model_type": "no-such-type"}}, UnsupportedError, "model"),
        (
            {"recipe": {"packed": True, "padding_share": 0.3}},
            InvalidInputError,
            "recipe.padding_share",
        ),
        (
            {"recipe": {"expert_dispatch": "once-per-node"}},
            InvalidInputError,
            "recipe.expert_dispatch",
        ),
        (
            {"recipe": {"expert_parallel_overlap": True}},
            InvalidInputError,
            "recipe.expert_parallel_overlap",
        ),
        (
            {"strategy": {"recompute_layers": 13, "recompute": "full"}},
            InvalidInputError,
            "strategy.recompute_layers",
        ),
        (
            {"model": {"model_type": ["bert"]}, "recipe": {"task": "sequence-classification"}},
            UnsupportedError,
            "recipe.task",
        ),
    ],
)
def test_what_cannot_be_estimated_is_refused_by_field(
    parts: dict[str, Any], kind: type[PlannerError], field: str
) -> None:
    with pytest.raises(kind) as caught:
        resolved(**parts)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("bert-base-uncased", 109_483_778),
        ("roberta-base", 124_647_170),
        ("distilbert-base-uncased", 66_955_010),
    ],
)
def test_an_encoder_can_be_asked_to_classify(model: str, parameters: int) -> None:
    """The parameters that Trainer prints for these models with two classes."""
    recipe = {"task": "sequence-classification"}
    request = parse_request({"model": model, "cluster": {"gpu": "t4"}, "recipe": recipe})
    found = resolve(request, allow_paths=False).job.model
    assert found.task == "sequence-classification"
    assert found.parameters == parameters
    assert found.is_pretrained


def test_an_instance_leaves_nothing_of_the_cluster_open() -> None:
    recipe = {"sequence_length": 512, "global_batch_size": 16, **CHOSEN}
    found = resolved(cluster={"instance": "p4d.24xlarge", "nodes": 2}, recipe=recipe)
    assert (found.assumptions, found.notes) == ((), ())
    assert found.job.cluster.world_size == 16


def test_the_waste_of_mixed_gpus_is_a_note() -> None:
    found = resolved(cluster={"gpu": "3090:2,3060:1"})
    assert found.job.cluster.world_size == 3
    assert any("without the rtx-3060" in note for note in found.notes)


def test_an_unknown_optimizer_names_the_nearest() -> None:
    with pytest.raises(InvalidInputError) as caught:
        resolved(recipe={"optimizer": "adamw-8bits"})
    assert "adamw-8bit" in caught.value.hint


TINYLLAMA = {"model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "cluster": {"gpu": "a100"}}


@pytest.mark.parametrize(
    ("default", "wished", "bytes_each", "is_said"),
    [
        ("config", None, 2, False),
        ("fp32", None, 4, True),
        ("fp32", "config", 2, False),
        ("config", "fp32", 4, False),
    ],
)
def test_the_dtype_of_the_weights_is_as_wished_or_said(
    default: str, wished: str | None, bytes_each: int, *, is_said: bool
) -> None:
    request = parse_request({**TINYLLAMA, "recipe": {"weights_dtype": wished}})
    found = resolve(request, allow_paths=False, weights_dtype=default)
    assert found.job.precision.parameter_bytes == bytes_each
    texts = [a.text for a in found.assumptions if a.field == "recipe.weights_dtype"]
    assert len(texts) == is_said
    assert all("bf16" in text and "fp32" in text and ";" not in text for text in texts)


@pytest.mark.parametrize(
    ("model", "precision", "framework"),
    [
        ("gpt2", "bf16-mixed", "torch"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "fp32", "torch"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "bf16-mixed", "deepspeed"),
    ],
)
def test_the_config_dtype_says_nothing_where_it_makes_no_difference(
    model: str, precision: str, framework: str
) -> None:
    recipe = {"precision": precision, "framework": framework}
    request = parse_request({**TINYLLAMA, "model": model, "recipe": recipe})
    found = resolve(request, allow_paths=False, weights_dtype="config")
    assert "recipe.weights_dtype" not in [a.field for a in found.assumptions]


def test_weights_of_the_other_16_bit_dtype_are_cast_by_every_matmul() -> None:
    request = parse_request({**TINYLLAMA, "recipe": {"precision": "fp16-mixed"}})
    job = resolve(request, allow_paths=False, weights_dtype="config").job
    assert (job.precision.copy_bytes, job.precision.parameter_bytes) == (2, 2)


def test_links_may_be_named_or_measured() -> None:
    cluster = {"gpu": "a100", "gpus_per_node": 8, "nodes": 2}
    named = resolved(cluster={**cluster, "inter_node": "infiniband-ndr"}).job.cluster
    assert named.inter_node is not None
    assert named.inter_node.name == "infiniband-ndr"
    measured = {"intra_node": {"bus_gb_per_s": 200}, "inter_node": {"gb_per_s_per_node": 50}}
    both = resolved(cluster={**cluster, **measured}).job.cluster
    assert both.intra_node.provenance == Provenance.MEASURED
    assert both.slowest_link.bytes_per_second == 50e9


def test_a_config_object_is_a_model_without_weights() -> None:
    config = {"model_type": "gpt2", "n_layer": 2}
    model = resolved(model=config).job.model
    assert model.blocks[0].count == 2
    assert not model.is_pretrained
    assert resolved(model={**config, "_name_or_path": "mine"}).job.model.name == "mine"


def test_a_path_is_a_model_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 3}))
    request = parse_request({**GPT2, "model": str(tmp_path)})
    model = resolve(request, allow_paths=True).job.model
    assert (model.blocks[0].count, model.is_pretrained) == (3, False)
    assert model.folder == str(tmp_path)
    (tmp_path / "model.safetensors").touch()
    model = resolve(request, allow_paths=True).job.model
    assert (model.is_pretrained, model.folder) == (True, str(tmp_path))
    with pytest.raises(InvalidInputError):
        resolve(request, allow_paths=False)


def test_the_schema_keeps_the_contract_names() -> None:
    fields = set(Request.model_fields)
    assert fields == {"id", "model", "cluster", "recipe", "strategy"} | {
        "objective",
        "max_gpus",
        "deadline_hours",
        "why",
        "machine",
        "files",
    }


def test_an_unknown_field_is_named_before_what_follows_from_it() -> None:
    found = problem({"Model": "gpt2", "cluster": {"intra_node": {"Bus": 1}}}).problems
    fields = [each.field for each in found]
    assert fields == [
        "cluster.intra_node.Bus",
        "Model",
        "model",
        "cluster.intra_node.bus_gb_per_s",
    ]


def test_a_precision_that_a_framework_lacks_names_those_that_have_it() -> None:
    with pytest.raises(InvalidInputError, match="not estimated for torch") as caught:
        resolved(recipe={"precision": "fp8"})
    assert "megatron, nanotron, torchtitan estimate fp8" in caught.value.hint
    assert caught.value.hint.endswith(": --framework megatron")
    with pytest.raises(InvalidInputError) as caught:
        resolved(recipe={"optimizer": "adamv"})
    assert caught.value.hint.startswith("did you mean adam")


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ({"strategy": "fsdp"}, 'such as {"family": "fsdp"}'),
        ({"cluster": "h100"}, 'such as {"gpu": "h100"}'),
        ({"recipe": "lora"}, ""),
        ({"strategy": 3}, ""),
    ],
)
def test_a_lone_name_is_shown_as_the_object_it_stands_for(
    section: dict[str, Any], hint: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"model": "gpt2", **section})
    (problem,) = caught.value.problems
    assert problem.hint == hint
    assert problem.field == next(iter(section))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("gpus_per_node", -4, "must be at least 1, not -4"),
        ("gpus_per_node", "four", "must be a whole number, not 'four'"),
        ("gpus_per_node", 2.5, "must be a whole number, not 2.5"),
        ("nodes", 10**6, "must be at most 65,536, not 1,000,000"),
        ("gpu", 4090, "must be text, not 4090"),
        ("topology", "{gt}" * 20_000, "must have at most 65,536 characters, not '{gt}"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_the_field(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidRequestError) as found:
        parse_request({"model": "gpt2", "cluster": {field: value}})
    (problem,) = found.value.problems
    assert problem.message.startswith(f"cluster.{field}: {said}")


@pytest.mark.parametrize(
    ("cluster", "framework", "fields"),
    [
        ({"gpu": "zzz"}, "torch", ["cluster.gpu"]),
        (
            {"gpu": "zzz", "inter_node": "foo"},
            "bar",
            ["cluster.gpu", "cluster.inter_node", "recipe.framework"],
        ),
        ({"instance": "qq", "gpu": "zzz"}, "torch", ["cluster.instance", "cluster.gpu"]),
        ({"gpu": "h100", "intra_node": "baz"}, "bar", ["cluster.intra_node", "recipe.framework"]),
    ],
)
def test_every_unknown_name_is_told_at_once(
    cluster: dict[str, Any], framework: str, fields: list[str]
) -> None:
    payload = {"model": "gpt2", "cluster": cluster, "recipe": {"framework": framework}}
    with pytest.raises(InvalidInputError) as refused:
        resolve(parse_request(payload), allow_paths=False)
    assert [each.field for each in problems_of(refused.value)] == fields


def test_a_name_that_is_wrong_hides_no_other_fault_of_its_own() -> None:
    """What follows from a name cannot be judged without it, and is not guessed at."""
    payload = {"model": "gpt2", "cluster": {"gpu": "zzz"}, "recipe": {"global_batch_size": 3}}
    with pytest.raises(UnknownNameError, match="'zzz'"):
        resolve(parse_request(payload), allow_paths=False)


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("cluster.gpus_per_node", "4", 'without quotes: "gpus_per_node": 4'),
        ("cluster.gpus_per_node", 4.0, 'a whole number: "gpus_per_node": 4'),
        ("cluster.gpus_per_node", True, "such as 8"),
        ("cluster.gpus_per_node", "4.5", "such as 8"),
        ("cluster.gpus_per_node", "2k", "such as 8"),
        ("recipe.sequence_length", "2k", 'without quotes: "sequence_length": 2048'),
        ("recipe.global_batch_size", "0.5M", 'without quotes: "global_batch_tokens": 500000'),
        ("recipe.padding_share", "0.1", 'without quotes: "padding_share": 0.1'),
        ("recipe.precision", "tf32x", "did you mean tf32 or fp32?"),
        ("recipe.weights_dtype", "bf16", "known: config, fp32"),
        ("strategy.recompute", "some", "known: none, selective, full"),
        ("strategy.recompute", "ful", "did you mean full?"),
        ("strategy.offload", "disk", "known: none, optimizer, optimizer+parameters"),
    ],
)
def test_a_value_that_is_refused_has_a_hint(field: str, value: object, hint: str) -> None:
    section, _, name = field.partition(".")
    (wrong,) = problem({"model": "gpt2", section: {name: value}}).problems
    assert (wrong.field, wrong.hint) == (field, hint)


def test_goals_and_items_of_lists_have_hints_too() -> None:
    (wrong,) = problem({"model": "gpt2", "objective": "tim"}).problems
    assert wrong.hint == "did you mean time?"
    (wrong,) = problem({"model": "gpt2", "deadline_hours": "36h"}).problems
    assert wrong.hint == 'without quotes: "deadline_hours": 36'
    (wrong,) = problem({"model": "gpt2", "strategy": {"pipeline_layout": [1, "2"]}}).problems
    assert wrong.hint == "without quotes: 2"
    (wrong,) = problem({"model": "gpt2", "strategy": {"recompute_modules": ["moe_actt"]}}).problems
    assert wrong.hint.startswith("did you mean moe_act")


@pytest.mark.parametrize(
    ("exponent", "shown"),
    [
        (8, "not 100,000,000"),
        (23, "not 100,000,000,000,000,000,000,000"),
        (80, "not a number of 81 digits"),
        (5000, "not a number of thousands of digits"),
    ],
)
def test_a_long_number_is_not_shown_in_part(exponent: int, shown: str) -> None:
    body = {"model": "gpt2", "recipe": {"sequence_length": 10**exponent}}
    (wrong,) = problem(body).problems
    assert wrong.message.endswith(shown)
