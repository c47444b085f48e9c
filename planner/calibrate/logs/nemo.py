"""NeMo: the train_step_timing of its bar or its lines, and the configuration that it prints."""

import re

from planner.calibrate.logs.steps import Facts, LineFormat, count, numbered

_CONFIG = Facts(
    pattern=re.compile(r"^\s*(?P<name>[a-z_]+): (?P<value>\d+)$"),
    fields={
        "tensor_model_parallel_size": ("strategy.tensor_parallel_size", count),
        "pipeline_model_parallel_size": ("strategy.pipeline_parallel_size", count),
        "context_parallel_size": ("strategy.context_parallel_size", count),
        "micro_batch_size": ("strategy.micro_batch_size", count),
        "global_batch_size": ("recipe.global_batch_size", count),
        "encoder_seq_length": ("recipe.sequence_length", count),
        "num_nodes": ("cluster.nodes", count),
        "devices": ("cluster.gpus_per_node", count),
    },
)

_OF_STEPS = Facts(
    pattern=re.compile(r"(?P<name>global_batch_size): (?P<value>\d{1,12}) \|"),
    fields={"global_batch_size": ("recipe.global_batch_size", count)},
    is_of_steps=True,
)

NEMO = LineFormat(
    name="NeMo",
    mark="train_step_timing in s",
    step=numbered("global_step(?:=|: )"),
    value=numbered("train_step_timing in s(?:=|: )"),
    said={"recipe.framework": "megatron"},
    facts=(_CONFIG, _OF_STEPS),
    peak=numbered("max_memory_allocated: "),
    reserved=numbered("max_memory_reserved: "),
    memory_unit=1.0,
)
"""NeMo runs on Megatron Core; its first version has a bar, its second a line per step.

Source: NVIDIA/NeMo, nemo/utils/exp_manager.py `TimingCallback`, nemo/lightning/pytorch/callbacks/progress_printer.py.
"""
