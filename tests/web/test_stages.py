import re
from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.core.term import Term, size
from planner.core.units import GIB, format_bytes
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.memory.ledger import Memory, estimate_memory, stage_memories
from planner.memory.phases import PHASES
from web.stages import Stages, draw_stages

LLAMA = "meta-llama/Llama-2-7b-hf"


def by_hand(stage: int, **terms_gib: float) -> Memory:
    """A ledger in GiB, likely within 10 % of its total."""
    terms = tuple(
        Term(name=name, arithmetic=size(gib * GIB), source="by hand")
        for name, gib in terms_gib.items()
    )
    reserved = sum(terms_gib.values()) * GIB
    return Memory(
        terms=terms,
        peak_bytes=reserved,
        reserved_bytes=reserved,
        low_bytes=0.9 * reserved,
        high_bytes=1.1 * reserved,
        peak_low_bytes=0.9 * reserved,
        peak_high_bytes=1.1 * reserved,
        phase=stage,
        stage=stage,
    )


def draw(*memories: Memory, card: float = 80, usable: float = 72) -> Stages:
    return draw_stages(memories, card_bytes=card * GIB, usable_bytes=usable * GIB)


FIRST = by_hand(0, parameters=20, logits_and_loss=0, framework_and_context=4)
LAST = by_hand(1, parameters=16, logits_and_loss=12, framework_and_context=4)


def megatron(make_job: JobMaker, **cluster: int) -> Job:
    recipe = {"framework": "megatron", "global_batch_size": 64}
    return make_job(LLAMA, gpus=8, gpu="a100-80gb", recipe=recipe, cluster=cluster)


def test_segments_of_every_stage_lie_end_to_end_on_one_scale() -> None:
    first, last = (str(each.bar) for each in draw(FIRST, LAST).bars)
    at = r'<rect class="part-(\w)" x="([\d.]+)%" width="([\d.]+)%"'
    assert re.findall(at, first) == [("a", "0", "25"), ("g", "25", "5")]
    assert re.findall(at, last) == [("a", "0", "20"), ("e", "20", "15"), ("g", "35", "5")]


def test_every_bar_has_its_range_and_the_line_of_the_card() -> None:
    for each, low, likely, high in zip(
        draw(FIRST, LAST).bars, (27, 36), (30, 40), (33, 44), strict=True
    ):
        svg = str(each.bar)
        assert f'<g class="whisker"><line x1="{low:g}%" x2="{high:g}%"' in svg
        assert f'<circle cx="{likely:g}%"' in svg
        assert 'class="limit" x1="90%" x2="90%"' in svg


def test_a_bar_says_in_words_what_it_shows() -> None:
    first, last = draw(FIRST, LAST, usable=30).bars
    assert (
        'aria-label="stage 0: 24.0 GiB, likely 21.6 GiB to 26.4 GiB, of 30.0 GiB that a process'
        ' can take: parameters 20.0 GiB, framework and context 4.00 GiB"'
    ) in first.bar
    assert "that a process can take (does not fit): parameters 16.0 GiB, logits" in last.bar
    assert (first.reserved, first.moment) == ("24.0 GiB", PHASES[0])
    assert (last.reserved, last.moment) == ("32.0 GiB", PHASES[1])


def test_stages_that_peak_at_the_same_moment_share_its_cell() -> None:
    moments = draw(FIRST, FIRST, LAST).moments
    assert moments == ((PHASES[0], 2), (PHASES[1], 1))


def test_only_stages_that_exceed_the_card_are_named() -> None:
    assert draw(FIRST, LAST, usable=30).too_large == (1,)
    assert draw(FIRST, LAST).too_large == ()


def test_a_letter_means_the_same_term_in_every_stage() -> None:
    stages = draw(FIRST, LAST)
    assert stages.letters == {
        "parameters": "A",
        "logits_and_loss": "B",
        "framework_and_context": "C",
    }
    assert [(row.letter, row.name, row.shown) for row in stages.legend] == [
        ("A", "parameters", "16.0 GiB to 20.0 GiB"),
        ("B", "logits and loss", "0 to 12.0 GiB"),
        ("C", "framework and context", "4.00 GiB"),
    ]


def test_letters_of_narrow_segments_are_for_wide_screens_or_none() -> None:
    several = draw(by_hand(0, a=40, b=2, c=1), by_hand(1, a=1, b=1, c=1))
    assert re.findall(r'<text(?: class="([^"]+)")? [^>]*>(\w)</text>', several.bars[0].bar) == [
        ("", "A"),
        ("only-wide", "B"),
    ]


def test_of_many_stages_every_fourth_and_the_last_are_lettered() -> None:
    bars = draw(*(replace(by_hand(0, a=40), stage=stage) for stage in range(15))).bars
    assert [each.index for each in bars if ">A</text>" in each.bar] == [0, 4, 8, 12, 14]


def test_a_stage_larger_than_the_card_stretches_the_scale() -> None:
    huge = by_hand(0, parameters=100)
    stages = draw(huge, card=80, usable=33)
    assert 'width="90.909%"' in stages.bars[0].bar
    assert 'class="limit start" x="30%" y="8">33.0 GiB usable' in stages.above
    assert 'class="limit end" x="90%" y="8">72.0 GiB usable' in draw(FIRST).above


@pytest.mark.parametrize(
    ("card", "ticks"),
    [
        (80, ["0", "20", "40", "60", "80 GiB"]),
        (24, ["0", "5", "10", "15", "20 GiB"]),
        (141, ["0", "50", "100 GiB"]),
        (1000, ["0", "200", "400", "600", "800", "1,000 GiB"]),
    ],
)
def test_the_scale_has_a_few_round_figures(card: float, ticks: list[str]) -> None:
    axis = str(draw(by_hand(0, parameters=1), card=card).axis)
    assert re.findall(r">([^<]+)</text>", axis) == ticks
    assert axis.count('"tick start"') == 1


def test_one_stage_is_the_estimate_without_a_number(make_job: JobMaker) -> None:
    job, s = make_job(), Layout(data_parallel_replicate_size=4, micro_batch_size=8)
    memory = estimate_memory(job, s)
    (bar,) = draw(*stage_memories(job, s)).bars
    assert 'aria-label="' + format_bytes(memory.reserved_bytes) in bar.bar
    assert "stage 0" not in bar.bar


def test_table_holds_the_exact_bytes_of_every_stage(make_job: JobMaker) -> None:
    job = megatron(make_job)
    s = Layout(
        tensor_parallel_size=2,
        sequence_parallel=True,
        pipeline_parallel_size=4,
        gradient_accumulation_steps=64,
    )
    memories = stage_memories(job, s)
    table = {
        name: tuple(figure for figure, stages in figures for _ in range(stages))
        for name, figures in draw(*memories).table
    }
    assert table["reserved"] == tuple(f"{round(float(m.reserved_bytes)):,}" for m in memories)
    assert table["allocated"] == tuple(f"{round(float(m.peak_bytes)):,}" for m in memories)
    assert table["reserved, low"][3] == f"{round(float(memories[3].low_bytes)):,}"
    assert table["reserved, high"][3] == f"{round(float(memories[3].high_bytes)):,}"
    assert table["logits and loss"][:3] == ("0", "0", "0")
    assert "recomputed block" not in table
    for index, memory in enumerate(memories):
        named = {term.name.replace("_", " "): term.amount for term in memory.terms}
        for name, amount in named.items():
            shown = table[name][index] if name in table else "0"
            assert shown == f"{round(float(amount)):,}"


@pytest.mark.parametrize(("stages", "height"), [(1, 58), (8, 36), (16, 25), (32, 25)])
def test_more_stages_make_lower_bars(make_job: JobMaker, stages: int, height: int) -> None:
    job = megatron(make_job, nodes=4)
    s = Layout(
        data_parallel_replicate_size=32 // stages,
        pipeline_parallel_size=stages,
        gradient_accumulation_steps=2 * stages,
    )
    bars = draw(*stage_memories(job, s)).bars
    assert [each.index for each in bars] == list(range(stages))
    assert all(f'height="{height}"' in each.bar for each in bars)


def test_64_stages_are_drawn(make_job: JobMaker) -> None:
    job = megatron(make_job, nodes=8)
    deep = replace(job, model=make_job("meta-llama/Llama-2-70b-hf").model)
    s = Layout(pipeline_parallel_size=64, gradient_accumulation_steps=64)
    stages = draw(*stage_memories(deep, s))
    assert len(stages.bars) == 64
    assert {sum(count for _, count in figures) for _, figures in stages.table} == {64}
    assert sum(len(each.bar) for each in stages.bars) < 45_000
    assert not any("<title>" in each.bar or "activations" in each.bar for each in stages.bars)
