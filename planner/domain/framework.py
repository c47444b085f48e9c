"""What a training framework spends per parameter, buffer and operation: data, not branches."""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from planner.core.frozen import frozen
from planner.domain.buckets import Buckets
from planner.domain.capabilities import Capabilities
from planner.domain.compiler import Compile
from planner.domain.fp8 import Fp8Recipe
from planner.domain.optimizer import Optimizer
from planner.domain.precision import Precision
from planner.domain.uncertainty import Uncertainty


@frozen
class Sharding:
    """Who holds what under ZeRO, and in which buffers it travels."""

    parameters_sharded_from: int
    """The ZeRO stage from which a rank holds only its share of the parameters."""
    gradients_sharded_from: int
    scatters_gradients_from: int
    """The ZeRO stage from which gradients are reduce-scattered; below it they are all-reduced."""
    reduces_every_micro_batch_from: int
    """The ZeRO stage from which accumulation reduces every micro-batch, not the last alone."""
    keeps_gradients_from: int
    """The ZeRO stage from which gradient buffers live through the whole step."""
    gathers_blocks: bool
    """Sharded parameters are gathered a block at a time, one ahead, as FSDP does."""
    gathers_outer_parts: bool
    """Embeddings and head are gathered by themselves, not with the model's root."""
    frees_outer_before_loss: bool = False
    """Of a model that is divided, the loss is no part: what was gathered around the blocks is freed before it."""
    live_elements: float
    """Gathered parameters that DeepSpeed's ZeRO-3 holds at most; 0 without."""
    broadcasts_stepped: bool = False
    """Under ZeRO-1 each rank's parameters go to the others by a broadcast of its own, one rank after the other."""
    flat_parameters: bool = False
    """FullyShardedDataParallel (FSDP1) shards: units are flat, and each adapter is a unit of its own."""
    source: str


@frozen
class HostMemory:
    """What lies in a node's memory rather than on its GPUs."""

    offloads: tuple[str, ...]
    """What it can keep there: "optimizer", "optimizer+parameters"."""
    offloads_gradients: bool
    """Gradients leave the GPU with the optimizer states."""
    pinned_fraction: float
    """What pinning adds to the host memory of what is offloaded."""
    loading: tuple[Literal["every", "first", "none"], Literal["every", "first", "none"]]
    """Ranks that hold the model whole while weights are read, without and with sharded parameters."""
    source: str


@frozen
class Activations:
    """What its models keep for backward."""

    keeps_gathered_inputs: bool
    """Under sequence parallelism backward keeps the gathered input of a matmul, not its share."""
    selective_recompute: Literal["attention", "matmuls"]
    """What recompute="selective" repeats: the scores of attention, or every other matmul."""
    recompute_stops_early: bool
    """Recompute ends with the last tensor that backward reads, not with the block."""
    fuses_norms: bool
    """Norms are single kernels in 16 bit too, and keep their input alone."""
    spelled_out: tuple[str, ...]
    """What fused kernels would not keep of a block, by name, and its models keep all the same."""
    repeats_key_values: bool
    """Keys and values are repeated for all heads before fused attention."""
    splits_loss: bool
    """Tensor parallelism divides the logits and their loss by vocabulary."""
    loss_bytes_per_logit: tuple[float, float]
    """Around the loss, in its forward with 16-bit logits and in its backward."""
    split_loss_bytes_per_logit: tuple[float, float] = (0.0, 0.0)
    """The same where they are divided by vocabulary, if that is another computation; 0 where it is not."""
    source: str


@frozen
class Loss:
    """A cross-entropy that holds fewer bytes of the logits than the standard one."""

    chunk_tokens: int = 0
    """Tokens whose logits exist at once; 0 where a number of chunks decides."""
    chunk_columns: int = 0
    """Words of the vocabulary whose logits exist at once; 0 for all of it."""
    num_chunks: int = 0
    """Pieces that a micro-batch is cut into; 0: so many that a piece's logits take no more than all hidden states."""
    loss_bytes_per_logit: tuple[float, float]
    """Of a logit that exists: in its loss's forward with 16-bit logits, and in its backward."""
    in_compute_dtype: bool = False
    """The logits alone are there, no copy in fp32."""
    keeps_gradients: bool = False
    """Forward computes the gradients of the hidden states and of the head, and keeps them."""
    sums_in_fp32: bool = False
    """Backward adds the gradients of the hidden states and of the head up in fp32, whole."""
    repeats_head: bool = False
    """Backward multiplies by the head's weights again."""
    moved_bytes_per_logit: float
    """That cross HBM, forward and backward."""
    fuses_norms: bool = False
    """Comes with norms and gates that keep their input alone."""
    source: str


@frozen
class Device:
    """What a process takes of a GPU beside the ledger."""

    context_bytes: float
    nccl_bytes: float
    """Of each communicator."""
    allocator_fraction: float
    """What the caching allocator reserves above the allocated peak, where there is room."""
    least_fraction: float
    """What it cannot give back of that."""
    usable_fraction: float
    """Share of a card's nominal memory that processes can take."""
    source: str


@frozen
class Overlap:
    """How much communication hides behind backward."""

    reduces_gradients_from: int
    """The ZeRO stage from which gradients are reduced during backward, not after it; 4 where none does."""
    backward_fraction: float
    """Share of a gradient reduction or gather that hides where there is enough compute."""
    tensor_fraction: float
    """Share of tensor parallelism's exchange in backward that hides behind weight gradients."""
    tensor_overlapped_fraction: float
    """Share of each of them, in forward too, that hides where a recipe has it travel in pieces beside matmuls."""
    source: str
    hides_activation_copies: bool = True
    """Whether activations go to host memory, and come back, beside compute: on a stream of their own."""
    spreads_activation_copies: bool = False
    """Whether blocks that stay have their time for it too, not only the one that follows."""


@frozen
class Host:
    """What Python and the CPU take while the GPU may idle."""

    operation_seconds: float
    """Launching one operation that the GPU executes."""
    launch_seconds: float
    """Launching the smallest operation, on the hosts that `operation_seconds` was set on."""
    sharded_operations: float
    """More that it launches for a block whose parameters are sharded: hooks, views, DTensors."""
    divided_linear_seconds: float
    """Dispatching a linear whose matrix is a DTensor, forward and backward, beside a plain one."""
    divided_norm_seconds: float
    """The same of a norm between the linears, of whose sequence each rank has a part."""
    micro_batch_seconds: float
    """Fetching a batch, and what waits for the loss; the GPU idles meanwhile."""
    layer_seconds: float
    """Of a block, forward and backward, in which the GPU idles whatever the micro-batch."""
    exchange_seconds_per_rank: float
    """What a tensor-parallel rank waits at each exchange for every other one, beside a pipeline between nodes."""
    crossing_seconds_per_rank: float
    """Of a gather or scatter of tensor parallelism that leaves a node, for every other rank of its ring."""
    graphed_fraction: float
    """Share of the launches that remain where layers are launched whole, as CUDA graphs."""
    sharpness: float
    """How sharply launching gives way to the GPU's own time where the two are close."""
    source: str


@frozen
class Matmul:
    """What training keeps of a matmul kernel's speed."""

    sustained_fraction: float
    """Share of the isolated speed: the rest goes to clocks, to NCCL and between kernels."""
    pads_vocabulary: bool
    """Whether the head is made as wide as kernels like; else as wide as the config says."""
    source: str


@frozen
class MemoryBound:
    """What elementwise work moves through HBM, and how fast."""

    hbm_fraction: float
    """Share of the nominal bandwidth that elementwise kernels reach."""
    forward_passes: float
    """How often each kept byte crosses HBM."""
    backward_passes: float
    counted_fraction: float = 0.0
    """Share of it that kernels reach on average whose traffic is counted one by one; 0: passes stand for them."""
    loss_bytes_per_logit: float
    """That cross HBM around the loss, forward and backward."""
    copies_exchanged: bool
    """Whether what sequence parallelism gathers and scatters is copied too: along what is not its outermost dimension."""
    source: str


@frozen
class Experts:
    """How the routed experts of a layer are computed."""

    grouped_from: float
    """The least compute capability whose kernels multiply all experts of a rank at once; below, one by one."""
    operations: float
    """Launched in forward of a layer to route tokens, sort them and bring them back."""
    passes: float
    """How often each token on its way to an expert is written and read in forward, and in backward."""
    linears_of: tuple[str, ...]
    """Model types whose experts are linears of their own; those of all others are one tensor for a layer."""
    biased_inner_bytes: tuple[float, float] = (0.0, 0.0)
    """That experts with biases move for each channel of a gate or up-projection, in forward and in backward."""
    biased_output_bytes: tuple[float, float] = (0.0, 0.0)
    """The same for each channel that such an expert puts out."""
    overlapped_fraction: float
    """Share of the experts' exchange that hides where a recipe overlaps it."""
    whole_graphs_from: float
    """The least compute capability whose recipes capture the whole step in one CUDA graph, where each token goes once to a node."""
    whole_graphs_fraction: float
    """Share of an overlapped exchange that hides there."""
    source: str


@frozen
class Attention:
    """Which attention it runs."""

    kernel: str
    """The fused kernels that "sdpa" stands for: a name in `data/calibration/attention.toml`."""
    flash_kernel: str
    """Those that "flash" stands for."""
    softmax_multiple: int
    """Micro-batch x heads of a rank that its fused softmax of materialised scores asks a multiple of; 0: it has none."""
    source: str


@frozen
class Offload:
    """How fast the host steps what is offloaded."""

    parameters_per_second: float
    """That the CPUs of a node step where the optimizer is offloaded."""
    fused_parameters_per_second: float
    """That they step, and clip, with the optimizers that take one kernel there."""
    fused: tuple[str, ...]
    """Those optimizers."""
    overlaps_from: int
    """The ZeRO stage from which gradients leave for host memory beside backward; below, backward waits."""
    leaving_bytes: float
    """Of each gradient that leaves to be stepped; 0: as it is kept."""
    adds_on_gpu: bool
    """Each micro-batch's gradients are added on the GPU to those before, which come from host memory and go back."""
    stepped_bytes: float
    """That stepping a parameter, clipping and rounding it reads and writes in host memory."""
    source: str
    added_parameters_per_second: float = math.inf
    """Whose gradients a rank adds, on the CPU, to those of the micro-batches before."""


@frozen
class Start:
    """What comes before the first step."""

    process_seconds: float
    """From the launch to a process that has a model's data and a CUDA context."""
    nccl_seconds: float
    """Of the first collective among several GPUs."""
    nccl_seconds_per_gpu: float
    load_bytes_per_second: float
    """Of weights, from disk to the GPU."""
    spread: float
    """How far all of it may be off to each side, as a fraction."""
    source: str


@frozen
class Pipeline:
    """How pipelines are cut, and what goes between their stages."""

    stage_balance: Literal["layers", "cost"]
    """What stages get even shares of: layers, or the cost of matmuls, the head's among them."""
    outer_blocks: int
    """What is dealt to stages beside the layers, as blocks of their own."""
    scatters_transfers: bool
    """Each tensor-parallel rank sends its share of what all of them hold."""
    keeps_buffers: bool = False
    """What is received has a buffer for every micro-batch, and what the last stage returns stays until its backward."""
    source: str


@frozen
class ContextParallel:
    """How the ranks that divide a sequence attend to all of it."""

    exchange: Literal["ring", "gather", "all_to_all"]
    """How they see each other's keys and values."""
    source: str


@frozen
class Framework:
    """One record of `data/frameworks`, in base units; a section of the file is a field here."""

    name: str
    zero_stages: tuple[int, ...]
    usual_optimizer: str
    """What is stepped where nobody says."""
    source: str
    release: str = ""
    """Of `data/frameworks/releases`, where it is not as its own record has it."""
    dummy_gradients_from: float = math.inf
    """The least compute capability on which Transformer Engine keeps a tensor of each weight's shape for autograd."""
    usual_loss: str = "standard"
    """How much of the logits exists at once in a run of which nobody says."""
    fuses_loss_from_tokens: int = 0
    """Tokens that a rank has of each sequence from which it is "fused" there all the same; 0: never."""
    offloads_activations_over_nvlink: bool = False
    """Whether runs that shard parameters keep activations in host memory, as far as it takes, where NVLink leads there."""
    usual_fp8_recipe: str = ""
    """How it scales what it rounds to fp8 where nobody says."""
    fp8_recipes: Mapping[str, Fp8Recipe] = field(default_factory=dict)
    """How it can, by name; empty where it has no fp8."""
    capabilities: Capabilities
    sharding: Sharding
    host_memory: HostMemory
    activations: Activations
    losses: Mapping[str, Loss]
    """By the recipe's name; "standard" is in `activations` and `memory_bound`."""
    precisions: Mapping[str, Precision]
    optimizers: Mapping[str, Optimizer]
    device: Device
    overlap: Overlap
    buckets: Buckets
    host: Host
    matmul: Matmul
    memory_bound: MemoryBound
    attention: Attention
    experts: Experts
    uncertainty: Uncertainty
    offload: Offload
    compile: Compile
    start: Start
    pipeline: Pipeline
    context_parallel: ContextParallel

    def compiled(self) -> "Framework":
        """Return the framework as it runs a model through torch.compile.

        Elementwise work is fused: fewer passes over memory, fewer launches. DTensors are dispatched when it is
        traced. The loss is `planner.parallel.compiled`'s, and what stays for backward that of each `Kept`.
        Source: the record's compile section.
        """
        passes, launched = self.compile.passes_fraction, self.compile.operations_fraction
        moved = self.memory_bound
        each = passes * moved.forward_passes, passes * moved.backward_passes
        if moved.counted_fraction:
            each = self.compile.passes
        return replace(
            self,
            memory_bound=replace(
                moved,
                forward_passes=each[0],
                backward_passes=each[1],
                counted_fraction=0.0,
            ),
            host=replace(
                self.host,
                operation_seconds=launched * self.host.operation_seconds,
                divided_linear_seconds=0.0,
                divided_norm_seconds=0.0,
            ),
        )
