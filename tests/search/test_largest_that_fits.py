from dataclasses import replace

import numpy as np
import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Recompute, vary
from planner.memory.ledger import estimate_memory
from planner.request.schema import parse_request, resolve
from planner.search import largest_that_fits
from planner.search.candidate import Candidate, estimate, estimate_rows
from planner.search.largest_that_fits import (
    changes_that_fit,
    fewest_gpus,
    fits_somehow,
    largest_micro_batch,
    lighter,
    longest_sequence,
    remedies,
    with_gpus,
)

LLAMA = "meta-llama/Llama-2-7b-hf"
ZERO_3 = Layout(data_parallel_shard_size=8, zero_stage=3)


def fits(job: object, s: Layout) -> bool:
    return bool(estimate(job, s).fits)  # type: ignore[arg-type]


def test_one_sequence_more_than_the_largest_micro_batch_does_not_fit(make_job: JobMaker) -> None:
    job = make_job(gpus=1, gpu="rtx-4090", recipe={"global_batch_size": 1})
    most = largest_micro_batch(job, Layout())
    assert most > 1
    assert fits(job, Layout(micro_batch_size=most))
    assert not fits(job, Layout(micro_batch_size=most + 1))


@pytest.mark.parametrize("most", [1, 2, 3, 63, 64, 65, 127, 128, 1000, 4097])
def test_the_largest_micro_batch_is_the_last_one_that_the_card_holds(
    make_job: JobMaker, most: int
) -> None:
    job = make_job(gpus=1, recipe={"global_batch_size": 1, "optimizer": "sgd"})
    device = job.framework.device

    def needed(size: int) -> float:
        """Return the least that it reserves: on a nearly full card the allocator gives back what no tensor needs."""
        peak = float(estimate_memory(job, Layout(micro_batch_size=size)).peak_bytes)
        return device.context_bytes + (1 + device.least_fraction) * peak

    gpu = replace(job.cluster.gpu, usable_bytes=(needed(most) + needed(most + 1)) / 2)
    card = replace(job, cluster=replace(job.cluster, gpu=gpu))
    assert largest_micro_batch(card, Layout()) == most
    assert fits(card, Layout(micro_batch_size=most))
    assert not fits(card, Layout(micro_batch_size=most + 1))


def test_where_not_even_one_sequence_fits_the_largest_micro_batch_is_zero(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=1, gpu="t4", recipe={"global_batch_size": 1})
    assert largest_micro_batch(job, Layout()) == 0
    assert longest_sequence(job, Layout()) == 0


def test_images_are_neither_longer_nor_shorter(make_job: JobMaker) -> None:
    job = make_job("microsoft/resnet-50", gpus=1)
    tiny = replace(job.cluster.gpu, memory_bytes=10**8, usable_bytes=10**8)
    small = replace(job, cluster=replace(job.cluster, gpu=tiny))
    assert [longest_sequence(each, Layout()) for each in (job, small)] == [3136, 0]
    fields = {each.field for each in remedies(small, None, lambda _: None)}
    assert "recipe.sequence_length" not in fields


def test_one_token_more_than_the_longest_sequence_does_not_fit(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 8, "sequence_length": 1024})
    most = longest_sequence(job, ZERO_3)
    for length, does_fit in ((most, True), (most + 1, False)):
        longer = replace(job, recipe=replace(job.recipe, sequence_length=length))
        assert fits(longer, ZERO_3) == does_fit


def test_learned_positions_bound_the_sequence(make_job: JobMaker) -> None:
    job = make_job(gpus=1, recipe={"global_batch_size": 1})
    assert longest_sequence(job, Layout()) == 1024


def test_half_of_the_fewest_gpus_do_not_do(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, gpu="rtx-4090", recipe={"global_batch_size": 8})
    fewest = fewest_gpus(job, Layout())
    assert fewest is not None
    assert fewest > 1
    nodes = max(1, fewest // 16)
    assert not fits_somehow(with_gpus(job, fewest // 2 // nodes, nodes))
    assert fits_somehow(with_gpus(job, min(8, fewest), max(1, fewest // 8)))


def test_a_batch_that_gpus_do_not_divide_is_rounded_up(make_job: JobMaker) -> None:
    job = make_job(gpus=8, recipe={"global_batch_size": 12})
    whole = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "context_parallel_size": 1}
    assert fits_somehow(job, whole)
    assert fits_somehow(job, {**whole, "gradient_accumulation_steps": 16 // 8})
    assert not fits_somehow(job, {**whole, "gradient_accumulation_steps": 12})


def test_gpus_are_doubled_in_a_node_and_then_its_nodes(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fits_never(job: Job) -> bool:
        tried.append((job.cluster.gpus_per_node, job.cluster.nodes))
        return False

    monkeypatch.setattr(largest_that_fits, "fits_somehow", fits_never)
    assert fewest_gpus(make_job(gpus=8), Layout()) is None
    nodes = [(8, 2**doubled) for doubled in range(10)]  # up to 4,096 GPUs
    assert tried == [(1, 1), (2, 1), (4, 1), *nodes]


def test_a_model_too_large_for_any_number_of_gpus_is_said(make_job: JobMaker) -> None:
    wide = {"model_type": "llama", "hidden_size": 131072, "num_attention_heads": 128}
    wide |= {"intermediate_size": 524288, "num_hidden_layers": 2, "vocab_size": 128}
    assert fewest_gpus(make_job(wide, gpus=8, gpu="t4"), Layout()) is None


def test_every_change_offered_makes_it_fit_and_the_cheapest_comes_first(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=8, recipe={"global_batch_size": 64, "sequence_length": 4096})
    s = Layout(data_parallel_shard_size=8, zero_stage=3, micro_batch_size=8)
    assert not fits(job, s)
    changes = changes_that_fit(job, s)
    names = [change.name for change in changes]
    assert "recompute full" in names
    assert all(change.candidate.fits for change in changes)
    assert [c.slowdown for c in changes] == sorted(c.slowdown for c in changes)


def test_what_a_change_alters_is_what_its_name_says(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"global_batch_size": 16})
    s = Layout(data_parallel_replicate_size=4, micro_batch_size=2, gradient_accumulation_steps=2)
    changed = {change.name: change.candidate.strategy for change in changes_that_fit(job, s)}
    halved = changed["micro-batch 1"]
    assert (halved.micro_batch_size, halved.gradient_accumulation_steps) == (1, 4)
    assert changed["ZeRO-3"].data_parallel_shard_size == 4
    assert changed["8-bit AdamW"] == changed["pure bf16"] == s
    assert "8-bit AdamW and pure bf16" not in changed
    assert changed["recompute full"].recompute == Recompute.FULL
    alone = changes_that_fit(replace(job, cluster=replace(job.cluster, gpus_per_node=1)), Layout())
    assert not any(change.name.startswith("ZeRO") for change in alone)


def test_smaller_states_of_both_kinds_are_tried_where_neither_is_enough(
    make_job: JobMaker,
) -> None:
    recipe = {"global_batch_size": 8, "weights_dtype": "fp32", "optimizer": "adamw"}
    job = make_job("meta-llama/Llama-2-70b-hf", gpus=8, gpu="a100-80gb", recipe=recipe)
    s = Layout(data_parallel_shard_size=8, zero_stage=3, recompute=Recompute.FULL)
    changed = {change.name: change.candidate for change in changes_that_fit(job, s)}
    assert not {"8-bit AdamW", "pure bf16"} & set(changed)
    # 2 B of weights, 2 of gradients and 2 of states for each of 69 billion parameters over 8 GPUs
    assert changed["8-bit AdamW and pure bf16"].memory.reserved_bytes > 6 * 69e9 / 8


def test_offload_is_offered_where_the_framework_has_it(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"global_batch_size": 16, "framework": "deepspeed"})
    s = Layout(data_parallel_shard_size=4, zero_stage=3, gradient_accumulation_steps=4)
    names = {change.name for change in changes_that_fit(job, s)}
    assert {"offload optimizer", "offload optimizer+parameters"} <= names
    whole = Layout(data_parallel_replicate_size=4, gradient_accumulation_steps=4)
    for other in (whole, replace(s, offload=Offload.OPTIMIZER)):
        assert not any("offload" in change.name for change in changes_that_fit(job, other))


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_column_of_micro_batches_grows(make_job: JobMaker, size: int) -> None:
    job = make_job(gpus=1)
    small, large = estimate_rows(job, vary(Layout(), micro_batch_size=np.array([size, size + 1])))
    assert small.memory.reserved_bytes < large.memory.reserved_bytes


def test_with_model_parallelism_the_fewest_gpus_are_whole_replicas(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron", "global_batch_size": 64}
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, gpu="h100", recipe=recipe)
    s = Layout(
        tensor_parallel_size=2,
        sequence_parallel=True,
        pipeline_parallel_size=4,
        zero_stage=1,
        gradient_accumulation_steps=64,
    )
    fewest = fewest_gpus(job, s)
    assert fewest is not None
    ranks = fewest // 8
    assert ranks > 1
    for size, does_fit in ((ranks, True), (ranks // 2, False)):
        reserved = estimate_memory(job, replace(s, data_parallel_shard_size=size)).reserved_bytes
        assert (reserved <= job.usable_bytes) == does_fit
    wide = replace(s, zero_stage=0, micro_batch_size=4096)
    assert fewest_gpus(job, wide) is None


def test_adapters_are_offered_where_they_can_be(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 1, "sequence_length": 512}
    job = make_job(LLAMA, gpus=1, gpu="rtx-4090", recipe=recipe)
    names = [change.name for change in changes_that_fit(job, Layout())]
    assert "QLoRA of rank 16" in names
    pair = make_job(gpus=2, recipe={"global_batch_size": 2})
    split = Layout(tensor_parallel_size=2)
    assert not any("LoRA" in change.name for change in changes_that_fit(pair, split))


def test_adapters_are_offered_with_what_they_take_and_how_long_a_step_is(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=1, gpu="rtx-3090")

    def chosen(changed: Job) -> Candidate | None:
        lora = changed.recipe.lora
        return estimate(changed, Layout()) if lora is not None and lora.is_quantised else None

    texts = [each.sentence for each in remedies(job, None, chosen) if "LoRA" in each.text]
    assert len(texts) == 1
    assert texts[0].startswith("QLoRA of rank 16 would fit (--method qlora) in ")
    assert " GiB of each GPU, " in texts[0]
    assert texts[0].endswith(" a step of 64 sequences")


@pytest.mark.parametrize(("fitting", "offered"), [(256, ["256"]), (128, ["128"]), (64, [])])
def test_sequences_are_halved_down_to_128_tokens(
    make_job: JobMaker, fitting: int, offered: list[str]
) -> None:
    job = make_job(gpus=1, recipe={"global_batch_size": 1})

    def reserved(length: int) -> float:
        shorter = replace(job, recipe=replace(job.recipe, sequence_length=length))
        return float(estimate_memory(shorter, Layout(recompute=Recompute.FULL)).reserved_bytes)

    gpu = replace(job.cluster.gpu, usable_bytes=(reserved(fitting) + reserved(2 * fitting)) / 2)
    small = replace(job, cluster=replace(job.cluster, gpu=gpu))
    found = remedies(small, None, lambda _: None)
    assert [each.value for each in found if each.field == "recipe.sequence_length"] == offered


def test_what_is_offered_fits_with_what_was_pinned(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=4, gpu="rtx-3090")
    whole = {"zero_stage": 0, "tensor_parallel_size": 1, "pipeline_parallel_size": 1}
    whole |= {"context_parallel_size": 1}
    free = {each.field for each in remedies(job, None, lambda _: None)}
    assert {"recipe.precision", "cluster.nodes"} <= free
    # Replicas are as large whatever the number of GPUs; 8 GB of weights in 16 bit have gradients and states.
    kept = remedies(job, whole, lambda _: None)
    assert [(each.field, each.value) for each in kept] == [("strategy", "")]
    assert "more would help" in kept[0].text


def test_what_is_offered_beside_a_pinned_offload_fits_on_the_host_too() -> None:
    request = {"model": "EleutherAI/gpt-neox-20b", "cluster": {"instance": "g5.12xlarge"}}
    job = resolve(parse_request(request), allow_paths=False).job
    found = remedies(job, {"offload": Offload.OPTIMIZER_AND_PARAMETERS}, lambda _: None)
    # 459 GiB of a host's 192: more hosts are the only change that is enough.
    assert [(each.field, each.value) for each in found] == [("cluster.nodes", "4")]


def test_adapters_take_the_policy_without_them_for_a_reference(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=1, gpu="rtx-4090", recipe={"job": "dpo"})
    flags = {flag: changed for _, flag, _, changed in lighter(job)}
    asked = {"job": "dpo", "method": "lora"}
    alone = make_job(LLAMA, gpus=1, gpu="rtx-4090", recipe=asked)
    found = flags["--method lora"].recipe
    assert (job.recipe.reference_model, found.reference_model) == ("loaded", "shared")
    assert found.reference_model == alone.recipe.reference_model
