"""What is to be trained, on what, and how: the input of every estimate."""

from dataclasses import dataclass

from planner.cluster import Cluster
from planner.framework import Framework, Optimizer, Precision
from planner.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The training run itself, independent of how it is laid out."""

    sequence_length: int
    global_batch_size: int
    """Sequences per optimizer step, over all ranks."""
    precision: str
    optimizer: str
    attention: str
    """"eager", "sdpa" or "flash"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model, a cluster, a recipe, and the framework that runs them."""

    model: Model
    cluster: Cluster
    recipe: Recipe
    framework: Framework

    @property
    def precision(self) -> Precision:
        """Return how the recipe's precision stores a parameter in this framework."""
        return self.framework.precisions[self.recipe.precision]

    @property
    def optimizer(self) -> Optimizer:
        """Return what the recipe's optimizer needs in this framework."""
        return self.framework.optimizers[self.recipe.optimizer]

    @property
    def usable_bytes(self) -> float:
        """Return the memory of one card that a process can take."""
        gpu = self.cluster.gpu
        return gpu.usable_bytes or gpu.memory_bytes * self.framework.usable_fraction

    @property
    def peak_flops_per_second(self) -> float:
        """Return the card's dense peak in the recipe's matmul dtype (fp32 where it has none)."""
        peaks = self.cluster.gpu.peak_flops
        return peaks.get(self.precision.matmul_dtype, peaks["fp32"])

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens of one optimizer step."""
        return self.recipe.global_batch_size * self.recipe.sequence_length
