"""Runs that are timed by their progress bars: transformers' Trainer, loops of Accelerate, Lightning."""

from typing import Any

import log_samples
import pytest

from planner.calibrate.logs.layout import step_seconds
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.core.errors import InvalidInputError

ACCUMULATED: dict[str, Any] = {
    "cluster": {"gpus_per_node": 2},
    "recipe": {"global_batch_size": 64},
    "strategy": {"micro_batch_size": 8},
}
"""4 micro-batches a step."""
LOSS = "{'loss': 1.5, 'grad_norm': 2.3, 'learning_rate': 1.9e-05, 'epoch': 0.1}"


def read(*lines: str) -> Reading:
    return read_log_bytes("run.log", "\n".join(lines).encode())


def test_stretches_of_the_bar_leave_the_warm_up_out() -> None:
    end = "{'train_runtime': '252', 'train_steps_per_second': '0.238', 'epoch': '1.0'}"
    reading = read(LOSS, log_samples.bars(), end)
    assert reading.kind == "transformers' Trainer"
    assert step_seconds(reading, {}) == pytest.approx(4.0)
    assert reading.log is not None
    assert not reading.log.is_mean
    assert step_seconds(read(LOSS, end), {}) == pytest.approx(252 / 60)


def test_bars_of_a_short_run_are_read_too() -> None:
    short = read(log_samples.bars(steps=12))
    assert short.notes == ("its progress bar times steps 1 to 12",)
    assert short.unread == 0


@pytest.mark.parametrize("quote", ["", "'"])
def test_evaluations_that_say_how_long_they_took_are_taken_off(quote: str) -> None:
    """20 steps of 4 s and an evaluation of 50 s, three times."""
    lines, clock = [], 0
    for step in range(1, 61):
        clock += 4
        if step % 20 == 0:
            lines.append(f" 50%|#    | 30/60 [00:{step - 20}<00:30,  1.0s/it]")  # its own bar
            lines.append(f"{{'eval_loss': 1.9, 'eval_runtime': {quote}50.0{quote}, 'epoch': 0.5}}")
            clock += 50
        lines.append(f" 10%|#  | {step}/90 [{clock // 60:02}:{clock % 60:02}<09:00,  4.00s/it]")
    end = "{'train_runtime': 390.0, 'train_steps_per_second': 0.154, 'epoch': 1.0}"
    for log in (read(LOSS, *lines), read(LOSS, *lines, end)):
        assert step_seconds(log, {}) == pytest.approx(4.0)
    without_bar = read(LOSS, *(line for line in lines if "eval" in line), end)
    assert step_seconds(without_bar, {}) == pytest.approx(240 / 60)
    assert without_bar.notes == ("evaluations took 150 s of its 390 s: they are left out",)


def test_bars_of_other_work_are_not_of_training() -> None:
    mapped = "Map: 100%|###| 90000/90000 [05:00<00:00, 300.00 examples/s]"
    loaded = "\r".join(
        f"Loading checkpoint shards:  10%|#  | {n}/900 [10:{n}<00:00,  9.00s/it]"
        for n in range(10, 50)
    )
    reading = read(mapped, loaded, LOSS, log_samples.bars())
    assert step_seconds(reading, {}) == pytest.approx(4.0)
    with pytest.raises(InvalidInputError, match="is no log that is known"):
        read(mapped, loaded)


def test_of_two_runs_the_last_counts() -> None:
    end = "{'train_runtime': '100', 'train_steps_per_second': '0.1', 'epoch': '1.0'}"
    later = end.replace("100", "300").replace("0.1", "0.3")
    reading = read(LOSS, end, LOSS, later.replace("'0.3'", "'0.05'"))
    assert step_seconds(reading, {}) == pytest.approx(300 / 15)
    assert reading.notes == ("another run before the last is left out",)
    started = read("***** Running training *****", LOSS, end, "***** Running training *****", later)
    assert started.notes == reading.notes


def test_lightnings_bar_counts_micro_batches() -> None:
    bar = log_samples.bars(start="Epoch 0:", end=", v_num=0, train_loss=2.31")
    assert step_seconds(read(bar), ACCUMULATED) == pytest.approx(16.0)


def test_torchtunes_bar_counts_steps() -> None:
    bar = log_samples.bars(start="1|50|Loss: 1.37:")
    assert step_seconds(read(bar), ACCUMULATED) == pytest.approx(4.0)


def test_a_bar_whose_iterations_may_be_either_is_asked_about() -> None:
    with pytest.raises(InvalidInputError, match="may be a micro-batch or a step of 4"):
        step_seconds(read(log_samples.bars()), ACCUMULATED)
    assert step_seconds(read(log_samples.accelerate_example()), ACCUMULATED) == pytest.approx(4.0)
    once = {**ACCUMULATED, "recipe": {"global_batch_size": 16}}
    assert step_seconds(read(log_samples.bars()), once) == pytest.approx(4.0)


def test_a_bar_that_begins_again_in_every_epoch_is_one_run() -> None:
    epochs = "\r".join([log_samples.bars(steps=30)] * 3)
    reading = read(epochs)
    assert step_seconds(reading, {"strategy": {"gradient_accumulation_steps": 1}}) == 4.0
    assert reading.steady is not None
    assert reading.steady.steps > 12


def restarted(each: float, start: int = 0, wait: int = 0) -> str:
    """A bar of 100 that goes on from a step, its clock from 0, or later."""
    clocks = ((step, wait + round((step - start) * each)) for step in range(start, 101))
    return "\r".join(
        f" 1%|# | {step}/100 [{clock // 60:02}:{clock % 60:02}<01:00, {each:.2f}s/it]"
        for step, clock in clocks
    )


@pytest.mark.parametrize("start", [0, 40, 60])
@pytest.mark.parametrize("has_header", [False, True])
def test_where_a_bar_begins_again_at_another_speed_the_last_run_counts(
    start: int, *, has_header: bool
) -> None:
    """The first run ended at step 40: the next begins anew, where it ended, or later."""
    header = ["***** Running training *****", "  Total optimization steps = 100"] * has_header
    first = "\r".join(restarted(5.0).split("\r")[:41])
    reading = read(*header, first, "Traceback", *header, restarted(9.0, start))
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(9.0)
    said = "another run before the last" if has_header else "begin again at another speed: 40 steps"
    assert said in reading.notes[0]
    assert reading.unread == 1 + 2 * len(header)


def test_a_run_that_ended_at_once_leaves_the_bar_before_it() -> None:
    header = "***** Running training *****"
    reading = read(header, restarted(5.0), header, restarted(9.0).split("\r")[0])
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(5.0)
    assert reading.notes == ()


def test_bars_of_ranks_that_take_turns_are_one_run() -> None:
    early, late = (restarted(5.0, wait=wait).split("\r") for wait in (4, 0))
    reading = read(*(line for pair in zip(early, late, strict=True) for line in pair))
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(5.0, rel=0.05)
    assert reading.notes == ()
