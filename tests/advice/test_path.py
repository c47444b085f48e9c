"""The way through the decision tree, as the page draws it."""

import pytest

from planner import answers
from planner.advice.plan import Plan
from planner.advice.rules.sentences import said
from planner.core.units import format_bytes
from planner.request.schema import parse_request


def plan(model: str, **cluster: object) -> Plan:
    body = {"model": model, "cluster": cluster}
    return answers.suggest(parse_request(body), allow_paths=False)[1]


@pytest.mark.parametrize(
    ("model", "cluster", "codes", "answer"),
    [
        ("gpt2", {"gpu": "a100"}, ["ONE001"], "yes"),
        ("gpt2", {"gpu": "a100", "gpus_per_node": 4}, ["ONE001", "ONE002"], "yes"),
        (
            "meta-llama/Llama-2-7b-hf",
            {"gpu": "rtx-4090", "gpus_per_node": 8},
            ["ONE001", "ONE002", "ONE006", "ONE004"],
            "no",
        ),
        (
            "meta-llama/Llama-3.1-70B",
            {"gpu": "h100", "gpus_per_node": 8, "nodes": 4},
            ["ONE001", "MUL001", "ONE006", "MUL002"],
            "yes",
        ),
        (
            "meta-llama/Llama-2-7b-hf",
            {"gpu": "t4", "gpus_per_node": 8, "nodes": 2, "inter_node": "ethernet-10g"},
            ["ONE001", "MUL001", "ONE006", "MUL003"],
            "no",
        ),
    ],
)
def test_a_path_ends_at_the_branch_that_was_taken(
    model: str, cluster: dict[str, object], codes: list[str], answer: str
) -> None:
    found = plan(model, **cluster)
    assert [node.code for node in found.path] == codes
    assert [node.is_taken for node in found.path] == [False] * (len(codes) - 1) + [True]
    assert found.path[-1].code == found.findings[0].code
    assert found.path[-1].answer == answer
    assert {node.answer for node in found.path[:-1]} <= {"no"}


def test_a_node_shows_the_number_that_its_rule_tests() -> None:
    found = plan("meta-llama/Llama-2-7b-hf", gpu="rtx-4090", gpus_per_node=8)
    gpus, replica, _, links = found.path
    assert gpus.tested == "8 GPUs"
    assert replica.tested.partition(" of ")[0] in found.findings[0].message
    assert replica.tested.endswith(format_bytes(found.job.usable_bytes))
    assert links.tested in found.findings[0].message


def test_the_network_is_what_a_path_over_nodes_tests() -> None:
    cluster = {"gpu": "a100-pcie-40gb", "gpus_per_node": 8, "nodes": 4}
    found = plan("meta-llama/Llama-3.1-70B", **cluster, inter_node="infiniband-hdr")
    assert found.job.cluster.slowest_link is not found.job.cluster.inter_node
    assert found.job.cluster.inter_node is not None
    assert found.path[-1].tested.startswith(f"{found.job.cluster.inter_node.name} (")
    assert found.path[-1].tested in found.findings[0].message


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ({}, "infiniband-ndr ("),
        ({"zero_stage": 3}, said("ONE002.asked", asked="ZeRO-3")),
        ({"pipeline_parallel_size": 2}, said("ONE002.asked", asked="pipeline parallelism")),
    ],
)
def test_only_gradients_cross_a_network_where_nothing_else_is_asked_for(
    strategy: dict[str, int], says: str
) -> None:
    cluster = {"gpu": "a40", "gpus_per_node": 4, "nodes": 2, "inter_node": "infiniband-ndr"}
    body = {"model": "gpt2", "cluster": cluster, "recipe": {"global_batch_size": 64}}
    body |= {"strategy": strategy} if strategy else {}
    found = answers.suggest(parse_request(body), allow_paths=False)[1]
    (message,) = (each.message for each in found.findings if each.code == "MUL001")
    assert says in message
