"""What the README says of --no-sync: whole gradients on every rank, reduced once a step."""

import re
from typing import Any

import pytest
from conftest import JobMaker
from run_specs import script_of, with_layout
from test_generate import SPEC

from planner.domain.strategy import Layout
from planner.generate import generate
from planner.generate.run_spec import ReducedOnce
from planner.generate.write_bundle import reduced_once
from planner.memory.ledger import estimate_memory
from planner.step_time.ledger import estimate_step_time

LLAMA_1B = "meta-llama/Llama-3.2-1B"
PARAMETERS = 1_235_814_400
SHARDED = Layout(data_parallel_shard_size=4, zero_stage=3, gradient_accumulation_steps=8)
FLAG = "--no-sync"


def test_every_rank_holds_the_gradients_of_all_parameters(make_job: JobMaker) -> None:
    job = make_job(LLAMA_1B, gpus=4, recipe={"global_batch_size": 32})
    once = reduced_once(job, SHARDED)
    assert once is not None
    assert once.fits
    more = once.peak_bytes - float(estimate_memory(job, SHARDED).peak_bytes)
    assert more == pytest.approx(4 * PARAMETERS * 3 / 4, rel=0.01)
    assert once.step_seconds < float(estimate_step_time(job, SHARDED).step_seconds)


@pytest.mark.parametrize("layout", [{"zero_stage": 0}, {"gradient_accumulation_steps": 1}])
def test_there_is_nothing_to_wait_for(make_job: JobMaker, layout: dict[str, Any]) -> None:
    """DDP reduces once as it is, and one micro-batch is the last one."""
    sizes = {"data_parallel_shard_size": 4, "zero_stage": 3, "gradient_accumulation_steps": 8}
    assert reduced_once(make_job(LLAMA_1B, gpus=4), Layout(**sizes | layout)) is None


@pytest.mark.parametrize("fits", [True, False])
def test_the_readme_says_what_the_flag_costs_where_it_can_be_used(*, fits: bool) -> None:
    once = ReducedOnce(step_seconds=1.5, peak_bytes=30 * 2**30, fits=fits)
    spec = with_layout(SPEC, zero_stage=3, reduced_once=once)
    readme = " ".join(generate(spec, ["torchrun", "trainer"])["README.md"].split())
    assert bool(re.search(r"1\.50 s, .* 30\.0 GiB per GPU", readme)) is fits


def test_scripts_of_shards_alone_have_the_flag() -> None:
    for stage, has_flag in ((0, False), (2, True), (3, True)):
        files = generate(with_layout(SPEC, zero_stage=stage), ["torchrun"])
        assert (FLAG in script_of(files, "torchrun")) is has_flag
        assert FLAG not in files["README.md"]
