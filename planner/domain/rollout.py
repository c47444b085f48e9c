"""What a model writes between two steps that train it: GRPO's side of a recipe."""

from typing import Literal, TypeAlias

from planner.core.frozen import frozen

VllmMode: TypeAlias = Literal["colocate", "server", "none"]
"""On the GPUs that train, on others, or transformers' own generate in place of vLLM."""


@frozen
class Rollout:
    """A step's prompts and completions, and what was said of the engine; names as TRL has them."""

    num_generations: int
    """Completions of each prompt."""
    prompt_tokens: int
    max_completion_length: int
    mean_completion_length: int | None = None
    """None: all completions are as long as they may be."""
    beta: float = 0.0
    """Of the KL term; a reference model is needed where it is not 0."""
    vllm_mode: VllmMode | None = None
    """None where it is to be found out."""
    vllm_gpu_memory_utilization: float | None = None
    """Share of a card that vLLM may take; None where it is to be found out, as the next two."""
    vllm_tensor_parallel_size: int | None = None
    generation_gpus: int | None = None
    """That generate and do not train."""
