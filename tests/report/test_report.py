import pytest
from conftest import JobMaker

from planner.advice.layout_findings import layout_findings
from planner.advice.plan import Plan, make_plan
from planner.catalog import records
from planner.core.units import format_bytes, format_seconds
from planner.domain.strategy import Layout, Recompute
from planner.report.catalog import instance_text, instances_text, model_text
from planner.report.estimate import estimate_text
from planner.report.flags import flag_words, flags
from planner.report.layout_words import (
    assumptions_words,
    communication_figure,
    layout_text,
    memory_figure,
    recommendation,
)
from planner.report.plan import plan_text
from planner.report.values import (
    WIDTH,
    Figure,
    Heading,
    ReportRow,
    ReportTable,
    Terminal,
    columns_text,
    figures_text,
    table_text,
)
from planner.request.remarks import Assumption
from planner.request.schema import parse_request, resolve
from planner.request.sections import ClusterRequest, RecipeRequest, StrategyRequest
from planner.search.candidate import estimate

TERMINAL = Terminal()


def text_of(plan: Plan, assumptions: tuple[Assumption, ...] = ()) -> str:
    return plan_text(plan, assumptions, "planner suggest gpt2", TERMINAL)


def test_the_headline_and_its_totals_come_first(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", recipe={"global_batch_size": 512}))
    lines = text_of(plan).splitlines()
    each = plan.chosen.strategy.micro_batch_size * plan.chosen.strategy.gradient_accumulation_steps
    for fact in ("gpt2 on 4 x a100-sxm-80gb", "DDP in torch", "512 sequences", f"{each} per GPU"):
        assert fact in " ".join(line.strip() for line in lines[:2])
    fits, speed = lines[lines.index("") + 1 :][:2]
    assert (fits[2:11].strip(), speed[2:11].strip()) == ("Fits", "Speed")
    assert format_bytes(plan.chosen.memory.reserved_bytes) in fits
    assert format_seconds(plan.chosen.step_time.step_seconds) in speed


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        ("gpt2", ", causal attention counted as half"),
        ("bert-base-uncased", ", attention counted in full"),
        ("t5-small", ", causal attention counted as half, other attention counted in full"),
        ("microsoft/resnet-50", ""),
    ],
)
def test_a_models_figure_says_how_its_attention_is_counted(
    make_job: JobMaker, model: str, counted: str
) -> None:
    said = model_text(make_job(model).model, Terminal(width=200)).splitlines()[1]
    assert said.partition(" tokens")[2] == counted


@pytest.mark.parametrize("width", range(20, 40))
def test_no_line_begins_with_the_sign_of_a_percentage(width: int) -> None:
    folded = Terminal(width=width).paragraph("zero-2 is 18 % faster on paper, zero-3 7 % slower")
    assert "18 %" in folded
    assert "7 %" in folded


def test_assumptions_stand_in_one_paragraph_each_with_its_flag() -> None:
    resolved = resolve(parse_request({"model": "gpt2"}), allow_paths=False)
    text = text_of(make_plan(resolved.job), resolved.assumptions)
    assumed = next(part for part in text.split("\n\n") if part.startswith("Assumed"))
    assumed = " ".join(assumed.split())
    for each in resolved.assumptions:
        assert f"{each.text} (" in assumed
    assert "(--gpu NAME)" in assumed
    assert "(--global-batch-size N)" in assumed
    brief = assumptions_words(resolved.assumptions, is_brief=True)
    assert "(--gpu)" in brief
    assert "(--precision, --optimizer, --attention)" in brief


def test_sections_stand_in_the_promised_order(make_job: JobMaker) -> None:
    text = text_of(make_plan(make_job("meta-llama/Llama-2-7b-hf", gpus=8)))
    titles = ["Why", "Memory of one GPU", "Time of one", "Alternatives", "Rejected", "Searched"]
    positions = [text.index(f"\n{title}") for title in titles]
    assert positions == sorted(positions)


def test_ledger_lines_keep_to_the_width_and_hide_zeros(make_job: JobMaker) -> None:
    text = text_of(make_plan(make_job("gpt2", gpus=4)))
    ledger = text[text.index("Memory of one GPU") : text.index("Alternatives")]
    assert all(len(line) <= WIDTH for line in ledger.splitlines())
    assert "communication buffers" not in ledger


def test_only_one_gpu_has_nothing_to_reject(make_job: JobMaker) -> None:
    assert "Rejected" not in text_of(make_plan(make_job("gpt2", gpus=1)))
    text = text_of(make_plan(make_job("gpt2", gpus=4)))
    assert "pp+zero-3  LAY022  " in text


def test_ranks_are_a_picture_or_strides_where_the_model_is_divided(make_job: JobMaker) -> None:
    """The guide's picture of 4 GPUs: pipelines 0 -> 2 and 1 -> 3, replicas beside each other."""
    job = make_job("gpt2", gpus=4)
    pinned = {"pipeline_parallel_size": 2, "tensor_parallel_size": 1, "context_parallel_size": 1}
    picture = text_of(make_plan(job, pinned))
    assert "data 0  [GPU0]   [GPU2]" in picture
    assert "data 1  [GPU1]   [GPU3]" in picture
    assert "Ranks\n" not in text_of(make_plan(job))
    large = make_job("meta-llama/Llama-2-70b-hf", gpus=8, cluster={"nodes": 8}, gpu="h100")
    text = text_of(make_plan(large, {"tensor_parallel_size": 4, "pipeline_parallel_size": 4}))
    assert "tensor    4 ranks, 1 apart: 0, 1, 2, ..." in text
    assert "pipeline  4 ranks, 16 apart: 0, 16, 32, ..." in text


def test_the_plan_is_no_wider_than_a_terminal_where_it_is_prose(make_job: JobMaker) -> None:
    text = text_of(make_plan(make_job("meta-llama/Llama-2-70b-hf", gpus=8, cluster={"nodes": 4})))
    assert "Trade-offs" in text
    assert "layouts, every legal one" in text
    tables = ("Alternatives", "Trade-offs")
    prose = [part for part in text.split("\n\n") if not part.startswith(tables)]
    command = "planner suggest gpt2 --out"
    wide = [line for part in prose for line in part.splitlines() if len(line) > WIDTH]
    assert all(command in line for line in wide)


def test_one_gpu_is_said_to_need_no_parallelism(make_job: JobMaker) -> None:
    text = text_of(make_plan(make_job("gpt2", gpus=1)))
    first = text.splitlines()[0]
    assert "gpt2 on 1 x a100-sxm-80gb: torch" in first
    assert "per GPU" not in first


def test_an_estimate_says_whether_it_fits(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=1)
    for size, verdict in ((8, "It fits: "), (256, "It does not fit: ")):
        candidate = estimate(job, Layout(micro_batch_size=size))
        assert estimate_text(job, candidate, (), (), TERMINAL).startswith(verdict)


def test_an_estimate_of_what_the_framework_cannot_run_says_so_first(make_job: JobMaker) -> None:
    job = make_job("gpt2", recipe={"framework": "accelerate", "global_batch_size": 8})
    candidate = estimate(job, Layout(pipeline_parallel_size=4, gradient_accumulation_steps=8))
    text = estimate_text(job, candidate, (), layout_findings(job, candidate), TERMINAL)
    assert text.startswith("It would fit, but accelerate cannot run it: ")
    assert "LAY030  blocker: accelerate" in text


def test_layout_spells_out_the_batch_arithmetic(make_job: JobMaker) -> None:
    strategy = Layout(
        data_parallel_shard_size=8,
        zero_stage=3,
        micro_batch_size=2,
        gradient_accumulation_steps=4,
        recompute=Recompute.FULL,
    )
    assert layout_text(strategy, make_job()) == (
        "ZeRO-3 (FSDP, full shard), full activation recompute,"
        " micro-batch 2 x 4 accumulation x 8 ranks = 64 sequences per step"
    )
    deepspeed = make_job(recipe={"framework": "deepspeed"})
    assert layout_text(strategy, deepspeed).startswith("ZeRO-3, full activation")
    images = make_job("google/vit-base-patch16-224")
    assert layout_text(strategy, images).endswith(" = 64 images per step")


def test_tables_are_aligned() -> None:
    assert columns_text([("a", "bb"), ("ccc", "d")]) == "  a    bb\n  ccc  d"


def test_a_table_stands_under_its_title_with_a_mark_at_the_choice() -> None:
    shown = ReportTable(
        title="Options",
        note="per step",
        headings=(Heading(name="GPUs"), Heading(name="step")),
        rows=(ReportRow(cells=("4", "2 s")), ReportRow(cells=("16", "1 s"), is_chosen=True)),
        has_choice=True,
    )
    assert table_text(shown, Terminal(bold=str.upper)) == (
        "OPTIONS (per step)\n     GPUs  step\n     4     2 s\n  *  16    1 s"
    )


def test_a_wide_table_loses_its_details_then_folds_its_prose() -> None:
    shown = ReportTable(
        title="Options",
        headings=(
            Heading(name="name"),
            Heading(name="more", is_detail=True),
            Heading(name="size", is_number=True),
            Heading(name="compared"),
        ),
        rows=(ReportRow(cells=("zero-2", "none", "2.50 GiB", "slower and smaller")),),
    )
    whole = (
        "Options\n  name    more  size      compared\n  zero-2  none  2.50 GiB  slower and smaller"
    )
    assert table_text(shown, Terminal(width=44)) == whole
    assert table_text(shown, Terminal(width=38)) == (
        "Options\n  name    size      compared\n  zero-2  2.50 GiB  slower and smaller"
    )
    assert table_text(shown, Terminal(width=30)) == (
        "Options\n  name    size      compared\n  zero-2  2.50 GiB  slower and\n                    smaller"
    )


def test_what_communication_costs_is_what_waits_and_what_slows(make_job: JobMaker) -> None:
    candidate = make_plan(make_job("gpt2", gpus=2, gpu="3090")).chosen
    terms = {term.name: float(term.amount) for term in candidate.step_time.terms}
    waits, slows = terms["gradient_reduction"], terms["overlap_slowdown"]
    figure = communication_figure(candidate)
    assert figure is not None
    for seconds in (waits + slows, waits, slows):
        assert f" {format_seconds(seconds)} " in figure.rest
    assert communication_figure(make_plan(make_job("gpt2", gpus=1)).chosen) is None


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(8, "Fits"), (49, "Fits"), (50, "Tight"), (53, "Tight"), (256, "Too big")],
)
def test_the_memory_figure_is_a_verdict_with_what_is_free_or_lacks(
    make_job: JobMaker, size: int, verdict: str
) -> None:
    job = make_job("gpt2", gpus=1)
    candidate = estimate(job, Layout(micro_batch_size=size))
    figure = memory_figure(job, candidate)
    assert figure.label == verdict
    free = format_bytes(abs(job.usable_bytes - float(candidate.memory.reserved_bytes)))
    assert (free in figure.rest) == (verdict != "Fits")
    over = float(candidate.memory.high_bytes) - job.usable_bytes
    assert (format_bytes(over) in figure.rest) == (size == 53)


def test_figures_stand_under_each_other() -> None:
    figures = (
        Figure(label="Memory", amount="2 GiB", rest="of 4"),
        Figure(label="Ranks", amount="", rest="in order"),
    )
    assert figures_text(figures, TERMINAL) == "Memory  2 GiB of 4\nRanks   in order"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cluster.gpus_per_node", "4", ["--gpus", "4"]),
        ("strategy.sequence_parallel", True, ["--sequence-parallel"]),
        ("strategy.sequence_parallel", False, ["--no-sequence-parallel"]),
        ("recipe.packed", False, ["--padded"]),
    ],
)
def test_a_field_is_set_by_the_words_of_its_flag(
    field: str, *, value: str | bool, words: list[str]
) -> None:
    assert flag_words(field, value=value) == words


def test_every_assumption_has_a_flag() -> None:
    request = parse_request({"model": "gpt2", "cluster": {"nodes": 2}})
    fields = [assumption.field for assumption in resolve(request, allow_paths=False).assumptions]
    assert len(fields) == 7
    assert set(fields) <= set(flags())


@pytest.mark.parametrize(
    ("section", "schema"),
    [("cluster", ClusterRequest), ("recipe", RecipeRequest), ("strategy", StrategyRequest)],
)
def test_flags_name_fields_of_the_schema(section: str, schema: type[ClusterRequest]) -> None:
    named = {field.split(".")[1] for field in flags() if field.startswith(f"{section}.")}
    assert named <= set(schema.model_fields)


def test_instances_are_a_table_with_blanks_where_nothing_is_known() -> None:
    header, known, blank = instances_text(
        [records.instance("p5.48xlarge"), records.instance("Standard_NC64as_T4_v3")]
    ).splitlines()
    assert header.split() == [
        "cloud",
        "name",
        "GPUs",
        "wiring",
        "network",
        "host",
        "RAM",
        "$/hour",
        "as",
        "of",
    ]
    assert known.split() == (
        [
            "AWS",
            "p5.48xlarge",
            "8",
            "x",
            "h100-sxm-80gb",
            "NVSwitch",
            "3,200",
            "Gbit/s",
            "2,048",
            "GiB",
            "55.04",
            "2026-01-21",
        ]
    )
    assert blank.split() == ["Azure", "Standard_NC64as_T4_v3", "4", "x", "t4", "PCIe"]


def test_an_instance_is_shown_with_its_price_and_sources() -> None:
    text = instance_text(records.instance("p5.48xlarge"), Terminal(bold=str.upper))
    assert text.startswith("P5.48XLARGE (AWS)")
    assert "us-east-1" in text
    assert "cut the price from 98.32 USD/h in June 2025" in " ".join(text.split())
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "$/hour" not in instance_text(records.instance("a2-highgpu-8g"), TERMINAL)


def test_adapters_are_what_is_trained(make_job: JobMaker) -> None:
    recipe = {"method": "qlora", "lora": {"rank": 8}}
    job = make_job("meta-llama/Llama-2-7b-hf", gpus=1, recipe=recipe)
    sentence = recommendation(job, make_plan(job).chosen)
    assert sentence.startswith("Train LoRA adapters of rank 8 beside 4-bit weights of meta-llama/")


def test_images_are_called_images_and_convolutions_have_no_attention() -> None:
    request = parse_request({"model": "microsoft/resnet-50", "cluster": {"gpus_per_node": 2}})
    resolved = resolve(request, allow_paths=False)
    plan = make_plan(resolved.job)
    text = text_of(plan, resolved.assumptions)
    speed = 512 / float(plan.chosen.step_time.step_seconds)
    assert f"{speed:,.0f} images/s" in text
    assert "tokens/s" not in text
    assert "adamw-fused optimizer (--optimizer NAME)" in " ".join(text.split())
    assert "attention" not in text
