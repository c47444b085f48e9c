"""What the launch files of a plan need, as plain values."""

from collections.abc import Mapping
from dataclasses import field

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.job import HALF_BITS, sequences_of_a_sample
from planner.domain.rollout import Rollout
from planner.domain.strategy import Layout

README_STEPS = 1000
"""Of the commands that READMEs show, where nobody says how long a run is."""
TRIAL_STEPS = 100
"""Of a program that is started without a word, likewise."""


@frozen
class Adapters:
    """Adapters of low rank beside frozen weights, in PEFT's words."""

    rank: int
    alpha: float
    dropout: float
    modules: tuple[str, ...]
    """Ends of the paths of the linears that have an adapter."""
    base_bits: int
    """Of a frozen weight of the blocks' linears: 32, 16, 8 (LLM.int8) or 4 (NF4)."""
    has_double_quantization: bool = False
    is_fp32: bool = True
    """Whether the adapters are in fp32, whatever the frozen weights are in."""

    @property
    def is_quantised(self) -> bool:
        """Return whether the frozen weights are held in 8 or 4 bit."""
        return self.base_bits < HALF_BITS


@frozen
class ReducedOnce:
    """What is expected where gradients of shards are reduced once a step, not after each micro-batch."""

    step_seconds: float
    peak_bytes: int
    fits: bool


@frozen
class RunSpec(Layout):
    """Everything the files need: the layout, and what else is known of the run, as plain values.

    data_parallel_replicate_size x data_parallel_shard_size x tensor_parallel_size
    x pipeline_parallel_size x context_parallel_size = nodes x gpus_per_node.
    """

    model: str
    """Hub id, a folder by its whole path, or the name the user gave; untrusted text."""
    revision: str
    """Branch, tag or commit of the Hub's repository; untrusted text."""
    model_config: Mapping[str, object]
    """The model's config.json."""
    parameters: int = 0
    """Of the model, the frozen ones too."""
    is_pretrained: bool
    """Whether `model` has weights to load; else training starts from random ones."""
    task: str
    """`causal-lm`, `masked-lm`, `seq2seq-lm`, `sequence-classification`, `token-classification`,
    `image-classification` or `automatic-speech-recognition`."""
    job: str | None = None
    """As `planner.domain.job.Recipe.job`; of jobs on pairs the batches count those."""
    reference_model: str | None = None
    """`loaded`, `shared` or `precomputed`; None where nothing is compared with one."""
    rollout: Rollout | None = None
    """What GRPO generates in a step and where, all of it said; the layout is that of the GPUs that train."""
    generates_on_own_node: bool = False
    completions_at_once: int = 0
    """Of one engine, as planned."""
    has_experts: bool = False
    framework: str = "torch"
    """What the estimates hold for: a name of data/frameworks."""
    nodes: int
    gpus_per_node: int
    cuda_visible_devices: str
    """The order in which a node's GPUs become ranks; "" for that of their indices."""
    layers_per_stage: tuple[int, ...] = ()
    """Transformer layers of each pipeline rank, all of its chunks together."""
    pipeline_layout: tuple[int, ...] = ()
    """Of the stages in turn, chunk by chunk, their layers as the request deals them; else as the framework does."""
    global_batch_size: int
    """Sequences per optimizer step, over all GPUs."""
    run_steps: int = 0
    """Optimizer steps of the whole run; 0 where nobody says how long it is."""
    sequence_length: int
    target_length: int = 0
    """Tokens of a target, of an encoder-decoder; 0 for as many as the sequence has."""
    padding_share: float = 0.0
    """Of the tokens of a step, those that are padding."""
    precision: str
    """`fp32`, `tf32`, `fp16-mixed`, `bf16-mixed`, `bf16` or `fp8`."""
    fp8_recipe: str | None = None
    """`tensorwise`, `blockwise` or `mxfp8`; None for the framework's own scales, and where nothing is in fp8."""
    config_dtype: str = ""
    """torch's name of the dtype that weights are loaded in, where it is the config's; "" for the usual one."""
    vendor: str = "nvidia"
    """Of the GPUs: a name of data/vendors."""
    compute_capability: str = ""
    """Of the GPUs, such as 9.0; "" where it is not known."""
    stored_in: str = ""
    """How the weights to load are stored where that is quantised, such as `mxfp4`; untrusted text."""
    adapters: Adapters | None = None
    """What is trained beside frozen weights; None where all of them are trained."""
    attention: str
    """`eager`, `sdpa` or `flash`."""
    flash_version: int = 2
    """Of FlashAttention, where `attention` is `flash`."""
    compile: bool = False
    """Whether the model runs through torch.compile: as a whole, or its repeated blocks one by one."""
    compiles_whole: bool = False
    loss: str = "standard"
    """`standard`, `chunked` or `fused`."""
    loss_chunk_tokens: int = 0
    """Tokens of a chunk, where the script itself computes the loss in chunks."""
    optimizer: str
    """`adamw`."""
    optimizer_in_backward: bool = False
    """Whether each parameter is stepped as backward reaches it, and no gradient is clipped."""
    has_peer_to_peer: bool = True
    """Whether the GPUs of a node read each other's memory, by NVLink or PCIe."""
    is_over_pcie: bool = False
    """Whether they do so by PCIe, which a machine may keep them from."""
    network: str = ""
    """What carries traffic between nodes: `infiniband` (RoCE too), `efa`, `ethernet`; "" if unknown."""
    efa_interfaces: int = 0
    """AWS's adapters for NCCL in a node; 0 without or unknown."""
    host_bytes: int = 0
    """What loading the model and training take of a node's memory, the processes themselves left out."""
    checkpoint_bytes: int = 0
    """Of one checkpoint at the most: the weights and the optimizer's states."""
    sagemaker_type: str = ""
    """What a SageMaker training job calls the nodes' type of instance; "" where it has none."""
    expected_peak_bytes: int
    """What `torch.cuda.max_memory_allocated` should say."""
    expected_reserved_bytes: int
    expected_step_seconds: float
    expected_tokens_per_second_per_gpu: float
    """Padding counted."""
    reduced_once: ReducedOnce | None = None
    """The same with --no-sync; None where the scripts have no such flag, or it changes nothing."""
    flops_per_token: float
    """Of the forward and backward pass, recomputation not counted."""
    peak_flops_per_second: float
    """Dense peak of one GPU in the plan's precision."""
    plan_summary: str
    """One sentence; untrusted text."""
    versions: Mapping[str, str]
    """Package to version: what the files were checked with."""
    oldest_versions: Mapping[str, str] = field(default_factory=dict)
    """Package to the oldest version that ran them, where that is another."""

    @property
    def tokens_per_sample(self) -> int:
        """Return the tokens of what a batch counts: of a pair those of both answers."""
        return self.sequence_length * sequences_of_a_sample(self.job)

    @property
    def world_size(self) -> int:
        """Return the number of GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def gpus_in_words(self) -> str:
        """Return what it runs on: the GPUs that train, and those of a server beside them."""
        one = self.world_size == 1
        own = "1 GPU" if one else f"{self.nodes} x {self.gpus_per_node} GPUs"
        rollout = self.rollout
        if rollout is None or rollout.vllm_mode != "server":
            return own
        return f"{own}, vLLM on {rollout.generation_gpus} more"

    @property
    def steps(self) -> int:
        """Return the optimizer steps of the commands that READMEs and launchers show."""
        return self.run_steps or README_STEPS

    @property
    def weight_dtype(self) -> str:
        """Return torch's name of the dtype that weights are loaded in.

        Frozen weights need no fp32 copy: they are in the dtype that they are multiplied in.
        """
        frozen = {"fp16-mixed": "float16", "bf16-mixed": "bfloat16"} if self.adapters else {}
        usual = "bfloat16" if self.precision == "bf16" else "float32"
        return self.config_dtype or frozen.get(self.precision, usual)


def check(spec: RunSpec) -> None:
    """Refuse a spec that contradicts itself.

    Raises:
        InvalidInputError: names the field and what does not add up.
    """
    _check_sizes(spec)
    _check_batch(spec)


def _check_sizes(spec: RunSpec) -> None:
    sizes = (
        spec.data_parallel_replicate_size,
        spec.data_parallel_shard_size,
        spec.tensor_parallel_size,
        spec.pipeline_parallel_size,
        spec.context_parallel_size,
    )
    product = spec.data_parallel_size * sizes[2] * sizes[3] * sizes[4]
    if product != spec.world_size:
        raise InvalidInputError(
            f"replicas x shards x tensor x pipeline x context = {' x '.join(map(str, sizes))}"
            f" = {product}, not the {spec.world_size} GPUs",
            hint="choose sizes whose product is the number of GPUs",
            field="gpus_per_node",
        )
    if spec.pipeline_parallel_size > 1 and (
        len(spec.layers_per_stage) != spec.pipeline_parallel_size
    ):
        raise InvalidInputError(
            f"{len(spec.layers_per_stage)} stages have layers, not the"
            f" {spec.pipeline_parallel_size} of the pipeline",
            hint="say how many layers each stage runs",
            field="layers_per_stage",
        )


def _check_batch(spec: RunSpec) -> None:
    product = spec.micro_batch_size * spec.gradient_accumulation_steps * spec.data_parallel_size
    if product != spec.global_batch_size:
        ranks = "GPUs" if not spec.divides_model else "data-parallel ranks"
        raise InvalidInputError(
            f"micro batch {spec.micro_batch_size} x accumulation"
            f" {spec.gradient_accumulation_steps} x {spec.data_parallel_size} {ranks}"
            f" = {product}, not the global batch {spec.global_batch_size}",
            hint="choose a global batch size that the micro batch and the GPUs divide",
            field="global_batch_size",
        )
