"""What people type is the value that they mean, at every door: `data/request/spellings.toml`."""

from typing import Any

import pytest

from planner.catalog import records
from planner.catalog.spellings import plain
from planner.core.errors import InvalidInputError, InvalidRequestError
from planner.domain.cluster import Cluster
from planner.domain.strategy import CHOICES
from planner.request.files import launcher_names
from planner.request.schema import fields, parse_request, resolve

SPELLINGS = {
    path: found for path, found in records.read("request", "spellings").items() if path != "source"
}
OPEN = {
    "recipe.optimizer": {
        name for each in records.framework_names() for name in records.framework(each).optimizers
    },
    "strategy.pipeline_schedule": {*CHOICES["pipeline_schedule"].names()},
    "cluster.intra_node": {*records.link_names(), "nvlink"},
    "cluster.inter_node": {*records.link_names()},
    "files.launchers": {*launcher_names()},
}
"""What a field may name that has no few names of its own."""


@pytest.mark.parametrize("path", SPELLINGS)
def test_every_spelling_means_a_value_and_is_none_itself(path: str) -> None:
    known = {str(name) for name in fields()[path].names} | OPEN.get(path, set())
    for typed, meant in SPELLINGS[path].items():
        assert meant in known, typed
        assert typed not in known
        assert plain(typed) == typed


@pytest.mark.parametrize(
    ("section", "field", "typed", "meant"),
    [
        ("recipe", "method", "QLoRA", "qlora"),
        ("recipe", "optimizer", "AdamW", "adamw"),
        ("recipe", "optimizer", "adamw_torch_fused", "adamw-fused"),
        ("recipe", "framework", "megatron-lm", "megatron"),
        ("recipe", "precision", "bfloat16", "bf16"),
        ("recipe", "precision", "BF16_Mixed", "bf16-mixed"),
        ("recipe", "precision", "fp16", "fp16-mixed"),
        ("recipe", "attention", "flash_attention_2", "flash"),
        ("strategy", "offload", "cpu", "optimizer"),
        ("strategy", "recompute", "Gradient Checkpointing", "full"),
    ],
)
def test_a_value_in_another_spelling(section: str, field: str, typed: str, meant: str) -> None:
    request = parse_request({"model": "gpt2", section: {field: typed}})
    assert getattr(getattr(request, section), field) == meant


def test_what_is_no_spelling_is_shown_as_it_was_typed() -> None:
    with pytest.raises(InvalidRequestError, match="not 'Nope_8'"):
        parse_request({"model": "gpt2", "recipe": {"precision": "Nope_8"}})


def cluster(**given: Any) -> Cluster:
    return resolve(
        parse_request({"model": "gpt2", "cluster": given}), allow_paths=False
    ).job.cluster


def test_gpus_are_counted_before_their_name_too() -> None:
    assert (cluster(gpu="2x3090").gpus_per_node, cluster(gpu="2 x 3090").gpu.name) == (
        2,
        "rtx-3090",
    )
    assert cluster(gpu="2x3090,3060:1").gpus_per_node == 3
    assert cluster(gpu="A100 80G").gpu.name == "a100-sxm-80gb"
    with pytest.raises(InvalidInputError, match="cannot read"):
        cluster(gpu="2x3090:4")


def test_nvlink_is_the_gpus_own() -> None:
    pair = {"gpus_per_node": 2, "intra_node": "NVLink"}
    assert cluster(gpu="3090", **pair).intra_node.name == "4x nvlink-3-ga102"
    without = {"gpu": "h100", "gpus_per_node": 2}
    assert cluster(**without, intra_node="nvlink").intra_node == cluster(**without).intra_node
    with pytest.raises(InvalidInputError, match="rtx-4090 has no NVLink"):
        cluster(gpu="4090", **pair)
    with pytest.raises(InvalidInputError, match="joins 2 cards"):
        cluster(gpu="3090", gpus_per_node=4, intra_node="nvlink")


def test_a_network_in_short_is_that_network() -> None:
    nodes = {"gpu": "h100", "gpus_per_node": 8, "nodes": 2}
    for typed, meant in (("ib-hdr", "infiniband-hdr"), ("8x NDR", "8x infiniband-ndr")):
        assert (
            cluster(**nodes, inter_node=typed).inter_node
            == cluster(**nodes, inter_node=meant).inter_node
        )
