"""Times on several numbers of GPUs: each diagnosis from numbers that are worked by hand."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError
from planner.doctor.diagnosis import Diagnosis, diagnose
from planner.doctor.timing_rules import RULES
from planner.doctor.timings import Timings, fixed_seconds, read_times
from planner.explain.glossary import find_code


def times(text: str, **run: Any) -> Timings:
    return Timings(seconds=read_times(text), **run)


def found(text: str, **run: Any) -> Diagnosis:
    return diagnose(times(text, **run))


@pytest.mark.parametrize(
    ("text", "run", "code"),
    [
        ("1=43.1,2=43.1,4=48.2", {"fixed": "epochs"}, "TIM003"),
        ("1=43.1,2=43.1,4=48.2", {}, "TIM003"),
        ("1=43.096,4=28.065", {"fixed": "epochs"}, "TIM006"),
        ("1=100,2=60,4=40,8=30", {}, "TIM006"),
        ("1=100,2=60,4=45,8=50", {}, "TIM007"),
        ("1=100,2=60,4=45,8=45.5", {}, "TIM006"),
        ("1=100,2=60", {}, "TIM008"),
        ("1=100,4=35", {}, "TIM008"),
        ("1=100,4=35", {"start_up_seconds": 12.0}, "TIM006"),
        ("1=100,4=35", {"start_up_seconds": 2.0}, "TIM007"),
        ("1=102,2=101.9", {"fixed": "steps"}, "TIM002"),
        ("1=102,2=131.4", {"fixed": "steps"}, "TIM007"),
        ("1=3600,4=2000", {}, "TIM007"),
        ("1=147,2=310", {}, "TIM007"),
        ("1=100,2=83,4=41.6,8=20.8", {}, "TIM007"),
        ("1=200,4=80", {"start_up_seconds": 10.0}, "TIM007"),
        ("1=100,8=12.9", {}, "TIM005"),
        ("1=100,4=20", {}, "TIM004"),
        ("1=100,2=55,4=30", {"fixed": "steps"}, "TIM004"),
        ("1=100,2=55,4=30", {"fixed": "steps", "global_batch": 64}, ""),
        ("1=100,4=90", {"loader_seconds": 80.0}, "TIM001"),
        ("1=100,4=90", {"loader_seconds": 20.0}, "TIM006"),
        ("2=100,4=55", {}, "TIM005"),
    ],
)
def test_times_have_their_diagnosis(text: str, run: dict[str, Any], code: str) -> None:
    assert found(text, **run).code == code


def test_the_forums_run_had_a_start_up_of_twenty_seconds() -> None:
    # 43.096 = a + b; 28.065 = a + b / 4: b = 15.031 / 0.75, a = 43.096 - b.
    # With steps that take 1.25 times as long on four: b = 15.031 / (1 - 1.25 / 4).
    run = times("1=43.096,4=28.065", batch_per_gpu=128)
    assert fixed_seconds(run) == pytest.approx(43.096 - 15.031 / 0.75)
    assert fixed_seconds(run, 1.25) == pytest.approx(43.096 - 15.031 / (1 - 1.25 / 4))
    diagnosis = diagnose(run)
    assert "21.2-23.1 s of the 28.1 s" in diagnosis.message
    assert "from 20.0-21.9 s to 5.0-6.8 s" in diagnosis.message
    assert diagnosis.ceiling == pytest.approx(43.096 / 21.233, rel=1e-3)
    assert "1.87-2.03" in " ".join(diagnosis.arithmetic)
    assert diagnosis.batches == "128 per GPU is a global batch of 128 on 1 GPU, 512 on 4 GPUs"


def test_steps_that_took_less_time_were_not_fixed() -> None:
    # 4 times the samples in 0.3 of the time would be 13.33 times the samples per second.
    said = found("1=100,2=55,4=30", fixed="steps").message
    assert (
        "13.33 times the samples per second on 4 times the GPUs: the steps were not fixed" in said
    )


def test_one_gpu_is_no_gpus() -> None:
    with pytest.raises(InvalidInputError, match=r"two times for 1 GPU$"):
        read_times("1=3,1=4")


def test_two_times_that_cannot_tell_name_both() -> None:
    # 100 = a + b, 35 = a + b / 4: b = 65 / 0.75, a = 13.3; or 4 x 35 / 100 = 1.4 times a step.
    said = found("1=100,4=35").message
    assert "13.3 s that do not shrink" in said
    assert "1.40 times as long" in said


def test_three_times_on_one_line_give_it_exactly() -> None:
    # 20 + 80 / n
    assert fixed_seconds(times("1=100,2=60,4=40")) == pytest.approx(20)


def test_a_measured_start_up_is_taken_as_it_is() -> None:
    # (200 - 10) / 4 = 47.5 s would be ideal; 70 s are 1.47 times that.
    diagnosis = found("1=200,4=80", start_up_seconds=10.0)
    assert "1.47 times" in diagnosis.message
    assert "4 x 70.0 s / 190.0 s = 1.47" in diagnosis.arithmetic[0]


def test_fixed_steps_double_the_samples() -> None:
    diagnosis = found("1=102,2=101.9", fixed="steps")
    assert "2 times the samples in 1.00 of the time, 2.00 times" in diagnosis.message


def test_replicated_work_says_what_it_presumes() -> None:
    assert "unless max_steps was fixed" in found("1=43.1,4=48.2").message
    assert "unless" not in found("1=43.1,4=48.2", fixed="epochs").message


def test_a_fixed_global_batch_is_shown_per_gpu() -> None:
    assert found("1=100,2=51", global_batch=64).batches.endswith("64 on 1 GPU, 32 on 2 GPUs")


def test_a_slow_loader_caps_the_speed_up() -> None:
    diagnosis = found("1=100,4=90", loader_seconds=80.0)
    assert diagnosis.ceiling == pytest.approx(100 / 80)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1=2",
        "1;2,2=3",
        "1=2,1=3",
        "0=1,2=3",
        "-1=2,2=3",
        "1=0,2=3",
        "1=nan,2=3",
        "1=inf,2=3",
        "a=b",
        "1=1e30,2=3",
        "999999999999=1,1=1",
        ",".join(f"{n}=1" for n in range(1, 99)),
    ],
)
def test_what_is_no_times_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_times(text)
    assert refused.value.field == "--times"
    assert refused.value.hint


@pytest.mark.parametrize(
    "text", ["1=43 4=28.1", "1: 43s\n4 : 28.1 s\n", "4=28.1,\t1 = 43 s,,", "1:43, 4:28.1"]
)
def test_times_may_be_written_on_lines_and_with_colons(text: str) -> None:
    assert read_times(text) == {1: 43.0, 4: 28.1}


def test_times_may_be_written_with_units_in_any_order() -> None:
    assert list(read_times("4=28.1s, 1=43 ,")) == [1, 4]


@pytest.mark.parametrize("run", [{"start_up_seconds": 43.1}, {"start_up_seconds": 100.0}])
def test_a_start_up_longer_than_a_run_is_refused(run: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        found("1=50,4=43.1", **run)
    assert refused.value.field == "--start-up-seconds"


@pytest.mark.parametrize(
    ("times", "fixed", "code"),
    [
        ("8=100,16=800", "epochs", "TIM009"),  # 2 x 800 / 100 = 16
        ("8=100,16=250", "steps", "TIM009"),
        ("4=200,8=101,16=160", "epochs", "TIM009"),  # 2 x 160 / 101 = 3.17, and 1.01 inside
        ("1=10,4=30,8=60,16=80", "steps", "TIM007"),  # 6 times inside, 1.33 beyond
        ("8=100,16=51", "epochs", "TIM005"),
        ("16=100,32=130", "epochs", "TIM007"),
    ],
)
def test_beyond_one_node_the_network_is_what_is_new(times: str, fixed: str, code: str) -> None:
    diagnosis = found(times, fixed=fixed)
    assert diagnosis.code == code
    if code == "TIM009":
        assert "NET/Socket" in diagnosis.next


@pytest.mark.parametrize("code", [code for code, _ in RULES])
def test_a_diagnosis_says_why_and_what_instead(code: str) -> None:
    text = find_code(code).text
    assert [head in text for head in ("Why: ", "Instead: ", "Source: ")] == [True] * 3


def test_a_third_number_of_gpus_is_not_asked_for_where_there_are_four() -> None:
    two, four = found("1=100,2=60"), found("1=100,2=50,4=30,8=20")
    assert two.code == four.code == "TIM008"
    assert "third number" in two.next
    assert "third number" not in four.next
    assert "--start-up-seconds" in four.next
