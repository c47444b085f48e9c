"""Kernels of one operation each, counted one by one: encoders and vision take what was published."""

from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.kept import Numerics
from planner.domain.strategy import Layout
from planner.models.architectures import work
from planner.step_time import elementwise
from planner.step_time.ledger import estimate_step_time

BERT = {"model_type": "bert", "architectures": ["BertForTokenClassification"]}
VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
APEX = {"framework": "deepspeed", "precision": "fp16-mixed", "optimizer": "adamw"}
TIMM = {"framework": "torch", "precision": "fp16-mixed", "optimizer": "sgd-momentum"}


@pytest.mark.parametrize(
    ("model", "recipe", "micro_batch", "seconds"),
    [
        (BERT, {**APEX, "sequence_length": 384}, 96, 0.558),
        ({**VIT, "image_size": 384}, TIMM, 32, 0.329),
    ],
)
def test_published_steps_of_an_rtx_3090(
    make_job: JobMaker,
    model: dict[str, Any],
    recipe: dict[str, Any],
    micro_batch: int,
    seconds: float,
) -> None:
    """BERT-base on SQuAD (lambdal/deeplearning-benchmark), ViT-B/16 of 384 pixels (timm's benchmark of PyTorch 1.12)."""
    whole = {**recipe, "attention": "eager", "global_batch_size": micro_batch}
    job = make_job(model, gpus=1, gpu="rtx-3090", recipe=whole)
    found = estimate_step_time(job, Layout(micro_batch_size=micro_batch))
    assert found.step_seconds == pytest.approx(seconds, rel=0.1)


def test_a_spelled_out_operation_moves_many_times_what_one_kernel_does() -> None:
    for numerics in (Numerics.FP32, Numerics.AUTOCAST, Numerics.HALF):
        by_tanh, exact = (
            sum(each.in_numerics(numerics)) for each in (work.gelu_by_tanh(1), work.kernel(1))
        )
        assert by_tanh > 9 * exact
    assert sum(work.rms_norm(1).in_numerics(Numerics.FUSED)) < sum(
        work.rms_norm(1).in_numerics(Numerics.HALF)
    )


def test_tensor_parallelism_divides_what_lies_between_its_matmuls(make_job: JobMaker) -> None:
    job = make_job("gpt2", recipe={"framework": "torch"})
    part = job.model.blocks[0]
    one, two = (
        sum(elementwise.moved_per_token(job, Layout(tensor_parallel_size=t), part, Numerics.HALF))
        for t in (1, 2)
    )
    assert one / 2 < two < one
