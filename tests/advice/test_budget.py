import re
from collections.abc import Sequence

import pytest
from conftest import JobMaker

from planner.advice import budget, choice
from planner.advice.budget import CutShortError, plan_within
from planner.advice.choice import Contender
from planner.advice.plan import make_plan
from planner.answers import suggest
from planner.core import deadline
from planner.core.errors import InvalidInputError, NothingFitsError, TookTooLongError
from planner.domain.job import Job
from planner.request.schema import parse_request, resolve
from planner.search.pinned_fields import PinnedFields

LLAMA = "meta-llama/Llama-2-7b-hf"
HOUR = 3600.0


def test_the_fewest_gpus_that_fit(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, gpu="a100-80gb")
    plan = plan_within([job], {}, "gpus")
    assert plan.job.cluster.world_size == min(option.gpus for option in plan.options)
    fewer = make_job(LLAMA, gpus=plan.job.cluster.world_size // 2, gpu="a100-80gb")
    assert make_plan(fewer).chosen.strategy.offloads_optimizer


def test_more_gpus_than_there_are_may_be_asked_for(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=2, gpu="a100", recipe={"global_batch_size": 64})
    plan = plan_within([job], {}, "time", max_gpus=8)
    assert plan.job.cluster.world_size == 8
    assert [option.gpus for option in plan.options] == [1, 2, 4, 8]


def test_a_deadline_takes_the_fewest_gpus_that_meet_it(make_job: JobMaker) -> None:
    recipe = {"training_tokens": 3 * 10**9, "global_batch_size": 512}
    job = make_job("gpt2", gpus=8, recipe=recipe)
    by_gpus = {option.gpus: option for option in plan_within([job], {}, "gpus").options}
    limit = by_gpus[4].run_seconds * 1.01
    plan = plan_within([job], {}, "gpus", deadline_seconds=limit)
    assert plan.job.cluster.world_size == 4
    assert [option.is_in_time for option in plan.options] == [False, False, True, True]
    sooner = by_gpus[8].run_seconds / 1.5
    with pytest.raises(NothingFitsError, match="the fastest takes") as caught:
        plan_within([job], {}, "gpus", deadline_seconds=sooner)
    (gpus,) = re.findall(r"--max-gpus (\d+) would do", caught.value.hint)
    enough = plan_within([job], {}, "gpus", max_gpus=int(gpus), deadline_seconds=sooner)
    assert 8 < enough.job.cluster.world_size <= int(gpus)


def test_a_deadline_far_off_is_met_by_many_times_as_many_gpus(make_job: JobMaker) -> None:
    recipe = {"training_tokens": 10**12, "global_batch_size": 512}
    job = make_job(LLAMA, gpus=2, gpu="h100", recipe=recipe)
    with pytest.raises(NothingFitsError) as caught:
        plan_within([job], {}, "gpus", deadline_seconds=24 * 14 * HOUR)
    (gpus,) = re.findall(r"--max-gpus (\d+) would do", caught.value.hint)
    assert int(gpus) > 32


def test_a_deadline_that_no_number_meets_says_what_else_to_change(make_job: JobMaker) -> None:
    recipe = {"training_tokens": 3 * 10**9, "global_batch_size": 8}
    job = make_job("gpt2", gpus=8, recipe=recipe)
    with pytest.raises(NothingFitsError) as caught:
        plan_within([job], {}, "gpus", deadline_seconds=HOUR / 60)
    assert "would do" not in caught.value.hint
    assert "--global-batch-size" in caught.value.hint


def test_a_deadline_needs_a_length(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError) as caught:
        plan_within([make_job("gpt2")], {}, "gpus", deadline_seconds=HOUR)
    assert caught.value.field == "recipe.training_tokens"


def test_the_cheapest_is_the_least_of_the_prices(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, cluster={"instance": "p4d.24xlarge", "gpu": None})
    plan = plan_within([job], {}, "cost")
    prices = {option.gpus: option.usd for option in plan.options}
    assert all(prices.values())
    assert prices[plan.job.cluster.world_size] == min(prices.values())


def test_what_fits_on_no_number_of_gpus_is_said(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-70b-hf", gpus=2, gpu="t4")
    with pytest.raises(NothingFitsError, match="any number of GPUs up to 2"):
        plan_within([job], {}, "gpus")


def test_numbers_of_gpus_beyond_so_many_layouts_are_left_out_and_it_is_said(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("gpt2", gpus=8, recipe={"global_batch_size": 64})
    whole = plan_within([job], {}, "gpus")
    monkeypatch.setattr(budget, "MOST_LAYOUTS", whole.search.strategies)
    cut = plan_within([job], {}, "gpus")
    assert [option.gpus for option in whole.options] == [1, 2, 4, 8]
    assert cut.options == whole.options[-len(cut.options) :]
    fewest = cut.options[0].gpus
    assert 1 < fewest == cut.job.cluster.world_size
    assert [note.partition(" GPUs")[0] for note in cut.notes] == [f"fewer than {fewest}"]
    assert not whole.notes


def test_the_front_of_memory_is_kept_as_an_objective(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=2)
    small = plan_within([job], {}, "memory", max_gpus=2)
    assert small.chosen.memory.reserved_bytes <= make_plan(small.job).chosen.memory.reserved_bytes


def test_a_number_of_gpus_that_does_not_split_the_batch_is_left_out_and_said(
    make_job: JobMaker,
) -> None:
    job = make_job("gpt2", gpus=8, gpu="4090", recipe={"global_batch_size": 32})
    plan = plan_within([job], {}, "time", max_gpus=6)
    assert plan.job.cluster.world_size == 4
    assert [option.gpus for option in plan.options] == [1, 2, 4]
    (note,) = plan.notes
    assert note.startswith("a global batch of 32 does not split over 6 GPUs")
    assert note.endswith("6 GPUs are left out")


def test_numbers_of_gpus_with_the_same_fault_take_one_note(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=8, gpu="4090", recipe={"global_batch_size": 30})
    (note,) = plan_within([job], {}, "time", max_gpus=8).notes
    assert note.startswith("a global batch of 30 does not split over 8 GPUs")
    assert note.endswith("8 GPUs are left out, and so are 4")


def test_what_is_offered_in_place_of_a_plan_is_on_its_gpus() -> None:
    """Asked for the fewest, of which Composer has no files."""
    recipe = {"framework": "composer", "global_batch_size": 64}
    cluster = {"gpu": "a100", "gpus_per_node": 8}
    request = {"model": "gpt2", "cluster": cluster, "recipe": recipe, "objective": "gpus"}
    _, plan = suggest(parse_request(request), allow_paths=False)
    offer = plan.offers[0]
    assert not plan.launch.targets
    assert plan.job.cluster.world_size == 1
    assert offer.candidate.strategy.data_parallel_size == 1
    _, there = suggest(
        parse_request(
            {**request, "recipe": {**recipe, "framework": offer.changes["recipe.framework"]}}
        ),
        allow_paths=False,
    )
    assert there.launch.targets
    assert there.chosen.strategy == offer.candidate.strategy


def test_a_batch_that_no_number_of_gpus_in_time_splits_is_refused(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 32, "training_tokens": 10**9}
    job = make_job("gpt2", gpus=8, gpu="a100", recipe=recipe)
    four = plan_within([job], {}, "time", max_gpus=4).options[-1]
    with pytest.raises(InvalidInputError, match="does not split over 6 GPUs"):
        plan_within([job], {}, "gpus", max_gpus=6, deadline_seconds=0.99 * four.run_seconds)


def test_without_a_deadline_nothing_is_in_time(make_job: JobMaker) -> None:
    plan = plan_within([make_job("gpt2", gpus=2)], {}, "cost")
    assert [option.is_in_time for option in plan.options] == [None, None]
    chosen = next(each for each in plan.options if each.gpus == plan.job.cluster.world_size)
    assert chosen.step_seconds == float(plan.chosen.step_time.step_seconds)


def test_a_price_has_its_date() -> None:
    request = {"model": "gpt2", "cluster": {"instance": "p4d.24xlarge"}}
    job = resolve(parse_request(request), allow_paths=False).job
    (dates,) = {option.price_date for option in plan_within([job], {}, "cost").options}
    assert job.cluster.instance is not None
    assert dates == job.cluster.instance.price_date != ""


def test_time_that_is_over_gives_the_best_of_what_was_looked_at(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("gpt2", gpus=8, recipe={"global_batch_size": 64})
    looked_at: list[int] = []

    def found(stacks: Sequence[Job], pinned: PinnedFields) -> list[Contender]:
        contenders = list(choice.contenders(stacks, pinned))
        looked_at.append(stacks[0].cluster.world_size)
        return contenders

    monkeypatch.setattr(budget, "contenders", found)
    with monkeypatch.context() as hurried:
        plan = make_plan(job)
        hurried.setattr(budget, "make_plan", lambda *_: plan)
        hurried.setattr(deadline, "is_over", lambda: len(looked_at) == 2)
        with pytest.raises(
            CutShortError, match=r"no answer in time: 2 of 4 numbers .* the best so far is 8 GPUs"
        ) as cut:
            plan_within([job], {}, "time")
    assert looked_at == [8, 4]
    assert [option.gpus for option in cut.value.plan.options] == [4, 8]
    assert plan_within([job], {}, "time").job.cluster.world_size == 8
    assert looked_at == [8, 4, 8, 4, 2, 1]


def test_time_that_is_over_before_anything_fits_is_said(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "is_over", lambda: True)
    with pytest.raises(TookTooLongError, match="in time: 0 of 4 numbers") as cut:
        plan_within([make_job("gpt2", gpus=8)], {}, "time")
    assert cut.value.best is None


def test_without_a_dated_price_it_is_said_of_what(make_job: JobMaker) -> None:
    unpriced = make_job("gpt2", cluster={"instance": "a2-highgpu-8g", "gpu": None})
    notes = plan_within([unpriced], {}, "cost").notes
    assert (
        "no dated price of a2-highgpu-8g with a100-sxm-40gb is known: the least GPU time is taken"
        in notes
    )
    notes = plan_within([make_job("gpt2", gpus=8)], {}, "cost").notes
    assert any("--instance NAME has one" in note for note in notes)
