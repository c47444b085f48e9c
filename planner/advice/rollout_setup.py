"""Where a job of GRPO generates and where it trains: one split of the GPUs, and those that were compared."""

import math
from dataclasses import replace

from planner.core.frozen import frozen
from planner.core.term import Term
from planner.domain.job import Job
from planner.domain.rollout import Rollout, VllmMode
from planner.rollout.engine import Engine
from planner.rollout.generation import Generation
from planner.rollout.lengths import lengths
from planner.rollout.step import GENERATION, GrpoStep
from planner.search.candidate import Candidate


def padded_completion(job: Job) -> int:
    """Return the tokens that TRL pads every completion to: those of the longest of a step, wherever it is trained on.

    Source: TRL 1.16, grpo_trainer.py, _generate_and_score_completions: each process pads its own, and waits for the others.
    """
    asked = job.recipe.rollout
    if asked is None:
        raise TypeError("a job of GRPO says what it generates")
    found = lengths(asked.max_completion_length, asked.mean_completion_length)
    return math.ceil(found.longest_of(job.recipe.global_batch_size))


@frozen
class RolloutSetup:
    """One split of the GPUs, with its training plan."""

    mode: VllmMode
    generation_gpus: int
    training_gpus: int
    job: Job
    """On the GPUs that train."""
    has_own_node: bool
    """Whether nothing trains on the node that generates."""
    unused_gpus: int
    """Of that node: neither train nor generate."""
    candidate: Candidate
    """Of the training."""
    engine: Engine
    generation: Generation
    step: GrpoStep
    held: tuple[Term, ...]
    """What the engine holds of one of its GPUs."""
    resident_bytes: float
    """What training holds of a GPU while it generates; 0 with a server."""
    asleep_bytes: float
    """What the engine holds of a GPU while it trains; 0 with a server."""

    @property
    def rollout(self) -> Rollout:
        """Return the recipe's side of generation, with what was found where nobody says."""
        asked = self.job.recipe.rollout
        if asked is None:
            raise TypeError("a job of GRPO says what it generates")
        return replace(
            asked,
            vllm_mode=self.mode,
            vllm_gpu_memory_utilization=self.engine.share,
            vllm_tensor_parallel_size=self.engine.tensor_parallel_size,
            generation_gpus=self.generation_gpus,
        )

    @property
    def trained_tokens(self) -> int:
        """Return the tokens of a completion as it is trained on."""
        return padded_completion(self.job)

    @property
    def generating_bytes(self) -> float:
        """Return the memory of a GPU while completions are written."""
        return self.resident_bytes + self.engine.given_bytes

    @property
    def most_bytes(self) -> float:
        """Return the memory of a GPU in the fuller phase."""
        return max(self.training_bytes, self.generating_bytes)

    @property
    def all_gpus(self) -> int:
        """Return the GPUs that train or generate."""
        return self.training_gpus + (self.generation_gpus if self.mode == "server" else 0)

    @property
    def nodes(self) -> int:
        """Return the nodes that train or generate."""
        return self.job.cluster.nodes + self.has_own_node

    @property
    def training_bytes(self) -> float:
        """Return the memory of a GPU while it trains."""
        return self.asleep_bytes + float(self.candidate.memory.reserved_bytes)

    @property
    def tokens_per_second(self) -> float:
        """Return the tokens of prompts and completions that a second of the whole step makes."""
        asked = self.rollout
        mean = asked.mean_completion_length or asked.max_completion_length
        tokens = self.job.recipe.global_batch_size * (asked.prompt_tokens + mean)
        return tokens / self.step.step_seconds

    @property
    def idle_seconds(self) -> tuple[float, float]:
        """Return how long the GPUs that train wait for completions, and those that generate for all else."""
        if self.mode != "server":
            return 0.0, 0.0
        generated = self.step.seconds_of(GENERATION)
        return generated, self.step.step_seconds - generated


@frozen
class RolloutPlan:
    """The choice, and the best of each other split."""

    chosen: RolloutSetup
    others: tuple[RolloutSetup, ...]
    """The fastest first."""
    impossible: tuple[str, ...]
    """Splits that do not run, and why."""
