"""The glossary: everything in it is found, leads somewhere, and its numbers are right."""

import math
import re
import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_ledgers import LLAMA, layouts

from planner.catalog import records
from planner.core.errors import UnknownNameError
from planner.core.units import GIGA, format_pace
from planner.domain.strategy import DATA_NAMES, Layout, PipelineSchedule
from planner.explain import glossary
from planner.explain.glossary import (
    Entry,
    codes,
    entries,
    explain,
    find_code,
    find_term,
    listed,
    messages,
)
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory, phased_terms
from planner.models.architectures import read_model
from planner.parallel.partition import stage
from planner.parallel.pipeline_schedules import SCHEDULES
from planner.parallel.schedule import StageSeconds, simulate
from planner.parallel.schedule_orders import Kind, Shape
from planner.request.schema import parse_request, resolve
from planner.step_time.terms import StepTerm

ENTRIES = entries()
HEADINGS = ("Why", "When", "Costs", "Watch out")
WANTED = """
dp, ddp, nn.DataParallel, zero, zero-1, zero-2, zero-3, fsdp, hsdp, tensor parallelism, sequence parallelism,
pipeline parallelism, gpipe, 1f1b, interleaved, zero-bubble, bubble, naive model parallelism,
context parallelism, expert parallelism, 3d parallelism, local sgd, gradient accumulation, chunks,
micro-batch, global batch, recompute, activation checkpointing, offload, mixed precision, mfu,
exposed communication, bus bandwidth, nvlink, nvswitch, p2p, all-reduce, no_sync, accelerate,
effective batch, DistributedSampler, rank map, FlexFlow, soap, sharded, partitioned, horizontal, vertical,
step 0, rloo, ipo, orpo, simpo, kto, ppo, colocate, server mode, log-probabilities, reference model, kl, beta, rollout,
completion, sleep mode, weight sync, speed-up, Amdahl's law, warm-up, linear scaling rule, throughput, gradient checkpointing
"""
TYPED = """
num_processes, max_steps, scheduler, lr, learning rate, checkpoint, OOM, dataloader, NCCL, slurm, lora, qlora, moe,
CUDA out of memory, gradient checkpointing, fsdp2, hsdp, mfu, nvlink, p2p, epochs, warmup, seed, batchnorm,
sync batch norm, find_unused_parameters, no_sync, torchrun, rdzv, gloo, num_workers, pin_memory, bitsandbytes, peft,
adamw, 8-bit adam, flash attention, sdpa, torch.compile, clip_grad_norm, max_grad_norm, infiniband, ethernet, resume,
nproc_per_node, world size, local rank, NCCL timeout, accelerate launch, device_map, bf16, fp8, srun, num_train_epochs,
per_device_train_batch_size, gradient_accumulation_steps, out of memory, SyncBatchNorm, faster, torch.cuda.OutOfMemoryError
"""
"""What people type who meet a flag, an error or a word of a tutorial."""
OUR_WORDS = {
    "headroom": ("fits", "tight", "too big", "headroom"),
    "trust": (
        *("sure", "confidence", "main uncertainty", "link speed", "published runs", "nine in ten"),
        *("range", "lead", "too close to call", "estimated", "trust"),
    ),
    "ddp": ("replica", "copy of the model"),
    "torch-compile": ("compiled", "eager"),
    "chunked-loss": ("fused loss", "logits and loss"),
    "recompute": ("recompute", "full recompute", "selective recompute"),
    "exposed-communication": ("exposed", "waiting", "slower compute", "overlap slowdown"),
    "offload": ("offload", "host memory"),
    "launcher": ("launch files",),
    "steps-and-epochs": ("step", "optimizer step"),
    "faster": ("faster", "as fast", "times as long"),
    "gradient-accumulation": ("accumulation",),
    "rank-map": ("rank",),
}
"""What commands print and the field does not say by itself, by the entry that explains it."""
TYPED_WORDS = tomllib.loads(Path("tests/facts/typed_words.toml").read_text(encoding="utf-8"))
"""The same at length, by the entry that they mean."""


def text_of(name: str) -> str:
    return " ".join(find_term(name).text.split())


def says(name: str, *phrases: str) -> None:
    text = text_of(name)
    for phrase in phrases:
        assert phrase in text, phrase


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_whole(entry: Entry) -> None:
    statement, *paragraphs = entry.text.split("\n\n")
    assert "\n" not in statement
    assert len(statement) <= 130
    assert statement.endswith(".")
    assert [each.partition(": ")[0] for each in paragraphs] == list(HEADINGS)
    assert entry.text.isascii()
    assert len(entry.source) > 20
    assert entry.group
    assert entry.title[0].isupper() or entry.title[0].isdigit() or entry.name == "no_sync"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_leads_to_others(entry: Entry) -> None:
    names = {each.name for each in ENTRIES} | {each.code for each in codes()}
    assert entry.see
    assert entry.name not in entry.see
    assert set(entry.see) <= names
    assert len(set(entry.see)) == len(entry.see)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_found_by_every_spelling_however_it_is_typed(entry: Entry) -> None:
    spellings = (entry.name, entry.title, *entry.synonyms)
    for spelling in spellings:
        for typed in (spelling, spelling.upper(), f" {spelling.replace(' ', '_')} "):
            assert find_term(typed) is entry
            assert explain(typed) is entry
        assert explain(spelling.replace("-", " ")) is entry


def test_no_two_spellings_are_one() -> None:
    seen: dict[str, str] = {}
    for entry in ENTRIES:
        for spelling in (entry.name, *entry.synonyms):
            key = re.sub(r"[\W_]+", " ", spelling.lower()).strip()
            assert key, spelling
            assert key not in seen, (spelling, seen[key])
            seen[key] = spelling


@pytest.mark.parametrize(
    "term", sorted({each.strip() for each in f"{WANTED},{TYPED}".replace("\n", " ").split(",")})
)
def test_what_people_ask_for_is_there(term: str) -> None:
    assert find_term(term)


def test_what_people_type_leads_to_what_they_mean() -> None:
    words = {typed: name for name, group in TYPED_WORDS.items() for typed in group}
    assert len(words) > 200
    assert {typed: find_term(typed).name for typed in words} == words


@pytest.mark.parametrize("name", OUR_WORDS)
def test_every_word_of_our_own_is_explained(name: str) -> None:
    assert {word: find_term(word).name for word in OUR_WORDS[name]} == dict.fromkeys(
        OUR_WORDS[name], name
    )


def test_a_class_is_not_the_idea_of_nearly_that_name() -> None:
    assert find_term("DataParallel").name == "dp"
    assert find_term("data-parallel").name == "ddp"
    assert find_term("ZeroRedundancyOptimizer").name == "zero-1"
    assert find_term("zero redundancy optimizer").name == "zero"


@pytest.mark.parametrize(
    ("typed", "name"),
    [("allreduce", "all-reduce"), ("zero3", "zero-3"), ("NoSync", "no_sync"), ("1 F 1 B", "1f1b")],
)
def test_spaces_may_be_missing(typed: str, name: str) -> None:
    assert find_term(typed).name == name


def test_the_numbers_of_a_run_are_right() -> None:
    assert math.ceil(10_000 / 64) == 157
    assert math.ceil(10_000 / (4 * 64)) == 40
    says("steps-and-epochs", "64 are 157 steps an epoch", "they are 40")
    says("checkpoint", f"AdamW {4 + 8} B per parameter")
    assert GIGA * 400 / 8 == 50 * GIGA
    says("network", "400 Gbit/s are 50 GB/s")
    says("data-loading", f"8 processes with 8 workers are {8 * 8} more processes")


def test_the_numbers_of_adapters_are_right() -> None:
    trained, whole = 16 * (4096 + 4096), 4096 * 4096
    says(
        "lora",
        f"{trained:,} parameters in place of {whole:,}, {trained / whole:.2%}".replace("%", " %"),
    )
    says("qlora", f"8 B parameters take {8 * 4 // 8} GB")
    says("optimizer", f"8 B parameters have {8 * 8} GB", "twice their fp32 weights")


def test_the_numbers_of_words_beside_training_are_right() -> None:
    says("fp4", f"{4 + 8 / 32:.2f} bits per weight for MXFP4, {4 + 8 / 16:.1f} for NVFP4")
    says("preference-training", f"(8 B parameters in bf16: {8 * 2} GB more)")
    h100 = records.gpu("h100-sxm-80gb")
    per_byte = h100.peak_flops["bf16"] / h100.hbm_bytes_per_second
    says("roofline", f"{per_byte:.0f} FLOPs per byte", "a fifteenth of their rate")
    assert round(h100.peak_flops["bf16"] / h100.peak_flops["fp32"]) == 15
    says("inference", f"{2 * 32 * 8 * 128 * 2 // 1024} KiB for Llama-3.1-8B")


def test_faster_means_what_is_printed() -> None:
    assert format_pace(1.00, 1.08) == "8.0 % faster"
    assert pytest.approx(0.074, abs=5e-4) == 1 - 1.00 / 1.08
    says("faster", "8 % faster than B", "7.4 % faster of the same two steps", "2.0 times as fast")
    assert format_pace(1, 2) == "2.0 times as fast"


def test_synonyms_lead_to_the_strategy_they_mean() -> None:
    meant = {
        "Sharded": "zero",
        "PARTITIONED": "zero",
        "horizontal": "tensor-parallelism",
        "vertical": "pipeline-parallelism",
        "FullyShardedDataParallel": "fsdp",
        "activation_checkpointing": "recompute",
        "ring attention": "context-parallelism",
        "single GPU": "step-0",
        "DataParallel": "dp",
        "DistributedDataParallel": "ddp",
    }
    assert {word: find_term(word).name for word in meant} == meant


def test_every_strategy_and_schedule_of_the_planner_is_explained() -> None:
    for name in (*DATA_NAMES.values(), *PipelineSchedule.names()):
        assert find_term(name)


def test_every_line_of_a_ledger_is_explained_by_its_name_and_its_words() -> None:
    paged = {"model": LLAMA, "recipe": {"optimizer": "paged-adamw-8bit"}}
    jobs = [each[1:] for each in layouts()]
    names = {str(each) for each in StepTerm}
    for job, s in (*jobs, (resolve(parse_request(paged), allow_paths=False).job, Layout())):
        host = estimate_host_memory(job, s)
        names |= {each.name for each in phased_terms(job, s, stage(job, s, 0))}
        names |= {each.name for each in estimate_memory(job, s).terms}
        names |= {each.name for each in (*host.terms, host.loading)}
    assert {"paged_states", "host_paged_states", "host_optimizer_states"} <= names
    for name in names:
        assert find_term(name) is find_term(name.replace("_", " "))


def test_a_paged_optimizer_says_what_paging_does() -> None:
    assert find_term("paged-adamw-8bit") is find_term("host_paged_states")
    says("paged-adamw-8bit", "managed memory", "over PCIe in each step")


def test_names_carry_the_version_that_was_looked_at() -> None:
    known = {
        name: records.framework(name).capabilities.version for name in records.framework_names()
    }
    named = [spelling for entry in ENTRIES for spelling in entry.names]
    assert {"torch", "accelerate", "deepspeed", "megatron", "torchtitan", "transformers"} <= {
        spelling.framework for spelling in named
    }
    for spelling in named:
        assert spelling.text
        assert spelling.version == known.get(spelling.framework, "5.23.0")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("tensor-parallelism", "tensor_parallel"),
        ("sequence-parallelism", "sequence_parallel"),
        ("context-parallelism", "context_parallel"),
        ("expert-parallelism", "expert_parallel"),
        ("pipeline-parallelism", "pipeline_schedules"),
        ("hsdp", "hybrid_shard"),
        ("local-sgd", "local_sgd"),
        ("interleaved", "virtual_stages"),
    ],
)
def test_a_term_has_a_name_in_exactly_the_frameworks_that_can_do_it(
    name: str, capability: str
) -> None:
    able = {
        framework
        for framework in records.framework_names()
        if getattr(records.framework(framework).capabilities, capability)
    }
    named = {spelling.framework for spelling in find_term(name).names}
    assert named - {"transformers"} == able


def test_codes_are_those_of_rules_topologies_the_probe_and_checks() -> None:
    found = [each.code for each in codes()]
    assert len(found) == len(set(found))
    assert {code[:3] for code in found} >= {"ONE", "MEM", "SHP", "TOP", "PRB", "CHK"}
    assert find_code(" top001 ").severity == "finding"
    assert find_code("PRB001").name == "found-by-the-probe"
    assert find_code("CHK003").name == "found-by-a-check"
    assert explain("one002") is find_code("ONE002")


@pytest.mark.parametrize("letters", ["CFG", "tim", " Doc ", "ERR"])
def test_three_letters_list_the_codes_that_begin_with_them(letters: str) -> None:
    found = listed(letters)
    assert found is not None
    family = letters.strip().upper()
    rules, said, terms = found
    assert [each.code for each in (*rules, *said)] == [
        each.code for each in (*codes(), *messages()) if each.code.startswith(family)
    ]
    assert rules or said
    assert terms == ()


@pytest.mark.parametrize("name", ["ddp", "mfu", "CF", "CFG001", "xyz"])
def test_a_term_or_a_whole_code_lists_nothing(name: str) -> None:
    assert listed(name) is None


def test_no_term_hides_a_code() -> None:
    for code in codes():
        assert explain(code.code) is code
        with pytest.raises(UnknownNameError):
            find_term(code.code)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("tensor paralelism", "tensor parallel"),
        ("zero-4", "zero-1"),
        ("ONE01", "ONE001"),
        ("gradient accumulatoin", "gradient accumulation"),
        ("~~~", "`planner explain` lists"),
        ("", "`planner explain` lists"),
    ],
)
def test_a_miss_names_the_nearest_of_codes_and_terms(typed: str, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        explain(typed)
    assert hint.lower() in caught.value.hint.lower()
    assert caught.value.field == "code"


@pytest.mark.parametrize("look_up", [explain, find_term, find_code])
@settings(deadline=None)
@given(typed=st.text(max_size=300))
def test_any_text_is_found_or_refused(look_up: Callable[[str], object], typed: str) -> None:
    try:
        look_up(typed)
    except UnknownNameError as error:
        refusal = error
    else:
        return
    assert refusal.hint
    assert len(refusal.message) < 800


# What a number in a text must be, from its arithmetic.


def bubble(stages: int, micro_batches: int, chunks: int = 1) -> str:
    return f"{100 * (stages - 1) / (chunks * micro_batches + stages - 1):.1f} %"


def test_bubbles_are_those_of_the_formula() -> None:
    shown = [bubble(4, m) for m in (1, 4, 8, 32)]
    assert shown == ["75.0 %", "42.9 %", "27.3 %", "8.6 %"]
    says("bubble", "75 % with 1 micro-batch", *(f"{each}" for each in shown[1:]))
    says("bubble", f"{bubble(4, 8, 2)} with 8 micro-batches and v = 2", f"{100 * 3 / 8} %")
    says("interleaved", f"from {bubble(4, 8)} to {bubble(4, 8, 2)} with v = 2")
    says("naive-model-parallelism", "25 % on 4")


def simulated(schedule: str, micro_batches: int, virtual: int = 1) -> str:
    """The bubble of 4 stages whose forward, input and weight gradients take a second each."""
    stage = StageSeconds(forward=1, backward=2, weight=1)
    timeline = simulate(PipelineSchedule(schedule), [stage] * 4, micro_batches, virtual)
    return f"{100 * timeline.bubble_fraction:.1f} %"


def test_bubbles_are_those_of_the_simulated_schedules() -> None:
    for micro_batches in (1, 4, 8, 32):
        assert simulated("1f1b", micro_batches) == bubble(4, micro_batches)
        assert simulated("gpipe", micro_batches) == bubble(4, micro_batches)
    assert simulated("interleaved-1f1b", 8, 2) == bubble(4, 8, 2)
    assert simulated("naive", 8) == bubble(4, 1)
    says("zero-bubble", f"{simulated('zb-h1', 8)} of the step in place of {simulated('1f1b', 8)}")


def test_gpipe_runs_in_the_order_that_is_shown() -> None:
    letters = {Kind.FORWARD: "F", Kind.BACKWARD: "B"}
    order = [
        f"{letters[op.kind]}{op.micro_batch}"
        for op in SCHEDULES[PipelineSchedule("gpipe")].order(Shape(stages=4, micro_batches=4), 0)
    ]
    says("gpipe", f"runs {' '.join(order[:4])}, then {' '.join(order[4:])}.")


def test_a_ring_moves_what_is_said() -> None:
    shares = {n: 2 * (n - 1) / n for n in (2, 4, 8)}
    assert shares == {2: 1, 4: 1.5, 8: 1.75}
    says("all-reduce", "1 time the data on 2 GPUs, 1.5 on 4, 1.75 on 8", "2 (n - 1) / n")
    says("bus-bandwidth", "1.75 times on 8 GPUs")
    record = records.model("gpt2")
    assert record
    gradients = read_model("gpt2", record.config).parameters * 4
    says("ddp", f"{gradients / 1e6:.0f} MB, on 8 GPUs {gradients * shares[8] / 1e6:.0f} MB")


def test_transfers_through_the_host_are_counted() -> None:
    n, gradients = 4, 335.1e6 * 2
    assert (n + n * (n - 1), n * (n - 1)) == (16, 12)
    says("all-reduce", "n x n transfers, 16 on 4 GPUs", "n (n - 1) = 12")
    says(
        "all-reduce",
        f"({gradients / GIGA:.2f} GB)",
        f"{2 * 3 / 4 * gradients / GIGA:.1f} GB per GPU",
    )
    staged = 12 * round(gradients / GIGA, 2)
    says("all-reduce", f"{staged:.2f} GB, which at 16 GB/s take {staged / 16:.2f} s")
    predicted = n * (1 / 3) / (1 / 3 + staged / 16)
    says("all-reduce", f"speed-up of {predicted:.1f} on 4 GPUs", "2.4 was measured")


def test_local_sgd_has_the_measured_row_and_a_fit_that_gives_it() -> None:
    measured = {1: 2.4, 2: 2.8, 4: 3.2, 8: 3.4, 16: 3.6}
    fitted = {k: 4 / (1.1 + 0.584 / k) for k in measured}
    assert all(abs(fitted[k] / measured[k] - 1) <= 0.03 for k in measured)
    says("local-sgd", "2.4, 2.8, 3.2, 3.4 and 3.6", "1.10 + 0.584 / K", "within 3 %")
    ceiling = 4 / 1.1
    says("local-sgd", f"4 / 1.10 = {ceiling:.1f}")
    says("local-sgd", f"K = 8 reaches {100 * fitted[8] / ceiling:.0f} % of it")
    says("local-sgd", f"K = 16 {100 * fitted[16] / ceiling:.0f} %")
    says("gradient-accumulation", f"would give about {fitted[16]:.1f}", "the same 16 reached 2.6")


def test_losses_of_quality_are_computed_right() -> None:
    says("local-sgd", f"{100 * (88.8 - 87.3) / 88.8:.1f} % of it")
    says("local-sgd", f"{88.6 - 84.4:.1f} points", f"{100 * (88.6 - 84.4) / 88.6:.1f} %")
    says("local-sgd", f"a factor of {77.8 / 15.9:.1f}")


def test_dp_against_ddp_is_computed_right() -> None:
    dp, nvlink, host = 110.5948, 101.9003, 131.4367
    says("dp", f"{100 * (dp / nvlink - 1):.1f} % more time than DDP with NVLink")
    says("dp", f"{100 * (1 - dp / host):.1f} % less than DDP without")
    took = [f"{seconds:.1f} s" for seconds in (nvlink, dp, host)]
    says("dp", "{} with DDP over NVLink, {} with DP, and {} with DDP without".format(*took))
    says("dp", "5 exchanges per batch where DDP has 1")
    says("ddp", "there is 1 exchange")
    says("nvlink", f"{host / nvlink:.2f} times")
    samples = [f"{200 * 8 / seconds:.1f}" for seconds in (dp, nvlink, host)]
    steps = [f"{200 / seconds:.3f}" for seconds in (dp, nvlink, host)]
    says("throughput", "{}, {} and {} are steps".format(*steps))
    says("throughput", "the samples are {}, {} and {} per second".format(*samples))


def test_amdahls_split_is_computed_right() -> None:
    one, four = 43.096, 28.065
    loop = (one - four) * 4 / 3
    says("speed-up", f"{one / four:.2f} times as fast", f"from {loop:.1f} to {loop / 4:.1f} s")
    says("speed-up", f"{one - loop:.0f} s were start-up", f"43.1 / 23 = {one / (one - loop):.1f}")


def test_batches_multiply() -> None:
    says(
        "chunks",
        f"8 x 32 x 4 = {8 * 32 * 4}",
        "into 256 each",
        f"32 chunks cut those into {256 // 32}",
    )
    says("global-batch", "1024 = 8 x 32 x 4")
    says("effective-batch", "128 on 1, 2 and 4 GPUs are 128, 256 and 512", "2 GPUs, give each 64")
    says("effective-batch", "10 per GPU on 3 GPUs are 30", "1 GPU accumulated 3 times")
    assert 30 % (2 * 10)


def test_states_per_parameter_follow_from_the_stage() -> None:
    n = 8
    left = (4 + 12 / n, 2 + 14 / n, 16 / n)
    assert left == (5.5, 3.75, 2)
    says("zero", "stage 1 leaves 5.5 B, stage 2 3.75 B and stage 3 2 B", "3 of 9, P / N")
    says("zero-3", f"2 B on 8 ranks and {16 / 64} B on 64")
    says("hsdp", f"{74.41 / 55.35:.2f} times as fast")
    says("training-memory", f"7 B parameters are {7 * 16} GB")


def test_weights_that_load_do_not_train() -> None:
    needed, there = 45 / 2 * 16, 4 * 40
    assert (needed, there) == (360, 160)
    says("naive-model-parallelism", "22.5 B parameters", "360 GB", "160 GB")
    assert "barely" not in text_of("naive-model-parallelism")


def test_a_sampler_deals_in_turn() -> None:
    dealt = [list(range(rank, 30, 3)) for rank in range(3)]
    for rank, indices in enumerate(dealt):
        first, second, *_, last = indices
        says("distributed-sampler", f"rank {rank} gets {first}, {second}, .. {last}")
        assert len(indices) == 10


def test_ranks_of_a_grid_are_mapped() -> None:
    ranks = dict(zip(product(range(2), range(2)), range(4), strict=True))  # (stage, data) -> rank
    says("rank-map", f"stage 0 is on ranks {ranks[0, 0]} and {ranks[0, 1]}")
    says("rank-map", f"stage 1 on ranks {ranks[1, 0]} and {ranks[1, 1]}")
    says("rank-map", "rank 0 passes to rank 2, rank 1 to rank 3")
    says("3d-parallelism", f"takes {2 * 2} GPUs and all three take {2 * 2 * 2}")


def test_soap_is_translated() -> None:
    says("soap", f"Sample gives each {10 // 2} x 512 and Attribute gives each 10 x {512 // 2}")
    says("soap", "Sample is data parallelism", "Parameter is tensor parallelism")


def test_links_are_those_of_the_records() -> None:
    rates = {
        name: records.link(name).bytes_per_second / GIGA
        for name in ("nvlink-2", "nvlink-3", "nvlink-4", "pcie-3-x16", "pcie-4-x16", "pcie-5-x16")
    }
    assert {rates[f"nvlink-{generation}"] for generation in (2, 3, 4)} == {25}
    for gpu, links in (("a100-sxm-80gb", 12), ("h100-sxm-80gb", 18)):
        assert records.gpu(gpu).nvlink_links == links
        says("nvlink", f"{25 * links} GB/s")
    says("nvlink", "carry {:g}, {:g} and {:g} GB/s".format(*list(rates.values())[3:]))


def test_recompute_is_one_forward_of_three() -> None:
    says("recompute", f"{100 / 3:.0f} % more compute", f"a {34 // 2}th")
    says("mfu", f"8 / 6 = {8 / 6:.2f}")


# Where an early or popular source is wrong, dated or misleading.


def test_a_prepared_scheduler_ends_early() -> None:
    assert -(-122 // 4) == 31
    says("accelerate", "built for 122 steps it reaches its end on 4 GPUs at step 31")
    says("accelerate", *(f"({number})" for number in range(1, 7)))
    says("accelerate", "iterate what `prepare` returned")


def test_accumulation_equals_ddp_only_under_conditions() -> None:
    says("gradient-accumulation", "BatchNorm", "dropout", "token means", "divide each loss")
    assert "exact same" not in text_of("gradient-accumulation")
    says("no_sync", "exchanges each time", "2.00 to 0.91 s")


def test_local_sgd_exists_and_averages_parameters() -> None:
    says(
        "local-sgd", "average the parameters, not the gradients", "not with ZeRO, FSDP or DeepSpeed"
    )
    assert "accelerate" in {spelling.framework for spelling in find_term("local-sgd").names}


def test_nothing_dated_or_wrong_is_repeated() -> None:
    wrong = (
        r"345 ?M",
        r"nvidia-smi -a\b",
        r"nvidia-smi nvidia",
        r"not yet implemented",
        r"none of the models",
        r"inter-node connectivity",
        r"overfit",
        r"~10 ?%|15 ?% faster",
        r"pip install sklearn",
        r"3x\b",
        r"within a few percent margin",
    )
    for entry in glossary.entries():
        text = " ".join((entry.text, *(spelling.text for spelling in entry.names)))
        for pattern in wrong:
            assert not re.search(pattern, text), (entry.name, pattern)


def test_a_slogan_is_no_law() -> None:
    says(
        "speed-up",
        "no law",
        "7.99 times on 8 GPUs",
        "200 steps took 102 s on 1 GPU and 101.9 s on 2",
    )
    says("training-memory", "is so for loading", f"{1 / 8 * 16:.0f} B per parameter, an eighth")
    says("nvlink", "lies inside a node", "`nvidia-smi topo -m`")
    says("tensor-parallelism", "nodes of 4 GPUs the largest size is 4", "size 8 needs nodes of 8")
    says("tensor-parallelism", "2 all-reduces in forward and 2 in backward", "GeLU(X A_i)")
    says("pipeline-parallelism", "ZeRO-1 is the usual partner", "largest layer must fit")


def test_paragraphs_of_a_rule_keep_their_headings() -> None:
    text = "It is so.\n\nWhy: because\nof that.\n\nSource: a book: page 2."
    assert [(each.heading, each.text) for each in glossary.paragraphs(text)] == [
        ("", "It is so."),
        ("Why", "because of that."),
        ("Source", "a book: page 2."),
    ]
