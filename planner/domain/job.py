"""What is to be trained, on what, and how: the input of every estimate."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, TypeAlias

from planner.core.frozen import frozen
from planner.domain.cluster import Cluster
from planner.domain.fp8 import Fp8Recipe
from planner.domain.framework import Framework, Loss
from planner.domain.model import Model
from planner.domain.optimizer import Optimizer
from planner.domain.precision import Precision
from planner.domain.rollout import Rollout

JobName: TypeAlias = Literal["finetune", "pretrain", "dpo", "orpo", "simpo", "reward", "grpo"]
ReferenceModel: TypeAlias = Literal["loaded", "shared", "precomputed", "none"]
"""Weights of its own, the policy's without its adapters, or what was computed before the run."""
LOG_PROBABILITIES = "log-probabilities"
"""Of `Framework.losses`: what trainers of preferences have in place of a cross-entropy in chunks."""
COMPARES_TEXTS = ("dpo", "orpo", "simpo")
TILED = ("dpo", "grpo")
"""Jobs whose trainers score answers piece by piece."""
OF_PAIRS = (*COMPARES_TEXTS, "reward")
"""Jobs whose samples are a chosen answer and a rejected one, which run as two sequences."""
POST_TRAINING = (*OF_PAIRS, "grpo")
"""Jobs that TRL has trainers of their own for."""


def sequences_of_a_sample(job: str | None) -> int:
    """Return how many sequences a sample of a job is: two where it is a pair of answers."""
    return 2 if job in OF_PAIRS else 1


HALF_BITS, HALF_BYTES = 16, 2
"""Of a number in fp16 or bf16."""
_FP32_BITS = 32


@frozen
class Lora:
    """Adapters of low rank beside frozen weights: only they are trained."""

    rank: int
    alpha: float
    dropout: float
    drops_output: bool = False
    """Dropout comes after the adapter, not before it."""
    targets: tuple[str, ...]
    """The model's linears that have an adapter."""
    base_bits: int
    """Of a frozen weight of the blocks' linears: 32, 16, 8 (LLM.int8) or 4 (NF4)."""
    has_double_quantization: bool = False
    """The constants of NF4 blocks are quantised too."""
    quantises_experts: bool = False
    """Experts are linears like any other, not one tensor for all of a layer."""
    adapter_bytes: float
    """Of an adapter's parameter: 4 where PEFT casts them to fp32."""

    @property
    def is_quantised(self) -> bool:
        """Return whether the frozen weights are held in 8 or 4 bit."""
        return self.base_bits < HALF_BITS

    @property
    def is_half(self) -> bool:
        """Return whether the adapters are in 16 bit."""
        return self.adapter_bytes <= HALF_BYTES


@frozen
class Recipe:
    """The training run itself, independent of how it is laid out."""

    sequence_length: int
    target_length: int | None = None
    """Tokens of each target, of an encoder-decoder; None for as many as the sequence has."""
    global_batch_size: int
    """Samples per optimizer step, over all ranks: sequences, or pairs of them."""
    job: JobName | None = None
    """None where nobody says, and its batch or its tokens may be those of either."""
    reference_model: ReferenceModel | None = None
    """Where the log-probabilities that preferences are compared with come from; None where the job compares none."""
    rollout: Rollout | None = None
    """What the model writes in a step, of GRPO."""
    precision: str
    fp8_recipe: str | None = None
    """How operands in fp8 are scaled; None where the framework decides, or where there are none."""
    optimizer: str
    attention: str
    """"eager", "sdpa" or "flash"."""
    loss: str = "standard"
    """How much of the logits exists at once: all of them in "standard"; else a key of the framework's losses."""
    weights_dtype: str = "fp32"
    """Of the parameters in mixed precision: "fp32", or "config" for what config.json names."""
    fp8_activation_input: bool = False
    """What a gated activation reads is kept for backward in fp8."""
    lora: Lora | None = None
    """The adapters, where all other weights are frozen; None trains everything."""
    compile: bool = False
    """The model runs through torch.compile."""
    tensor_parallel_overlap: bool | None = None
    """Exchanges of tensor parallelism travel in pieces beside matmuls; None where the framework decides."""
    expert_dispatch: str = "all-to-all"
    """A token goes once to each of its experts, or "once-per-node" that has some of them."""
    expert_overlap: bool = False
    """The experts' exchange travels behind other micro-batches' compute."""
    optimizer_in_backward: bool = False
    """Each parameter is stepped, and its gradient freed, as backward reaches it."""
    cuda_graphs: bool = False
    """Layers are launched whole."""
    padding_share: float = 0.0
    """Of the tokens of a step, those that are padding: computed, and nothing is learned of them."""
    training_tokens: int = 0
    """Of the whole run, without padding; 0 where it was not said."""

    def with_adapters(self, lora: Lora) -> Self:
        """Return the recipe with adapters, whose reference is the policy without them."""
        is_loaded = self.reference_model == "loaded"
        return replace(
            self, lora=lora, reference_model="shared" if is_loaded else self.reference_model
        )

    @property
    def sequences_per_sample(self) -> int:
        """Return how many sequences a sample is: of a pair both, one behind the other in the same forward."""
        return sequences_of_a_sample(self.job)

    @property
    def compares_log_probabilities(self) -> bool:
        """Return whether each answer's tokens are scored in place of a cross-entropy."""
        return self.job in {*COMPARES_TEXTS, *TILED}

    @property
    def runs_reference(self) -> bool:
        """Return whether each micro-batch runs forward through a reference too."""
        return self.reference_model in {"loaded", "shared"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A model, a cluster, a recipe, and the framework that runs them."""

    model: Model
    cluster: Cluster
    recipe: Recipe
    framework: Framework
    pipeline_layout: tuple[int, ...] = ()
    """Blocks of each pipeline stage in turn, chunk by chunk, where a request deals them; else the framework does."""

    @cached_property
    def precision(self) -> Precision:
        """Return how the recipe's precision stores a trained parameter in this framework."""
        precision, lora = self.framework.precisions[self.recipe.precision], self.recipe.lora
        if lora is not None:
            return _beside_frozen(precision, lora, normalises_in_fp32=self.model.normalises_in_fp32)
        if not self.is_in_config_dtype:
            return precision
        return precision.with_16_bit_weights(
            is_matmul_dtype=self.model.weights_dtype == precision.matmul_dtype,
            normalises_in_fp32=self.model.normalises_in_fp32,
        )

    @property
    def is_in_config_dtype(self) -> bool:
        """Return whether mixed precision runs on parameters in 16 bit, as config.json says."""
        precision = self.framework.precisions[self.recipe.precision]
        wants_config = self.recipe.weights_dtype == "config"
        return wants_config and precision.follows_config and self.model.weights_dtype != "fp32"

    @property
    def optimizer(self) -> Optimizer:
        """Return what the recipe's optimizer needs in this framework."""
        return self.framework.optimizers[self.recipe.optimizer]

    @property
    def loss(self) -> Loss | None:
        """Return how the framework computes a loss that does not hold all logits; None: the standard one."""
        is_scored = self.recipe.compares_log_probabilities and self.recipe.loss != "standard"
        return self.framework.losses.get(LOG_PROBABILITIES if is_scored else self.recipe.loss)

    @cached_property
    def fp8_recipe(self) -> Fp8Recipe | None:
        """Return how the operands of matmuls in fp8 are scaled; None where they are not in fp8."""
        if self.precision.matmul_dtype != "fp8":
            return None
        framework = self.framework
        return framework.fp8_recipes[self.recipe.fp8_recipe or framework.usual_fp8_recipe]

    @property
    def is_fused(self) -> bool:
        """Return whether backward computes again what lies between matmuls, as torch.compile has it; beside frozen weights it is left out."""
        is_compiled = self.recipe.compile and self.framework.compile.keeps_operands_alone
        return is_compiled and self.recipe.lora is None

    @property
    def usable_bytes(self) -> float:
        """Return the memory of one card that a process can take, in whole bytes as answers have it."""
        gpu = self.cluster.gpu
        usable = gpu.usable_bytes or gpu.memory_bytes * self.framework.device.usable_fraction
        return float(round(usable))

    @property
    def peak_flops_per_second(self) -> float:
        """Return the card's highest dense peak in the dtypes that the recipe multiplies in.

        A dtype that the card lacks runs as fp32; a recipe in fp8 multiplies attention and the head in
        bf16, which a card without fp8 may run many times as fast.
        """
        peaks = self.cluster.gpu.peak_flops
        dtypes = (self.precision.matmul_dtype, self.precision.wide_matmul_dtype)
        return max(peaks.get(dtype, peaks["fp32"]) for dtype in dtypes)

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens of one optimizer step, padding among them."""
        sequences = self.recipe.global_batch_size * self.recipe.sequences_per_sample
        return sequences * self.recipe.sequence_length

    @property
    def sample(self) -> str:
        """Return what a sample of a step is called: "sequence", "image", "pair" or "completion"."""
        return sample_of(self.recipe.job, reads_images=self.model.reads_images)

    @property
    def text_tokens_per_step(self) -> float:
        """Return the tokens of one optimizer step that are no padding."""
        return self.tokens_per_step * (1.0 - self.recipe.padding_share)


def sample_of(job: str | None, *, reads_images: bool) -> str:
    """Return what a sample of a job is called."""
    if job in POST_TRAINING:
        return "completion" if job == "grpo" else "pair"
    return "image" if reads_images else "sequence"


def trained_for(job: str | None, task: str) -> str:
    """Return what published runs of a kind trained for: their job after training, else the model's task."""
    if job in COMPARES_TEXTS:
        return "dpo"
    return str(job) if job in POST_TRAINING else task


def _beside_frozen(precision: Precision, lora: Lora, *, normalises_in_fp32: bool) -> Precision:
    if lora.base_bits < _FP32_BITS and precision.follows_config:
        precision = precision.with_16_bit_weights(
            is_matmul_dtype=True, normalises_in_fp32=normalises_in_fp32
        )
    if precision.master_bytes:
        return precision
    size = lora.adapter_bytes
    reduced = max(size, precision.reduce_bytes)
    return replace(precision, parameter_bytes=size, gradient_bytes=size, reduce_bytes=reduced)
