"""The pictures of the result page: trade-offs as points, a pipeline as rows of strokes."""

import re
from dataclasses import replace

import pytest

from planner import answers
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_count, format_seconds
from planner.domain.strategy import PipelineSchedule
from planner.parallel.schedule import StageSeconds, simulate
from planner.parallel.schedule_orders import Kind
from planner.report.layout_words import Verdict, memory_figure, verdict
from planner.report.plan import MOST_ROWS, shown_points
from planner.report.summary import heading, tiles
from planner.request.schema import parse_request
from planner.step_time.terms import StepTerm
from web.chart import COLOURS
from web.drawing import factor_ticks, factors_around
from web.form import read_question
from web.jobs import draw_plan
from web.result import result
from web.scatter import Point, beaten_by, draw_scatter, lettered
from web.timeline import draw_timeline, in_words

CARD, USABLE = 80 * 2**30, 79 * 2**30


def plan(**request: object) -> Plan:
    _, chosen = answers.suggest(parse_request(request), allow_paths=False)
    return chosen


@pytest.fixture(scope="module")
def gpt2() -> Plan:
    return plan(model="gpt2", cluster={"gpu": "a100", "gpus_per_node": 4})


def test_points_lie_where_their_figures_are(gpt2: Plan) -> None:
    drawn = [
        Point(candidate=point.candidate, gpus=point.gpus, href=f"/plan?{index}")
        for index, point in enumerate(shown_points(gpt2))
    ]
    points = [point for _, point in lettered(drawn)]
    svg = str(draw_scatter(points, card_bytes=CARD, usable_bytes=USABLE))
    centres = re.findall(r'<circle cx="([\d.]+)%" cy="([\d.]+)"', svg)
    across, up = zip(*((float(x), float(y)) for x, y in centres), strict=True)
    memory = [float(point.candidate.memory.reserved_bytes) for point in points]
    step = [float(point.candidate.step_time.step_seconds) for point in points]
    by_memory = sorted(range(len(points)), key=memory.__getitem__)
    by_step = sorted(range(len(points)), key=step.__getitem__)
    assert sorted(range(len(points)), key=across.__getitem__) == by_memory
    assert sorted(range(len(points)), key=lambda i: -up[i]) == by_step
    for letter, point in lettered(drawn):
        assert f'href="{point.href}" aria-label="{letter}: {point.title}"' in svg
    letters = re.findall(r"</circle><text[^>]*>([A-Z])</text>", svg)
    assert sorted(letters) == [letter for letter, _ in lettered(points)]
    ticks = [float(y) for y in re.findall(r'class="tick start" x="0" y="([\d.]+)"', svg)]
    assert min(ticks) <= min(up)
    assert max(ticks) >= max(up)


def test_points_that_need_little_of_a_card_fill_the_picture_without_its_limit(gpt2: Plan) -> None:
    points = [Point(candidate=gpt2.chosen, gpus=4, href="", is_chosen=True)]
    need = float(gpt2.chosen.memory.high_bytes)
    for usable, has_limit in ((1.5 * need, True), (3 * need, False)):
        svg = str(draw_scatter(points, card_bytes=1.1 * usable, usable_bytes=usable))
        (x,) = re.findall(r'<circle cx="([\d.]+)%"', svg)
        assert float(x) > 50
        assert ('<line class="limit"' in svg) == has_limit
        assert format_bytes(usable) in svg


def test_the_chosen_point_is_drawn_last_and_leads_nowhere(gpt2: Plan) -> None:
    chosen = Point(candidate=gpt2.chosen, gpus=4, href="", is_chosen=True)
    other = Point(candidate=gpt2.alternatives[0].candidate, gpus=4, href="/plan?a=<b>")
    svg = str(draw_scatter([chosen, other], card_bytes=CARD, usable_bytes=USABLE))
    assert svg.index("point chosen") > svg.index('class="point"')
    assert svg.count("<a ") == 1
    assert "<b>" not in svg


@pytest.mark.parametrize(
    "query",
    [
        {"model": "gpt2", "gpus_per_node": "4"},
        {"model": "meta-llama/Llama-2-7b-hf", "gpu": "rtx-4090", "gpus_per_node": "8"},
        {"model": "deepseek-ai/DeepSeek-V3", "gpu": "h100", "gpus_per_node": "8", "nodes": "64"},
    ],
)
def test_each_layout_that_beats_the_choice_is_shown_with_why_it_was_not_taken(
    query: dict[str, str],
) -> None:
    question = read_question(query.items())
    resolved, chosen = answers.suggest(question.request, allow_paths=False)
    page = result(question, resolved, chosen, refusal=None, base_url="")
    shown = [each.candidate for each in chosen.alternatives[:MOST_ROWS]]
    beating = [each.strategy.family for each in shown if beaten_by(each, chosen.chosen)]
    said = page["held_back"]
    assert len(said) >= len(beating)
    assert all(any(name.startswith(family) for name, _ in said) for family in beating)
    assert all(why for _, why in said)


def test_an_axis_of_factors_holds_its_ends_within_its_figures() -> None:
    for least, most in ((0.055, 0.61), (1.1, 1.3), (0.9, 6.8), (3e-3, 40.0), (2.0, 2.0000001)):
        low, high = factors_around(least, most)
        ticks = factor_ticks(low, high)
        assert ticks[0] <= least, (least, most)
        assert ticks[-1] >= most * (1 - 1e-9), (least, most)


def test_a_term_has_one_colour_and_no_two_of_a_ledger_share_one(gpt2: Plan) -> None:
    assert set(COLOURS) >= {str(term.value) for term in StepTerm}
    for each in (gpt2.chosen, *(other.candidate for other in gpt2.alternatives)):
        for terms in (each.memory.terms, each.step_time.terms):
            colours = [COLOURS[term.name] for term in terms if term.amount]
            assert len(colours) == len(set(colours))


SCHEDULES = [
    ("naive", 1),
    ("gpipe", 1),
    ("1f1b", 1),
    ("zb-h1", 1),
    ("zbv", 2),
    ("interleaved-1f1b", 2),
    ("interleaved-1f1b", 4),
]


@pytest.mark.parametrize("stages", [4, 32])
@pytest.mark.parametrize(("schedule", "virtual"), SCHEDULES)
def test_a_pipeline_is_a_small_picture_of_every_operation(
    schedule: str, virtual: int, stages: int
) -> None:
    each = StageSeconds(forward=1.0, backward=2.03, weight=0.98)
    timeline = simulate(
        PipelineSchedule(schedule), [each] * stages, micro_batches=stages, virtual=virtual
    )
    svg = str(draw_timeline(timeline))
    assert len(svg) <= 20_000 or len(timeline.spans) > 6000
    assert re.findall(r'class="row-name start"[^>]*>(\d+)<', svg) == [str(s) for s in range(stages)]
    (forward,) = re.findall(r'class="forward"[^>]* d="([^"]+)"', svg)
    painted = sum(map(int, re.findall(r"h(\d+)", forward)))
    seconds = sum(
        span.end_seconds - span.start_seconds
        for span in timeline.spans
        if span.operation.kind is Kind.FORWARD
    )
    assert painted == pytest.approx(2000 * seconds / timeline.seconds, rel=0.02)


@pytest.mark.parametrize("stages", [4, 16, 32, 64])
def test_a_page_of_many_stages_is_at_most_100_kilobytes(stages: int) -> None:
    query = {
        "model": "meta-llama/Llama-2-70b-hf",
        "gpu": "a100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "8",
        "framework": "megatron",
        "pipeline_parallel_size": f"{stages}",
    }
    page = draw_plan(tuple(query.items()), "http://testserver/")
    assert len(page.encode()) <= 100_000
    assert f'<span class="stage-name">{stages - 1}</span>' in page
    assert page.count('<svg class="drawing rows ranks"') == 1
    assert page.count('<svg class="drawing rows timeline"') == (stages <= 32)


def test_strokes_end_where_the_operations_do() -> None:
    each = StageSeconds(forward=1.0, backward=2.0)
    timeline = simulate(PipelineSchedule("gpipe"), [each, each], micro_batches=2)
    svg = str(draw_timeline(timeline))
    beneath, forward = re.findall(r'class="(?:back|for)ward"[^>]* d="([^"]+)"', svg)
    # Nine seconds on 2000 steps: stage 0 works from 0 to 2 and 5 to 9, stage 1 from 1 to 7.
    assert forward == "M0 9h444M222 31h445"
    assert beneath == "M0 9h444m667 0h889M222 31h1334"


@pytest.mark.parametrize(
    ("forward", "ticks"),
    [
        (1.0, ["0", "2,000", "4,000", "6,000", "8,000 ms"]),
        (1e-3, ["0", "2", "4", "6", "8 ms"]),
        (2.0, ["0", "5", "10", "15 s"]),
    ],
)
def test_the_axis_of_a_pipeline_has_round_figures(forward: float, ticks: list[str]) -> None:
    each = StageSeconds(forward=forward, backward=2 * forward)
    # Nine times the forward pass.
    svg = str(draw_timeline(simulate(PipelineSchedule("gpipe"), [each, each], micro_batches=2)))
    assert re.findall(r'class="tick[^>]*>([^<]+)<', svg) == ticks


def test_what_is_said_of_the_timeline_is_what_is_drawn() -> None:
    each = StageSeconds(forward=1.0, backward=2.0, weight=1.0)
    start = simulate(PipelineSchedule("1f1b"), [each, each], micro_batches=4)
    # Two stages, four micro-batches: 12 of 15 seconds are worked.
    every = in_words(start, 4)
    assert "All 4 micro-batches leave stages idle for 20 % of this time" in every
    assert "over all of them it is less" not in every
    assert "yellow" not in every
    assert "The first 4 of 1,000 micro-batches" in in_words(start, 1000)
    put_off = simulate(PipelineSchedule("zb-h1"), [each, each], micro_batches=4)
    assert "yellow: weight gradients" in in_words(put_off, 4)


@pytest.mark.parametrize(
    ("request_", "title"),
    [
        ({"model": "gpt2", "cluster": {"gpu": "a100"}}, "No parallelism on 1 GPU"),
        (
            {
                "model": "meta-llama/Llama-2-7b-hf",
                "cluster": {"gpu": "a100", "gpus_per_node": 8},
                "strategy": {"zero_stage": 3, "offload": "optimizer+parameters"},
            },
            "ZeRO-3 x offload over 8 GPUs",
        ),
        (
            {
                "model": "meta-llama/Llama-2-7b-hf",
                "cluster": {"gpu": "a100", "gpus_per_node": 8},
                "recipe": {"framework": "megatron"},
                "strategy": {"tensor_parallel_size": 4, "pipeline_parallel_size": 2},
            },
            "tensor parallel 4 x pipeline parallel 2 over 8 GPUs",
        ),
    ],
)
def test_a_heading_names_what_divides_the_work(request_: dict[str, object], title: str) -> None:
    chosen = plan(**request_)
    assert heading(chosen.job, chosen.chosen) == title


def test_a_verdict_is_tight_without_room_to_spare(gpt2: Plan) -> None:
    assert verdict(gpt2.job, gpt2.chosen) is Verdict.FITS
    assert verdict(gpt2.job, replace(gpt2.chosen, is_comfortable=False)) is Verdict.TIGHT
    assert verdict(gpt2.job, replace(gpt2.chosen, fits=False)) is Verdict.DOES_NOT_FIT


def test_the_memory_tile_says_how_far_its_range_is_beyond_the_card(gpt2: Plan) -> None:
    memory = gpt2.chosen.memory
    usable = (float(memory.reserved_bytes) + float(memory.high_bytes)) / 2
    over = format_bytes(float(memory.high_bytes) - usable)
    gpu = replace(gpt2.job.cluster.gpu, usable_bytes=usable)
    tight_job = replace(gpt2.job, cluster=replace(gpt2.job.cluster, gpu=gpu))
    assert f"of headroom, and up to {over} too much" in tiles(tight_job, gpt2.chosen)[0].rest
    assert "too much" not in tiles(gpt2.job, gpt2.chosen)[0].rest


@pytest.mark.parametrize(("share", "says"), [(0.5, True), (1.5, False)])
def test_a_card_that_the_low_end_would_fit_is_said_to_be_one(
    gpt2: Plan, *, share: float, says: bool
) -> None:
    memory = gpt2.chosen.memory
    reserved, low = float(memory.reserved_bytes), float(memory.low_bytes)
    gpu = replace(gpt2.job.cluster.gpu, usable_bytes=reserved - share * (reserved - low))
    small = replace(gpt2.job, cluster=replace(gpt2.job.cluster, gpu=gpu))
    lacking = replace(gpt2.chosen, fits=False)
    words = "too much, though the low end would fit"
    assert (words in tiles(small, lacking)[0].rest) == says
    assert (words in memory_figure(small, lacking).rest) == says


def test_speed_and_its_range_are_the_steps_turned_over(gpt2: Plan) -> None:
    _, step, speed = tiles(gpt2.job, gpt2.chosen)
    tokens = gpt2.job.recipe.global_batch_size * gpt2.job.recipe.sequence_length
    seconds = gpt2.chosen.step_time
    assert speed.amount == format_count(tokens / float(seconds.step_seconds))
    slowest, fastest = (
        format_count(tokens / float(each)) for each in (seconds.high_seconds, seconds.low_seconds)
    )
    assert speed.trust == f"likely {slowest} to {fastest}"
    assert step.amount == format_seconds(seconds.step_seconds)
