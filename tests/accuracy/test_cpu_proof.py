"""Plans for two cores, run as they were written; docs/accuracy/cpu_proof.md cannot lie.

`make proof` measures again; `pytest --update-golden tests/accuracy/test_cpu_proof.py` rewrites the page's tables.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from proof import measured, page
from proof.jobs import ANCHOR, LOCAL, RUNS
from proof.judge import Job, Judged, by_job, median_error, repetitions, share_right
from proof.measured import judged, raced, table
from test_docs import check_block

from planner.race.odds import KNOWN

PAGE = Path(__file__).parents[2] / "docs/accuracy/cpu_proof.md"
NOT_YET = "Not measured yet: `make proof` does.\n"
FIRST = RUNS[: len(RUNS) // 12]
"""Of the first job."""


@pytest.fixture(scope="module")
def found() -> list[Judged]:
    return list(judged())


def test_a_perfect_plan_has_no_error_and_no_regret() -> None:
    runs = [Judged(run, float(number), float(number)) for number, run in enumerate(FIRST, start=1)]
    (job,) = by_job(runs)
    assert job.correlation == pytest.approx(1.0)
    assert (job.regret, median_error(runs)) == (0.0, 0.0)
    assert share_right([job]) == 1.0


def test_a_plan_the_wrong_way_round_is_told() -> None:
    last = len(FIRST)
    runs = [Judged(run, number + 1.0, float(last - number)) for number, run in enumerate(FIRST)]
    (job,) = by_job(runs)
    assert job.regret == last - 1
    assert job.correlation == pytest.approx(-1.0)
    assert not job.is_right


def test_the_side_of_the_threshold_is_told_as_planned_and_as_measured() -> None:
    def job(ddp_planned: float, ddp_measured: float) -> Job:
        runs = (Judged(run, 1.0, 1.0) for run in FIRST if run.layout != "ddp")
        return Job((Judged(FIRST[0], ddp_measured, ddp_planned), *runs))

    assert FIRST[0].layout == "ddp"
    assert job(1.05, 1.2).sides == (False, True)
    assert job(1.2, 1.05).sides == (True, False)


def test_local_sgd_is_left_out_of_what_trains_alike() -> None:
    job = Job(tuple(Judged(run, 1.0, 1.0) for run in FIRST))
    assert {each.run.layout for each in job.runs} - {
        each.run.layout for each in job.of_same_training().runs
    } == set(LOCAL)


def test_what_is_planned_to_take_far_longer_is_run_once() -> None:
    seconds = {run.name: 1.0 for run in FIRST} | {FIRST[0].name: 9.0}
    wanted = repetitions(FIRST, seconds, 5)
    assert (wanted[FIRST[0].name], wanted[FIRST[1].name]) == (1, 5)


def test_every_layout_has_two_ranks_and_the_same_batch() -> None:
    for run in RUNS:
        layout = run.request()["strategy"]
        model_parts = layout["tensor_parallel_size"] * layout["pipeline_parallel_size"]
        sequences = layout["micro_batch_size"] * layout["gradient_accumulation_steps"]
        assert sequences * (2 // model_parts) == run.request()["recipe"]["global_batch_size"]


def test_steps_of_local_sgd_are_as_many_as_it_averages_after() -> None:
    of_4 = next(run for run in RUNS if run.layout == "local-4")
    assert of_4.steps == 4
    assert of_4.mean_step([9.0, 1.0, 1.0, 5.0]) == 2.0
    ddp = replace(of_4, layout="ddp")
    assert ddp.steps == 3
    assert ddp.mean_step([9.0, 1.0, 2.0]) == 1.5
    assert ANCHOR not in {run.layout for run in RUNS}


@pytest.mark.parametrize("block", page.BLOCKS)
def test_the_page_is_what_the_measurements_give(
    block: str, found: list[Judged], request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    body = "".join(f"{line}\n" for line in page.BLOCKS[block](found)) if found else NOT_YET
    check_block(block, body, update=update, page=PAGE)


def test_local_sgd_is_the_fastest_on_every_wire_as_the_page_says(found: list[Judged]) -> None:
    for job in by_job(found):
        assert (job.fastest.run.layout, job.chosen.run.layout) == ("local-16", "local-16")


def test_the_page_says_when_and_on_what(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    said = table().get("source", "")
    body = f"{said[:1].upper()}{said[1:]}.\n" if said else NOT_YET
    check_block("source", body, update=update, page=PAGE)


def test_a_race_is_judged_by_runs_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(job: str, seconds: float, *plans: tuple[str, float], turn: int = 1) -> str:
        shown = [{"layout": name, "steps": 9, "step": [0, step, 1]} for name, step in plans]
        failed = {"layout": "tp", "steps": 0, "step": None}
        said = {"wire": "1-gbit", "model": "llama", "job": job, "turn": turn}
        return json.dumps({**said, "seconds": seconds, "plans": [*shown, failed]}) + "\n"

    monkeypatch.setattr(measured, "RACES", tmp_path / "races.toml")
    monkeypatch.setattr(measured, "version", lambda name: f"of {name}")
    turns = line("pp-4", 50.0, ("pp-4", 1.2)) + line("ddp", 70.0, ("ddp", 1.1))
    turns += line("pp-4", 9.0, ("pp-4", 1.0), turn=2) + line("pp-4", 9.0, ("pp-4", 0.9), turn=3)
    turns += line("ddp", 9.0, ("ddp", 1.1), turn=2) + line("ddp", 9.0, ("ddp", 1.2), turn=3)
    (tmp_path / "lines").write_text(turns + line("race", 30.0, ("pp-4", 1.3), ("ddp", 1.2)))
    measured.write_races(tmp_path / "lines")
    (found,) = measured.raced()
    assert (found.winner, found.fastest, found.raced) == ("ddp", "pp-4", 3)
    assert found.behind == pytest.approx(0.1)
    assert (found.seconds, found.seconds_of_all) == (30.0, 120.0)
    others = (tmp_path / "lines").read_text().replace("llama", "wide-gpt")
    (tmp_path / "others").write_text(others)
    measured.write_races(tmp_path / "others")
    assert [each.model for each in measured.raced()] == ["llama", "wide-gpt"]


def test_the_races_are_what_was_measured(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    body = "".join(f"{line}\n" for line in page.races_table([*raced()]))
    check_block("races", body, update=update, page=PAGE)


def test_a_race_finds_the_fastest_in_two_fifths_of_the_time() -> None:
    found = list(raced())
    assert len({(each.wire, each.model) for each in found}) == 12
    assert sum(each.behind <= KNOWN for each in found) >= 11
    assert sum(each.seconds for each in found) <= 0.4 * sum(each.seconds_of_all for each in found)
