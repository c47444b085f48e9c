"""What PEFT would not train as planned, in the files of PyTorch and Trainer."""

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.parallel.lora import module_names
from planner.targets.base import refusal
from planner.targets.families import family

_INT8 = 8


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why adapters beside frozen weights refuse a layout; nothing where all are trained."""
    lora = job.recipe.lora
    if lora is None:
        return ()
    model_type, is_deepspeed = job.model.model_type, job.framework.name == "deepspeed"
    names = module_names(model_type, lora.targets)
    return (
        refusal(
            not job.model.is_decoder and job.recipe.job != "reward",
            "PEFT's adapters are written beside the head that predicts tokens, or of reward models",
            "recipe.method",
        ),
        refusal(
            any(records.is_expert_to_peft(model_type, name) for name in names),
            "PEFT would train the experts too, which share their linears' names",
            "recipe.lora.targets",
        ),
        *_divided(job, s),
        refusal(s.is_local, "its local SGD would average the frozen weights too"),
        refusal(
            job.recipe.precision == "fp16-mixed" and lora.is_half and not is_deepspeed,
            "a loss scale in fp16 needs adapters in fp32",
            "recipe.precision",
        ),
        refusal(
            np.asarray(s.shards_gradients | is_deepspeed) & (lora.base_bits == _INT8),
            "16-bit and 4-bit weights are sharded, not bitsandbytes' 8-bit ones",
        ),
        refusal(
            np.asarray(s.offloads_parameters & is_deepspeed) & lora.is_quantised,
            "FSDP has 4-bit weights wait in host memory, DeepSpeed has not",
        ),
    )


def _divided(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why adapters are not divided: written are those of like layers, by tensor parallelism alone."""
    lora, known = job.recipe.lora, family(job.model.config)
    is_plain = known is not None and known.is_plain and known.name != "gpt2"
    tensor = np.asarray(s.tensor_parallel_size)
    others = s.pipeline_parallel_size * s.context_parallel_size * s.expert_parallel_size
    return (
        refusal(np.asarray(others) > 1, "PEFT's adapters are divided by tensor parallelism alone"),
        refusal(
            (tensor > 1) & ((lora is not None and lora.is_quantised) or not is_plain),
            "PEFT's adapters are divided beside whole weights of models like Llama, Mistral and Qwen",
        ),
        refusal(
            (tensor > 1) & np.asarray(s.sequence_parallel),
            "beside adapters the sequence is whole between the matrices that tensor parallelism divides",
            "strategy.sequence_parallel",
        ),
        refusal(
            (tensor > 1) & (lora is not None and lora.rank % tensor > 0),
            "{tensor} tensor-parallel ranks do not divide adapters of rank {rank}",
            tensor=s.tensor_parallel_size,
            rank=lora.rank if lora is not None else 0,
        ),
    )
