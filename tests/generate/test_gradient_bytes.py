"""What the record of Megatron takes where no release is named is what the files that are written for it run."""

from dataclasses import replace

import pytest
from test_generate import SPEC

from planner.catalog import records
from planner.generate.megatron import training_options

REDUCES_IN_16_BIT = "--grad-reduce-in-bf16"


@pytest.mark.parametrize(
    ("precision", "recipe"),
    [("bf16-mixed", None), ("fp8", None), ("fp8", "tensorwise"), ("fp8", "mxfp8")],
)
def test_gradients_are_added_up_as_the_arguments_say(precision: str, recipe: str | None) -> None:
    """Megatron-LM's --bf16 adds gradients up, and reduces them, in fp32 unless it is told: arguments.py at d98e8a6."""
    options = training_options(replace(SPEC, precision=precision, fp8_recipe=recipe))
    record = records.framework("megatron").precisions[precision]
    wanted = 2 if REDUCES_IN_16_BIT in options else 4
    assert (record.gradient_bytes, record.reduce_bytes) == (wanted, wanted)
