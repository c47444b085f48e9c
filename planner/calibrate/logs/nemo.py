"""NeMo: the progress bar's train_step_timing, and the configuration that it prints."""

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

NEMO = LineFormat(
    name="NeMo",
    mark="train_step_timing in s=",
    step=numbered("global_step="),
    value=numbered("train_step_timing in s="),
    said={"recipe.framework": "megatron"},
    facts=(_CONFIG,),
)
"""NeMo runs on Megatron Core. Source: NVIDIA/NeMo, nemo/utils/exp_manager.py `TimingCallback`."""
