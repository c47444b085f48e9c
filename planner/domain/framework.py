"""What a training framework spends per parameter, buffer and operation: data, not branches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.domain.model import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How a precision mode stores a parameter and its companions; bytes per parameter."""

    parameter_bytes: float
    """As forward and backward read it, for as long as the step lasts."""
    gradient_bytes: float
    master_bytes: float = 0
    """Of the fp32 copy that the optimizer steps; 0 where it steps the parameters themselves."""
    master_gradient_bytes: float = 0
    """Of the gradient that goes with that copy; 0 where the optimizer reads the other one."""
    passing_gradient_bytes: float = 0
    """Of the gradient that backward writes before it is added to an accumulator of its own."""
    operand_fraction: float = 1
    """Of what 16 bit would keep of a matmul's operand: a half in fp8."""
    gather_bytes: float
    """Of a gathered parameter under ZeRO-3: the compute dtype."""
    reduce_bytes: float
    """Of a gradient on the wire."""
    replicated_numerics: Numerics
    sharded_numerics: Numerics
    """ZeRO-2 and 3 compute in the gathered dtype, where DDP and ZeRO-1 use autocast."""
    matmul_dtype: str
    follows_config: bool = False
    """Parameters may be in the dtype that config.json names, as transformers loads them."""
    copy_bytes: float = 2
    """Of the copy that autocast makes of a matmul weight."""

    @property
    def stepped_bytes(self) -> float:
        """Return the bytes of the parameter that the optimizer steps."""
        return self.master_bytes or self.parameter_bytes

    def with_16_bit_weights(
        self, *, is_matmul_dtype: bool, normalises_in_fp32: bool
    ) -> "Precision":
        """Return the mode as it runs on parameters loaded in 16 bit.

        Autocast has nothing to cast where that is its own dtype, so the hidden states are in 16 bit
        too; torch's layer norms still run in fp32 and hand fp32 on. Where it is the other 16-bit
        dtype every matmul casts, and the sums of both are fp32.

        Args:
            is_matmul_dtype: the weights are in the dtype that autocast computes in.
            normalises_in_fp32: the model has layer norms that autocast runs in fp32.
        """
        loaded = replace(self, parameter_bytes=2, gradient_bytes=2)
        if not is_matmul_dtype or self.replicated_numerics != Numerics.AUTOCAST:
            return loaded
        numerics = Numerics.AUTOCAST if normalises_in_fp32 else Numerics.HALF
        return replace(loaded, copy_bytes=0, replicated_numerics=numerics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What an optimizer keeps per parameter, and what its step needs beyond that."""

    state_tensors: float
    """States of the size and dtype of the parameters it steps."""
    state_bytes: float = 0
    """States of a size of their own, bytes per parameter."""
    outer_state_tensors: float | None = None
    """As `state_tensors`, of what is no matrix of a block; None for the same."""
    is_factored: bool = False
    """A matrix has one state per row and per column in place of one per element."""
    small_elements: float = 0
    """Tensors of fewer elements keep states of `small_state_bytes` per parameter."""
    small_state_bytes: float = 0
    is_paged: bool = False
    """States lie in unified memory outside PyTorch's allocator, and give way to the host's."""
    temporary_fraction: float = 0
    """Temporaries, as a fraction of the parameters it steps."""
    temporary_tensors: float = 0
    """Temporaries of a step that goes tensor by tensor, in sizes of the largest one."""
    passes: float
    """Tensors the size of the parameters that it reads and writes."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Which layouts a framework can run, whatever they would cost."""

    tensor_parallel: bool
    sequence_parallel: bool
    """Between the matmuls that tensor parallelism divides, tokens are divided in their place."""
    pipeline_schedules: Mapping[str, str]
    """What it calls each of `planner.domain.strategy.PipelineSchedule`; none: it has no pipelines."""
    virtual_stages: bool
    """A rank may hold several stages of a pipeline."""
    context_parallel: bool
    """Tokens of one sequence are divided through attention, too: ring attention or Ulysses."""
    expert_parallel: bool
    zero_with_pipeline: int
    """The highest ZeRO stage that goes with pipelines."""
    hybrid_shard: bool
    """Sharding within groups of ranks that replicate each other: HSDP."""
    local_sgd: bool
    replicates_with_tensor_parallel: bool
    """Parameters divided by tensor parallelism may be replicated without ZeRO, as by DDP."""
    replicates_key_values: bool
    """Several tensor-parallel ranks may hold the same key-value head."""
    recompute: tuple[str, ...]
    """Values of a strategy's `recompute` that it has."""
    changes_model: tuple[str, ...]
    """Techniques (tensor, pipeline, context, expert) that take changes of the model's own code."""
    version: str
    """Release, or commit, that was looked at."""
    date: str
    """When that was; year-month-day."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One record of `data/frameworks`, in base units."""

    name: str
    zero_stages: tuple[int, ...]
    capabilities: Capabilities
    parameters_sharded_from: int
    """The ZeRO stage from which a rank holds only its share of the parameters."""
    gradients_sharded_from: int
    scatters_gradients_from: int
    """The ZeRO stage from which gradients are reduce-scattered; below it they are all-reduced."""
    reduces_every_micro_batch_from: int
    """The ZeRO stage from which accumulation reduces every micro-batch, not the last alone."""
    stage_balance: str
    """What pipeline stages get even shares of: "layers", or the "cost" of matmuls, the head's
    among them."""
    gathers_blocks: bool
    """Sharded parameters are gathered a block at a time, one ahead, as FSDP does."""
    gathers_outer_parts: bool
    """Embeddings and head are gathered by themselves, not with the model's root."""
    bucket_elements: float
    """Of the flat buffer that DeepSpeed's stages reduce gradients in; 0 without."""
    live_elements: float
    """Gathered parameters that DeepSpeed's ZeRO-3 holds at most; 0 without."""
    offloads: tuple[str, ...]
    """What it can keep in host memory: "optimizer", "optimizer+parameters"."""
    offloads_gradients: bool
    """Gradients leave the GPU with the optimizer states."""
    pinned_fraction: float
    """What pinning adds to the host memory of what is offloaded."""
    loading: tuple[str, str]
    """Ranks that hold the model whole in host memory while weights are read, without and with
    sharded parameters: "every", "first" or "none"."""
    keeps_gradients_from: int
    """The ZeRO stage from which gradient buffers live through the whole step."""
    keeps_gathered_inputs: bool
    """Under sequence parallelism backward keeps the gathered input of a matmul, not its share."""
    selective_recompute: str
    """What recompute="selective" repeats: "attention" (the scores) or "matmuls" (every other)."""
    fuses_norms: bool
    """Its models' norms are single kernels in 16 bit too, and keep their input alone."""
    spelled_out: tuple[str, ...]
    """What fused kernels would not keep of a block, by name, and its models keep all the same."""
    repeats_key_values: bool
    """Its models repeat keys and values for all heads before fused attention."""
    splits_loss: bool
    """Tensor parallelism divides the logits and their loss by vocabulary."""
    loss_passes: float
    """Bytes per logit that cross HBM around the loss, forward and backward."""
    loss_bytes: tuple[float, float]
    """Per logit around the loss, in its forward with 16-bit logits and in its backward."""
    precisions: Mapping[str, Precision]
    optimizers: Mapping[str, Optimizer]
    context_bytes: float
    nccl_bytes: float
    allocator_fraction: float
    """What the caching allocator reserves above the allocated peak."""
    usable_fraction: float
    """Share of a card's nominal memory that processes can take."""
    bucket_bytes: float
    backward_overlap_fraction: float
    """Share of a gradient reduction or gather that hides where there is enough compute."""
    overlaps_from: int
    """The ZeRO stage from which gradients are reduced during backward, not after it."""
    host_seconds_per_operation: float
    host_seconds_per_micro_batch: float
    """Fetching a batch, and what waits for the loss; the GPU idles meanwhile."""
    sustained_fraction: float
    """Share of a matmul kernel's isolated speed that training keeps."""
    elementwise_hbm_fraction: float
    forward_passes: float
    backward_passes: float
    attention_kernel: str
    """The fused attention kernels it runs: a name in `data/calibration/attention.toml`."""
    host_parameters_per_second: float
    """That the CPUs of a node step where the optimizer is offloaded."""
    offload_overlaps: bool
    """Gradients leave for host memory during backward."""
    tensor_overlap_fraction: float
    """Share of tensor parallelism's exchange in backward that hides behind weight gradients."""
    compiles: bool
    """torch.compile is estimated for it."""
    compiled_passes_fraction: float
    """Share of the passes over memory that remain of elementwise work once it is fused."""
    compiled_operations_fraction: float
    """Share of the operations that the host still launches."""
    start_seconds: float
    """From the launch to a process that has a model's data and a CUDA context."""
    nccl_start_seconds: float
    """Of the first collective among several GPUs."""
    nccl_start_seconds_per_gpu: float
    load_bytes_per_second: float
    """Of weights, from disk to the GPU."""
    context_exchange: str
    """How context-parallel ranks see each other's keys and values: "ring", "gather", "all_to_all"."""
    scatters_transfers: bool
    """Between pipeline stages each tensor-parallel rank sends its share of what all of them hold."""
    spreads: Mapping[str, float]
    """Half-widths of the low-high ranges, by kind."""
    slower_factor: float
    """How much further a step's range reaches up than down."""
    sources: Mapping[str, str]
    """Where each section of the record comes from."""

    def compiled(self) -> "Framework":
        """Return the framework as it runs a model through torch.compile.

        Elementwise work is fused: fewer passes over memory, fewer launches. Memory stays as it is.
        Source: the record's compile section.
        """
        passes = self.compiled_passes_fraction
        launched = self.compiled_operations_fraction
        return replace(
            self,
            forward_passes=passes * self.forward_passes,
            backward_passes=passes * self.backward_passes,
            loss_passes=passes * self.loss_passes,
            host_seconds_per_operation=launched * self.host_seconds_per_operation,
        )
