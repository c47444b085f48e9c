"""What a request can say of what LoRA keeps for backward: where it drops, and a gate's input in fp8."""

from typing import Any

import pytest
from conftest import JobMaker

from planner.core.errors import InvalidInputError
from planner.core.units import KIB
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Layout
from planner.parallel.activations import kept_per_token

ONE = Layout(micro_batch_size=1)


def _kept(job: Job, numerics: Numerics) -> float:
    return float(kept_per_token(job, ONE, job.model.blocks[0], numerics))


def _llama(make_job: JobMaker, **lora: Any) -> float:
    wish = {"rank": 8, "targets": ["q_proj", "k_proj", "v_proj"], "dtype": "16-bit", **lora}
    recipe = {"method": "lora", "precision": "bf16", "framework": "torch", "lora": wish}
    job = make_job("meta-llama/Meta-Llama-3-8B", gpu="h100", recipe=recipe)
    return _kept(job, Numerics.HALF)


def test_dropout_after_the_adapter_keeps_a_mask_of_its_output_alone(make_job: JobMaker) -> None:
    none = _llama(make_job)
    before = _llama(make_job, dropout=0.1)
    after = _llama(make_job, dropout=0.1, dropout_position="post")
    # Each of three adapters drops a copy of 4,096 channels of its own, where they shared one; and masks it.
    assert before - none == 3 * 4096 * (2 + 1) - 2 * 4096
    assert after - none == 4096 + 2 * 1024


def _mlperf(make_job: JobMaker, **recipe: Any) -> Job:
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    wish = {
        "framework": "megatron",
        "precision": "fp8",
        "method": "lora",
        "attention": "flash",
        "sequence_length": 8192,
        "lora": {"rank": 16, "targets": targets},
        **recipe,
    }
    return make_job("meta-llama/Llama-2-70b-hf", gpus=8, gpu="b200", recipe=wish)


def test_mlperfs_blocks_of_llama_2_70b_keep_140_kib_with_swiglus_input_in_fp8(
    make_job: JobMaker,
) -> None:
    """NVIDIA's runs of Llama-2-70B LoRA on B200 store it so (activation_func_fp8_input_store), and fit their cards."""
    whole, stored = (
        _kept(_mlperf(make_job, fp8_activation_input=each), Numerics.FUSED) / KIB
        for each in (False, True)
    )
    assert (round(whole), round(stored)) == (196, 140)


@pytest.mark.parametrize(
    ("model", "framework"), [("meta-llama/Llama-2-7b-hf", "torch"), ("gpt2", "megatron")]
)
def test_what_keeps_no_gate_in_fp8_is_refused(
    make_job: JobMaker, model: str, framework: str
) -> None:
    with pytest.raises(InvalidInputError, match="only megatron keeps"):
        make_job(model, gpus=1, recipe={"framework": framework, "fp8_activation_input": True})
