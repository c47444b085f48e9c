from conftest import JobMaker

from planner.domain.strategy import Layout
from planner.search.candidate import estimate, memory_of_stages


def test_the_only_stage_of_a_layout_is_its_own_memory(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4)
    whole = estimate(job, Layout(data_parallel_replicate_size=4))
    assert memory_of_stages(job, whole) == (whole.memory,)
    divided = estimate(job, Layout(pipeline_parallel_size=4, gradient_accumulation_steps=8))
    stages = memory_of_stages(job, divided)
    assert len(stages) == 4
    assert max(float(stage.reserved_bytes) for stage in stages) == divided.memory.reserved_bytes
