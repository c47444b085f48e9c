from typing import Any

import pytest
from conftest import JobMaker

from planner.catalog import records
from planner.domain.strategy import Layout
from planner.memory import optimizers
from planner.memory.ledger import estimate_memory
from planner.parallel.adapters import Tensor
from planner.parallel.partition import stage

RECORDS = records.framework("torch").optimizers


@pytest.mark.parametrize(
    ("optimizer", "tensor", "size"),
    [
        ("adamw", Tensor(rows=64, columns=64), 8 * 4096),
        ("adamw-8bit", Tensor(rows=64, columns=64), (2 + 2 * 4 / 256) * 4096),
        ("adamw-8bit", Tensor(rows=64, columns=63), 8 * 64 * 63),
        ("adafactor", Tensor(rows=64, columns=32), 4 * (64 + 32)),
        ("adafactor", Tensor(rows=64, columns=1), 4 * 64),
        ("muon", Tensor(rows=64, columns=32), 4 * 2048),
        ("muon", Tensor(rows=64, columns=32, is_inner=False), 8 * 2048),
    ],
)
def test_a_tensor_has_the_states_of_its_kind(optimizer: str, tensor: Tensor, size: float) -> None:
    assert optimizers.tensor_states(RECORDS[optimizer], tensor, 4) == size


def states(make_job: JobMaker, model: str, s: Layout, **recipe: Any) -> float:
    job = make_job(model, gpus=2, recipe={"precision": "fp32", "global_batch_size": 8, **recipe})
    found = {t.name: float(t.amount) for t in estimate_memory(job, s).terms}
    return found["optimizer_states"]


def test_small_adapters_stay_in_fp32(make_job: JobMaker) -> None:
    # Rank 2: A has 2 x 768 elements and B 2 x 2,304 = 4,608, in each of 12 blocks.
    lora = {"method": "lora", "lora": {"rank": 2}}
    s = Layout(data_parallel_replicate_size=2)
    found = states(make_job, "gpt2", s, optimizer="adamw-8bit", **lora)
    assert found == pytest.approx(12 * (8 * 2 * 768 + (2 + 2 * 4 / 256) * 2 * 2304))


def test_experts_are_factored_one_by_one(make_job: JobMaker) -> None:
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=1, recipe={"optimizer": "adafactor"})
    s = Layout()
    each = optimizers.state_bytes_per_parameter(job, s, stage(job, s, 0))
    experts = 8 * 3 * (4096 + 14336)
    attention = 2 * (4096 + 4096) + 2 * (1024 + 4096)
    router, norms = 8 + 4096, 2 * 4096
    expected = 32 * (experts + attention + router + norms) + 2 * (32000 + 4096) + 4096
    assert float(each) * job.model.parameters == pytest.approx(4 * expected)


def test_sharding_divides_the_states_of_any_optimizer(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=2, zero_stage=1)
    whole = Layout(data_parallel_replicate_size=2)
    one = states(make_job, "gpt2", whole, optimizer="muon")
    assert states(make_job, "gpt2", s, optimizer="muon") == pytest.approx(one / 2)
