import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core.errors import InvalidInputError
from planner.domain.strategy import Layout, PipelineSchedule
from planner.parallel.pipeline_schedules import MOST_CHUNKS, SCHEDULES, in_flight
from planner.parallel.schedule import (
    MOST_LAYERS,
    MOST_OPERATIONS,
    Span,
    StageSeconds,
    Timeline,
    balance,
    simulate,
)
from planner.parallel.schedule_orders import Kind

Case = tuple[str, int, int, int]
"""Schedule, stages, micro-batches, chunks."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(PipelineSchedule.names()))
    stages = draw(st.integers(1, 6))
    chunks = {"interleaved-1f1b": st.integers(2, 4), "zbv": st.just(2)}
    virtual = draw(chunks.get(name, st.just(1)))
    return name, stages, _micro_batches(name, stages, draw(st.integers(1, 14))), virtual


def _micro_batches(name: str, stages: int, wanted: int) -> int:
    return stages * -(-wanted // stages) if name == "interleaved-1f1b" else wanted


@st.composite
def uneven(draw: st.DrawFn, stages: int) -> list[StageSeconds]:
    whole = st.integers(0, 9)
    return [
        StageSeconds(forward=draw(whole), backward=w + draw(whole), weight=w)
        for w in draw(st.lists(whole, min_size=stages, max_size=stages))
    ]


def uniform(
    stages: int, forward: float = 1, backward: float = 2, weight: float = 0
) -> list[StageSeconds]:
    return [StageSeconds(forward=forward, backward=backward, weight=weight)] * stages


def by_stage(timeline: Timeline, stages: int) -> list[list[Span]]:
    return [[span for span in timeline.spans if span.stage == stage] for stage in range(stages)]


def names(spans: Sequence[Span]) -> str:
    letters = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.WEIGHT: "W"}
    return " ".join(f"{letters[s.operation.kind]}{s.operation.micro_batch}" for s in spans)


@given(st.data(), cases(), st.integers(0, 3))
def test_a_stage_does_every_pass_of_every_micro_batch_once_and_one_at_a_time(
    data: st.DataObject, case: Case, transfer: int
) -> None:
    name, stages, m, virtual = case
    times = data.draw(uneven(stages))
    timeline = simulate(PipelineSchedule(name), times, m, virtual, transfer)
    kinds = {Kind.FORWARD, Kind.BACKWARD}
    if SCHEDULES[PipelineSchedule(name)].splits_backward:
        kinds.add(Kind.WEIGHT)
    for stage, spans in enumerate(by_stage(timeline, stages)):
        done = [(s.operation.kind, s.operation.micro_batch, s.operation.chunk) for s in spans]
        assert len(done) == len(set(done)) == len(kinds) * m * virtual
        assert {kind for kind, _, _ in done} == kinds
        assert all(one.end_seconds <= other.start_seconds for one, other in pairwise(spans))
        busy = sum(span.end_seconds - span.start_seconds for span in spans)
        assert busy == pytest.approx(m * (times[stage].forward + times[stage].backward))


@given(st.data(), cases(), st.integers(0, 3))
def test_nothing_starts_before_what_it_needs_has_arrived(
    data: st.DataObject, case: Case, transfer: int
) -> None:
    name, stages, m, virtual = case
    timeline = simulate(PipelineSchedule(name), data.draw(uneven(stages)), m, virtual, transfer)
    down = [(chunk, stage) for chunk in range(virtual) for stage in range(stages)]
    if name == "zbv":
        down[stages:] = reversed(down[stages:])
    found = {
        (s.operation.kind, s.operation.micro_batch, s.operation.chunk, s.stage): s
        for s in timeline.spans
    }
    for j in range(m):
        path = [found[Kind.FORWARD, j, chunk, stage] for chunk, stage in down]
        path += [found[Kind.BACKWARD, j, chunk, stage] for chunk, stage in reversed(down)]
        for before, after in pairwise(path):
            delay = transfer if before.stage != after.stage else 0
            assert before.end_seconds + delay <= after.start_seconds
    for span in timeline.spans:
        if span.operation.kind is Kind.WEIGHT:
            done = span.operation
            backward = found[Kind.BACKWARD, done.micro_batch, done.chunk, span.stage]
            assert backward.end_seconds <= span.start_seconds


@given(st.data(), cases())
def test_the_bubble_is_the_share_of_time_in_which_stages_idle(
    data: st.DataObject, case: Case
) -> None:
    name, stages, m, virtual = case
    timeline = simulate(PipelineSchedule(name), data.draw(uneven(stages)), m, virtual)
    assert timeline.seconds == max(span.end_seconds for span in timeline.spans)
    busy = sum(span.end_seconds - span.start_seconds for span in timeline.spans)
    idle = stages * timeline.seconds - busy
    assert timeline.bubble_fraction * stages * timeline.seconds == pytest.approx(idle, abs=1e-9)
    assert 0 <= timeline.bubble_fraction < 1


@given(cases(), st.integers(1, 5), st.integers(0, 5), st.integers(0, 5), st.integers(1, 3))
def test_more_micro_batches_never_raise_the_bubble_fraction(
    case: Case, forward: int, weight: int, longer: int, more: int
) -> None:
    name, stages, m, virtual = case
    times = uniform(stages, forward, 2 * weight + longer, weight)
    fewer = simulate(PipelineSchedule(name), times, m, virtual).bubble_fraction
    larger = _micro_batches(name, stages, m + more)
    assert simulate(PipelineSchedule(name), times, larger, virtual).bubble_fraction <= fewer + 1e-12


@given(
    st.sampled_from(["gpipe", "1f1b"]),
    st.integers(1, 8),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_gpipe_and_1f1b_take_p_minus_1_micro_batches_longer(
    name: str, p: int, m: int, forward: int, backward: int
) -> None:
    timeline = simulate(PipelineSchedule(name), uniform(p, forward, backward), m)
    assert timeline.seconds == (m + p - 1) * (forward + backward)
    assert timeline.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))


@given(
    st.integers(1, 6), st.integers(1, 4), st.integers(2, 4), st.integers(1, 9), st.integers(1, 9)
)
def test_interleaving_divides_the_bubble_by_the_chunks(
    p: int, groups: int, v: int, forward: int, backward: int
) -> None:
    m, both = p * groups, forward + backward
    timeline = simulate(PipelineSchedule("interleaved-1f1b"), uniform(p, forward, backward), m, v)
    assert timeline.seconds == pytest.approx(m * both + (p - 1) * both / v)
    assert timeline.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1))


@given(
    st.integers(1, 8), st.integers(0, 12), st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)
)
def test_zero_bubble_h1_fills_the_bubble_with_weight_gradients(
    p: int, more: int, forward: int, inputs: int, weight: int
) -> None:
    m = p + more
    timeline = simulate(PipelineSchedule("zb-h1"), uniform(p, forward, inputs + weight, weight), m)
    bubble = timeline.seconds - m * (forward + inputs + weight)
    assert bubble == (p - 1) * max(forward, inputs, forward + inputs - weight)
    if weight <= min(forward, inputs):
        assert bubble == (p - 1) * (forward + inputs - weight)  # arXiv:2401.10241, table 2


def test_a_backward_of_two_forwards_split_evenly_leaves_a_third_of_the_bubble() -> None:
    times = uniform(4, 1, 2, 1)
    assert simulate(PipelineSchedule("zb-h1"), times, 8).seconds - 8 * 3 == 3
    assert simulate(PipelineSchedule("1f1b"), times, 8).seconds - 8 * 3 == 3 * 3


@given(st.integers(1, 6), st.integers(0, 8), st.integers(1, 9))
def test_zbv_stages_never_wait_where_the_three_passes_last_as_long(
    p: int, more: int, each: int
) -> None:
    m = 2 * p - 1 + more
    timeline = simulate(PipelineSchedule("zbv"), uniform(p, each, 2 * each, each), m, 2)
    assert timeline.seconds == 3 * m * each + (p - 1) * each / 2
    for spans in by_stage(timeline, p):
        assert all(one.end_seconds == other.start_seconds for one, other in pairwise(spans))


@given(st.data(), st.integers(1, 6), st.integers(1, 8))
def test_without_a_pipeline_all_stages_run_one_after_another(
    data: st.DataObject, p: int, m: int
) -> None:
    times = data.draw(uneven(p))
    whole = sum(stage.forward + stage.backward for stage in times)
    assert simulate(PipelineSchedule("naive"), times, m).seconds == m * whole
    assert simulate(PipelineSchedule("naive"), uniform(p), m).bubble_fraction == pytest.approx(
        1 - 1 / p
    )


@given(cases().filter(lambda case: case[1] > 1))
def test_stages_hold_as_many_micro_batches_as_the_memory_estimate_says(case: Case) -> None:
    name, p, m, v = case
    held = simulate(PipelineSchedule(name), uniform(p, 1, 2, 1), m, v).in_flight
    s = Layout(
        pipeline_parallel_size=p,
        virtual_pipeline_size=v,
        pipeline_schedule=PipelineSchedule(name),
        gradient_accumulation_steps=m,
    )
    if name in ("gpipe", "1f1b", "interleaved-1f1b"):
        assert held == pytest.approx([float(in_flight(s, i)) for i in range(p)])
    elif name == "naive":
        assert held == (1,) * p
    elif name == "zb-h1" or m >= 2 * p - 1:
        assert held == (min(m, p),) * p
    else:
        assert max(held) <= min(m, p)


@given(st.data(), st.integers(1, 8), st.integers(1, 20))
def test_1f1b_never_holds_more_than_the_stages_from_there_on(
    data: st.DataObject, p: int, m: int
) -> None:
    held = simulate(PipelineSchedule("1f1b"), data.draw(uneven(p)), m).in_flight
    assert all(amount <= p - i for i, amount in enumerate(held))


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=8), st.integers(1, 24), st.floats(0.5, 3))
def test_uneven_1f1b_lies_between_the_slowest_stages_work_and_the_closed_form(
    forwards: list[float], m: int, ratio: float
) -> None:
    times = [StageSeconds(forward=f, backward=ratio * f) for f in forwards]
    seconds = simulate(PipelineSchedule("1f1b"), times, m).seconds
    each = [f * (1 + ratio) for f in forwards]
    assert max(sum(each[:i]) + m * one for i, one in enumerate(each)) <= seconds * (1 + 1e-12)
    assert seconds <= (sum(each) + (m - 1) * max(each)) * (1 + 1e-12)


@pytest.mark.parametrize(("spread", "most"), [(1.1, 0.06), (4.0, 0.21)])
def test_the_closed_form_of_1f1b_overrates_uneven_stages_by_little(
    spread: float, most: float
) -> None:
    dice = random.Random(20240516)
    off = []
    for _ in range(300):
        p = dice.randint(2, 12)
        m = dice.randint(p, 4 * p)
        each = [dice.uniform(1, spread) for _ in range(p)]
        times = [StageSeconds(forward=one / 3, backward=one * 2 / 3) for one in each]
        off.append(
            1
            - simulate(PipelineSchedule("1f1b"), times, m).seconds
            / (sum(each) + (m - 1) * max(each))
        )
    assert min(off) > -1e-12
    assert max(off) < most
    assert sum(off) / len(off) < most / 4


def test_chunks_shrink_the_bubble_of_gpipe_and_one_is_naive_model_parallelism() -> None:
    bubbles = [
        simulate(PipelineSchedule("gpipe"), uniform(4), m).bubble_fraction for m in (1, 4, 8, 32)
    ]
    assert bubbles == pytest.approx([0.75, 0.429, 0.273, 0.086], abs=5e-4)
    assert (
        simulate(PipelineSchedule("gpipe"), uniform(4), 1).spans
        == simulate(PipelineSchedule("naive"), uniform(4), 1).spans
    )


def test_1f1b_has_the_bubble_of_gpipe_and_holds_less() -> None:
    gpipe, one_by_one = (
        simulate(PipelineSchedule(name), uniform(4), 16) for name in ("gpipe", "1f1b")
    )
    assert gpipe.bubble_fraction == one_by_one.bubble_fraction
    assert gpipe.in_flight == (16, 16, 16, 16)
    assert one_by_one.in_flight == (4, 3, 2, 1)


def test_orders_are_those_of_the_papers_figures() -> None:
    def drawn(name: str, m: int, virtual: int = 1) -> list[str]:
        times = uniform(4, 1, 2, 1)
        return [
            names(spans)
            for spans in by_stage(simulate(PipelineSchedule(name), times, m, virtual), 4)
        ]

    assert drawn("gpipe", 4) == ["F0 F1 F2 F3 B3 B2 B1 B0"] * 4
    assert drawn("1f1b", 6)[1] == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5"
    assert drawn("1f1b", 6)[3] == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"
    assert drawn("interleaved-1f1b", 4, 2)[3] == "F0 F1 F2 F3 F0 B0 F1 B1 F2 B2 F3 B3 B0 B1 B2 B3"
    assert drawn("zb-h1", 4)[2] == "F0 F1 B0 F2 B1 F3 B2 W0 B3 W1 W2 W3"
    assert drawn("zbv", 1, 2)[3] == "F0 F0 B0 W0 B0 W0"


def test_transfers_delay_the_first_micro_batch_both_ways() -> None:
    assert (
        simulate(PipelineSchedule("1f1b"), uniform(4), 1, transfer_seconds=0.5).seconds
        == 4 * 3 + 2 * 3 * 0.5
    )
    turned = simulate(PipelineSchedule("zbv"), uniform(4), 1, 2, transfer_seconds=0.5)
    assert turned.seconds == 4 * 3 + 4 * 3 * 0.5


@given(st.integers(2, 8), st.integers(1, 5), st.integers(2, 4))
def test_only_1f1b_waits_for_transfers_with_every_micro_batch(p: int, rounds: int, v: int) -> None:
    m, each = p * rounds, 1 / 64

    def waits(name: str, virtual: int = 1) -> float:
        apart = simulate(
            PipelineSchedule(name), uniform(p), m, virtual, transfer_seconds=each
        ).seconds
        return (apart - simulate(PipelineSchedule(name), uniform(p), m, virtual).seconds) / each

    assert waits("gpipe") == 2 * (p - 1)
    assert waits("interleaved-1f1b", v) == pytest.approx(2 * (p * v - 1))
    assert waits("1f1b") == 2 * (p - 1) * rounds + 2 * (p - 2)


def test_a_large_pipeline_agrees_with_the_closed_form() -> None:
    timeline = simulate(PipelineSchedule("1f1b"), uniform(64), 512)
    assert timeline.seconds == (512 + 63) * 3
    assert timeline.in_flight == tuple(range(64, 0, -1))


def test_stages_that_take_no_time_have_no_bubble() -> None:
    assert simulate(PipelineSchedule("1f1b"), uniform(2, 0, 0), 2).bubble_fraction == 0


@pytest.mark.parametrize(
    ("case", "field", "hint"),
    [
        (("1f1b", 0, 8, 1), "pipeline_parallel_size", "at least 1"),
        (("1f1b", 4, 0, 1), "gradient_accumulation_steps", "at least 1"),
        (("1f1b", 4, 8, 2), "virtual_pipeline_size", "nearest: 1"),
        (("zbv", 4, 8, 1), "virtual_pipeline_size", "nearest: 2"),
        (("interleaved-1f1b", 4, 8, 1), "virtual_pipeline_size", "nearest: 2"),
        (("interleaved-1f1b", 4, 8, 10**9), "virtual_pipeline_size", f"nearest: {MOST_CHUNKS}"),
        (("interleaved-1f1b", 4, 10, 2), "gradient_accumulation_steps", "nearest: 8 or 12"),
        (("interleaved-1f1b", 4, 3, 2), "gradient_accumulation_steps", "nearest: 4"),
        (("zb-h1", 4, 10**12, 1), "gradient_accumulation_steps", f"at most {MOST_OPERATIONS:,}"),
    ],
)
def test_impossible_pipelines_name_the_nearest_that_is_possible(
    case: Case, field: str, hint: str
) -> None:
    name, stages, micro_batches, virtual = case
    with pytest.raises(InvalidInputError) as caught:
        simulate(PipelineSchedule(name), uniform(stages), micro_batches, virtual)
    assert caught.value.field == f"strategy.{field}"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("stage", "transfer", "hint"),
    [
        (StageSeconds(forward=-1, backward=2), 0.0, "between 0"),
        (StageSeconds(forward=1, backward=float("nan")), 0.0, "between 0"),
        (StageSeconds(forward=1, backward=float("inf")), 0.0, "between 0"),
        (StageSeconds(forward=1, backward=2), -0.1, "between 0"),
        (StageSeconds(forward=1, backward=2, weight=3), 0.0, "at most 2 s"),
    ],
)
def test_times_that_cannot_be_are_refused(stage: StageSeconds, transfer: float, hint: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        simulate(PipelineSchedule("1f1b"), [stage], 2, transfer_seconds=transfer)
    assert hint in caught.value.hint


def _seconds(
    layers: Sequence[int], blocks: Sequence[float], first: float, last: float
) -> list[float]:
    bounds = [sum(layers[:i]) for i in range(len(layers) + 1)]
    seconds = [sum(blocks[start:end]) for start, end in pairwise(bounds)]
    seconds[0] += first
    seconds[-1] += last
    return seconds


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=9),
    st.integers(0, 40),
    st.integers(0, 40),
    st.data(),
)
def test_no_other_split_has_a_faster_slowest_stage(
    blocks: list[int], first: int, last: int, data: st.DataObject
) -> None:
    stages = data.draw(st.integers(1, len(blocks)))
    layers = balance(blocks, first, last, stages)
    assert len(layers) == stages
    assert sum(layers) == len(blocks)
    assert min(layers) >= 1
    splits = [
        _seconds([b - a for a, b in pairwise((0, *cut, len(blocks)))], blocks, first, last)
        for cut in combinations(range(1, len(blocks)), stages - 1)
    ]
    best = min((max(split), sum(one**2 for one in split)) for split in splits)
    got = _seconds(layers, blocks, first, last)
    assert (max(got), sum(one**2 for one in got)) == best


def test_equal_layers_are_split_evenly_with_the_shorter_stages_first() -> None:
    assert balance([0.1] * 8, 0, 0, 4) == (2, 2, 2, 2)
    assert balance([0.1] * 10, 0, 0, 4) == (2, 2, 3, 3)
    assert balance([0.1] * 126, 0, 0, 16) == (7, 7, *[8] * 14)


def test_the_embeddings_and_the_head_take_layers_from_the_outer_stages() -> None:
    assert balance([1.0] * 16, 1, 3, 4) == (4, 5, 5, 2)
    assert balance([1.0] * 126, 1, 1, 16) == (7, *[8] * 14, 7)


def test_many_layers_over_many_stages_are_balanced() -> None:
    layers = balance([1.0] * 128, 0.2, 1.5, 64)
    assert max(_seconds(layers, [1.0] * 128, 0.2, 1.5)) == 3.0
    assert balance([1.0] * MOST_LAYERS, 0, 0, 512) == (2,) * 512


@pytest.mark.parametrize(
    ("blocks", "first", "stages", "hint"),
    [
        ([1.0] * 4, 0.0, 5, "between 1 and 4"),
        ([1.0] * 4, 0.0, 0, "between 1 and 4"),
        ([], 0.0, 1, "between 1 and 0"),
        ([1.0] * (MOST_LAYERS + 1), 0.0, 2, f"at most {MOST_LAYERS:,}"),
        ([1.0, float("nan")], 0.0, 2, "between 0"),
        ([1.0, 1.0], float("inf"), 2, "between 0"),
    ],
)
def test_layers_that_cannot_be_split_are_refused(
    blocks: list[float], first: float, stages: int, hint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        balance(blocks, first, 0.0, stages)
    assert hint in caught.value.hint
