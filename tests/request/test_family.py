"""What a plan prints of a layout can be asked for."""

import numpy as np
import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.core.errors import InvalidInputError, NothingFitsError
from planner.domain.strategy import FIELDS, Offload
from planner.request.family import definite, family_fields
from planner.request.sections import StrategyRequest
from planner.request.strategy import pinned_fields, requested_layout
from planner.search.pinned_fields import AtLeast, simplest_layout
from planner.search.space import strategies

ALONE: dict[str, int] = {
    **{f"{name}_parallel_size": 1 for name in ("tensor", "pipeline", "context", "expert")},
    "offload": Offload.NONE,
}


def wish(**fields: object) -> StrategyRequest:
    return StrategyRequest.model_validate(fields)


def test_every_family_that_is_printed_can_be_asked_for(make_job: JobMaker) -> None:
    mixture = {"framework": "megatron", "sequence_length": 1024, "global_batch_size": 16}
    for job in (
        make_job("gpt2", gpus=4, cluster={"nodes": 2}),
        make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, gpu="h200", recipe=mixture),
    ):
        plan = make_plan(job)
        named = {each.candidate.strategy.family for each in plan.alternatives[::2]}
        assert len(named) > 2
        for family in named | {plan.chosen.strategy.family}:
            assert (
                make_plan(job, pinned_fields(wish(family=family))).chosen.strategy.family == family
            )


def test_a_family_says_what_it_does_not_name() -> None:
    assert family_fields("ddp") == {**ALONE, "zero_stage": 0}
    divided = {"tensor_parallel_size": 2, "zero_stage": 1, "data_parallel_size": 2}
    assert family_fields("tp+zero-1") == {**ALONE, **divided}
    assert family_fields("pp+tp")["data_parallel_size"] == 1
    assert isinstance(family_fields("tp+pp")["tensor_parallel_size"], AtLeast)
    for experts in ("ep", "pp+ep"):  # some ranks must hold the experts, of whatever stage
        assert family_fields(experts)["data_parallel_size"] == AtLeast(2)
        assert "zero_stage" not in family_fields(experts)


@pytest.mark.parametrize(
    ("spoken", "printed"),
    [
        ("FSDP", "zero-3"),
        ("fsdp2", "zero-3"),
        ("zero3", "zero-3"),
        ("ZeRO_2", "zero-2"),
        ("dp", "ddp"),
        ("hybrid_shard", "hsdp"),
        ("pp + tp", "tp+pp"),
    ],
)
def test_a_family_is_known_by_what_people_call_it(spoken: str, printed: str) -> None:
    assert family_fields(spoken) == family_fields(printed)


@pytest.mark.parametrize("name", ["sdp", "tp+", "", "ddp+zero-1", "+", "tp pp", "x" * 99])
def test_what_is_no_family_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        family_fields(name)
    assert caught.value.hint
    assert caught.value.field == "strategy.family"


def test_what_shards_states_has_ranks_to_share_them(make_job: JobMaker) -> None:
    """On four GPUs tensor parallel 4 with ZeRO-1 is tensor parallelism alone."""
    for name in ("tp+zero-1", "pp+zero-1", "tp+zero-3"):
        assert isinstance(family_fields(name)["data_parallel_size"], AtLeast)
    for name in ("zero-3", "cp+zero-3", "tp+zero-1+offload"):
        assert "data_parallel_size" not in family_fields(name)
    plan = make_plan(make_job("gpt2", gpus=4), pinned_fields(wish(family="tp+zero-1")))
    assert plan.chosen.strategy.data_parallel_size == 2


@pytest.mark.parametrize("name", ["tp+ddp", "tp+zero-1", "pp+ddp", "tp+zero-3"])
def test_two_ranks_at_least_may_be_many(make_job: JobMaker, name: str) -> None:
    job = make_job("gpt2", gpus=8, cluster={"nodes": 8}, recipe={"global_batch_size": 512})
    sizes = np.unique(strategies(job, family_fields(name)).data_parallel_size)
    assert {16, 32} <= {*sizes}


def test_a_division_that_leaves_gpus_is_told_who_takes_them(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, cluster={"nodes": 8}, recipe={"global_batch_size": 512})
    for name, reason in (("pp", "12 layers do not fill 64"), ("tp+pp", "no sizes of tp")):
        with pytest.raises(InvalidInputError, match=reason) as caught:
            make_plan(job, family_fields(name))
        assert f"--strategy {name}+ddp has" in caught.value.hint
        assert make_plan(job, family_fields(f"{name}+ddp")).chosen.strategy.data_parallel_size > 1
    encoder = make_job("google-bert/bert-base-uncased", gpus=8)
    with pytest.raises(InvalidInputError, match="is not split") as caught:
        make_plan(encoder, family_fields("pp"))
    assert "+ddp" not in caught.value.hint


def test_what_is_given_beside_a_family_wins() -> None:
    pinned = pinned_fields(
        wish(family="zero-3", tensor_parallel_size=2, data_parallel_shard_size=4)
    )
    assert pinned["tensor_parallel_size"] == 2
    assert pinned["pipeline_parallel_size"] == 1
    assert "data_parallel_replicate_size" not in pinned


def test_the_size_of_data_parallelism_is_held(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8)
    plan = make_plan(job, pinned_fields(wish(data_parallel_size=2)))
    assert plan.chosen.strategy.data_parallel_size == 2
    assert {a.candidate.strategy.data_parallel_size for a in plan.alternatives} == {2}
    with pytest.raises(InvalidInputError):
        make_plan(job, {"data_parallel_size": 3})


@pytest.mark.parametrize(
    ("given", "replicas", "shards"),
    [
        ({"data_parallel_size": 12}, 3, 4),
        ({"data_parallel_size": 6, "tensor_parallel_size": 2}, 3, 2),
        ({"data_parallel_shard_size": 2}, 6, 2),
        ({"data_parallel_replicate_size": 2}, 2, 6),
    ],
)
def test_hsdp_has_replicas_beside_a_size_of_its_data_parallelism(
    make_job: JobMaker, given: dict[str, int], replicas: int, shards: int
) -> None:
    job = make_job("gpt2", gpus=4, cluster={"nodes": 3}, recipe={"global_batch_size": 12})
    s = requested_layout(wish(family="hsdp", **given), job)
    found = s.zero_stage, s.data_parallel_replicate_size, s.data_parallel_shard_size
    assert found == (3, replicas, shards)
    plan = make_plan(job, pinned_fields(wish(family="hsdp", **given)))
    assert plan.chosen.strategy.data_parallel_replicate_size > 1


def test_hsdp_is_no_full_shard_over_all_ranks(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError, match="replicas 2, shards 8"):
        requested_layout(wish(family="hsdp", data_parallel_shard_size=8), make_job("gpt2", gpus=8))


def test_plain_ddp_is_ddp_or_nothing(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=4, gpu="4090")
    with pytest.raises(NothingFitsError):
        make_plan(job, pinned_fields(wish(family="ddp")))


def test_an_estimate_of_hsdp_shards_within_the_node(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, cluster={"nodes": 3}, recipe={"global_batch_size": 12})
    s = requested_layout(wish(family="hsdp"), job)
    assert (s.family, s.zero_stage) == ("hsdp", 3)
    assert (s.data_parallel_replicate_size, s.data_parallel_shard_size) == (3, 4)


def test_hsdp_has_two_shards_at_least_but_beside_a_divided_sequence(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 16})
    plan = make_plan(job, pinned_fields(wish(family="hsdp")))
    found = {plan.chosen.strategy, *(each.candidate.strategy for each in plan.alternatives)}
    sizes = {(s.data_parallel_replicate_size, s.data_parallel_shard_size) for s in found}
    assert sizes == {(2, 2)}
    with pytest.raises(InvalidInputError, match="sizes multiply to 4"):
        requested_layout(wish(family="hsdp"), make_job("gpt2", gpus=2))
    assert "data_parallel_shard_size" not in family_fields("cp+hsdp")


def test_an_estimate_needs_every_size(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError) as caught:
        definite(family_fields("tp+pp"), nodes=1)
    assert "add --tp N" in caught.value.hint
    s = requested_layout(
        wish(family="tp+pp", tensor_parallel_size=2, pipeline_parallel_size=2), make_job("gpt2")
    )
    assert s.family == "tp+pp"
    small = make_job("gpt2", gpu="rtx-3090", recipe={"global_batch_size": 4})
    assert requested_layout(wish(family="local-sgd"), small).synchronize_every == 32
    large = make_job("gpt2", gpu="rtx-3090", recipe={"global_batch_size": 512})
    assert requested_layout(wish(family="local-sgd"), large).synchronize_every == 2
    offloaded = definite(family_fields("zero-3+offload"), 1)
    assert offloaded["offload"] == Offload.OPTIMIZER_AND_PARAMETERS


def test_the_simplest_layout_of_at_least_two_has_two(make_job: JobMaker) -> None:
    s = simplest_layout(make_job("gpt2", gpus=4), family_fields("pp"))
    assert s.pipeline_parallel_size == 2
    assert str(AtLeast(2)) == "2 or more"


def test_a_family_names_fields_of_a_strategy() -> None:
    for name in ("tp+pp+cp+ep+hsdp+offload", "local-sgd", "zero-1", "tp"):
        known = {*FIELDS, "data_parallel_size"}
        assert family_fields(name).keys() <= known
