import numpy as np
from conftest import JobMaker

from planner.domain.strategy import Layout, Offload, vary
from planner.search.candidate import estimate, estimate_rows, memory_of_stages


def test_the_only_stage_of_a_layout_is_its_own_memory(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4)
    whole = estimate(job, Layout(data_parallel_replicate_size=4))
    assert memory_of_stages(job, whole) == (whole.memory,)
    divided = estimate(job, Layout(pipeline_parallel_size=4, gradient_accumulation_steps=8))
    stages = memory_of_stages(job, divided)
    assert len(stages) == 4
    assert max(float(stage.reserved_bytes) for stage in stages) == divided.memory.reserved_bytes


def test_what_a_host_cannot_hold_does_not_fit(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=8, zero_stage=3, offload=Offload.OPTIMIZER_AND_PARAMETERS)
    sizes = {"global_batch_size": 8, "sequence_length": 512}
    small, large = (
        make_job(model, gpus=8, recipe=sizes, cluster={"instance": "p4de.24xlarge", "gpu": None})
        for model in ("gpt2", "meta-llama/Llama-2-70b-hf")
    )
    assert estimate(small, s).fits
    held = estimate(large, s)
    assert held.memory.reserved_bytes <= large.usable_bytes
    assert not held.fits
    assert not held.is_comfortable
    table = vary(s, micro_batch_size=np.array([1, 1]))
    assert [each.fits for each in estimate_rows(large, table)] == [False, False]
