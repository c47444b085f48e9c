"""A model as the planner sees it: its matrices, its other parameters, what it keeps for backward.

A model is a list of parts (embeddings, repeated blocks, head). Parameter counts, FLOPs, GEMM shapes
and activation bytes all come out of the same parts, so they cannot disagree. Nothing here knows
about GPUs.
"""

from collections.abc import Mapping
from dataclasses import field

from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.domain.kept import Kept, Numerics
from planner.domain.work import Work


@frozen
class Linear:
    """A matrix multiplication with weights: W[out_features, in_features] and perhaps a bias."""

    name: str
    in_features: int
    out_features: int
    has_bias: bool = False
    is_tied: bool = False
    """The weight is another part's tensor: it costs FLOPs, but no parameters."""
    most_splits: int = 1
    """Into how many parts tensor parallelism can cut the weight: heads, inner channels or
    vocabulary entries; 1 where every rank holds it whole."""
    cuts_inputs: bool = False
    """Row-parallel: tensor parallelism cuts the input features and sums the partial outputs."""
    num_experts: int = 1
    """Copies of the layer, of which a router picks some for each token."""
    experts_per_token: int = 1
    reads_source: bool = False
    """It sees an encoder's tokens, in a part that sees those of the target."""
    per_token: float = 1.0
    """Tokens that it sees for each of the part's."""
    input_copies: float = 1.0
    """Rows in which the same input stands, as a convolution's matmul has them: its kernel reads each once."""

    @property
    def parameters(self) -> int:
        """Return the parameters that this layer adds to the model, all experts together."""
        weight = 0 if self.is_tied else self.in_features * self.out_features
        return self.num_experts * (weight + (self.out_features if self.has_bias else 0))

    @property
    def active_parameters(self) -> int:
        """Return the parameters that one token meets."""
        return self.parameters // self.num_experts * self.experts_per_token

    @property
    def weights(self) -> int:
        """Return the elements of the weight matrices, tied ones too."""
        return self.num_experts * self.in_features * self.out_features

    @property
    def flops_per_token(self) -> float:
        """Return the forward FLOPs of one token of the part: 2 per weight that it meets."""
        return self.per_token * 2 * self.experts_per_token * self.in_features * self.out_features


@frozen
class Attention:
    """The weightless half of attention: scores, softmax, weighted sum."""

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    is_causal: bool
    eager_bytes_per_score: tuple[float, ...]
    """Kept bytes per head, query and key when the scores are materialised (attention="eager")."""
    score_work: Work | None = None
    """Of what makes probabilities of a materialised score, where that was counted."""
    compiled_bytes_per_score: tuple[float, ...] = ()
    """What torch.compile leaves of the kept bytes."""
    window: int | None = None
    """Keys that a query sees at most, of all that there are; None for all of them."""
    keys: int | None = None
    """Keys that there are for a query, where they are not the tokens beside it: its window's, or fewer positions."""
    reads_source: bool = False
    """The keys are an encoder's tokens."""
    retained_size: int = 0
    """Channels that fused kernels keep alive unused: values are a view of a wider projection."""
    has_fused_kernel: bool = True
    """The modelling code can use SDPA or flash attention at all."""
    picks_keys: bool = False
    """An indexer picks the keys of each query, and a mask hides the others from SDPA."""

    @property
    def query_size(self) -> int:
        """Return the width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Return the width of all key (or value) heads together."""
        return self.num_key_value_heads * self.head_dim

    def materialises_scores(self, implementation: str, numerics: Numerics) -> bool:
        """Return whether the scores are kept in memory: eager, or SDPA's fallback to math.

        PyTorch's fused fp32 kernel knows no grouped queries, and flash kernels no fp32.
        """
        is_grouped = self.num_key_value_heads < self.num_heads
        falls_back = implementation == "sdpa" and is_grouped and numerics == Numerics.FP32
        return implementation == "eager" or falls_back or not self.has_fused_kernel

    def num_keys(self, tokens: int, sequence_length: int) -> int:
        """Return how many keys a query can see.

        Args:
            tokens: beside the query.
            sequence_length: of the source, where there is one.
        """
        return self.keys or (sequence_length if self.reads_source else tokens)

    def mask_size(self, implementation: str, sequence_length: int) -> int:
        """Return the keys of a window's or an indexer's mask that SDPA keeps for each token; else 0.

        transformers leaves the mask out where the window exceeds the sequence. With one, SDPA keeps
        its 16- or 32-bit form in every layer, and takes keys and values repeated for all heads
        (which costs nothing for a single one: it is a view).
        """
        has_window = self.window is not None and sequence_length >= self.window
        has_mask = has_window or self.picks_keys
        return sequence_length if has_mask and implementation == "sdpa" else 0

    def flops_per_token(self, sequence_length: int) -> float:
        """Forward FLOPs per token, the causal half left out where there is one.

            flops = 4 * s * q, halved when causal

        Notation: s keys per query: the sequence length, or the sliding window; q query_size.
        Source: scores and weighted sum are 2*s*q each; Kaplan et al., arXiv:2001.08361, table 1.
        Leaves out: the softmax itself; the diagonal (s + 1 keys on average instead of s).
        """
        if self.window is not None and self.window < sequence_length:
            return 4 * self.window * self.query_size
        return (2 if self.is_causal else 4) * sequence_length * self.query_size


@frozen
class Scan:
    """How the kernels of a recurrence run."""

    backward: float = 2.0
    """FLOPs of backward to those of forward, what is computed again among them."""
    moved_bytes_per_token: tuple[float, float] = (0.0, 0.0)
    """That fused kernels read and write besides what they keep, in forward and in backward."""
    is_elementwise: bool = False
    """No matmuls: tensor cores take no part."""


@frozen
class Part:
    """A piece of the model that occurs `count` times."""

    name: str
    count: int = 1
    is_block: bool = False
    """A layer of the trunk: what recompute repeats and FSDP gathers as one."""
    tokens_per_sequence: int | None = None
    """Tokens that the part sees of each sequence; None for the sequence's own length."""
    share_of_tokens: float = 1.0
    """Of the sequence's tokens, those that the part sees: a head may look at the masked ones alone."""
    linears: tuple[Linear, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    """Embedding tables: name -> parameters. Looked up, never multiplied."""
    split_tables: tuple[str, ...] = ()
    """The tables that tensor parallelism cuts by vocabulary."""
    vectors: Mapping[str, int] = field(default_factory=dict)
    """Norm weights and lone biases: name -> parameters."""
    kept: tuple[Kept, ...] = ()
    is_target: bool = False
    """It sees the target's tokens, of a model that has an encoder for the source's."""
    attention: Attention | None = None
    cross_attention: Attention | None = None
    """To an encoder's output, after its own."""
    scan_flops_per_token: float = 0.0
    """Forward FLOPs of a recurrence: no weights, and the same for any length."""
    scan: Scan = Scan()
    """How its kernels run."""
    leaves_last_unread: bool = False
    """Backward reads nothing that the last of the linears puts out: no dropout, norm or router's weight follows it."""
    leaves_last_to_router: bool = False
    """Nothing but the router's weights reads it, which fused experts multiply in before."""
    modules: Mapping[str, "Module"] = field(default_factory=dict)
    """What of it can recompute by itself: a name of `planner.domain.recompute_modules` -> that piece."""

    @property
    def parameters(self) -> int:
        """Return the parameters of one occurrence."""
        linear = sum(layer.parameters for layer in self.linears)
        return linear + sum(self.tables.values()) + sum(self.vectors.values())

    @property
    def active_parameters(self) -> int:
        """Return the parameters of one occurrence that one token meets."""
        idle = sum(layer.parameters - layer.active_parameters for layer in self.linears)
        return self.parameters - idle

    @property
    def linear_weights(self) -> int:
        """Return the elements of all weight matrices, tied ones too: what autocast copies."""
        return sum(layer.weights for layer in self.linears)

    def tokens(self, sequence_length: int) -> int:
        """Return how many tokens the part sees of one sequence."""
        return self.tokens_per_sequence or max(1, round(self.share_of_tokens * sequence_length))

    def attentions(self, sequence_length: int) -> tuple[tuple[Attention, int], ...]:
        """Return what attends in it, and the keys of each query there."""
        own, tokens = (self.attention, self.cross_attention), self.tokens(sequence_length)
        return tuple((a, a.num_keys(tokens, sequence_length)) for a in own if a is not None)

    def kept_bytes_per_token(self, numerics: Numerics) -> float:
        """Bytes per token that one occurrence keeps for backward, attention scores left out."""
        return sum(kept.bytes_in(numerics) for kept in self.kept)

    def flops_per_token(self, sequence_length: int) -> float:
        """Forward FLOPs per token of one occurrence: 2 per weight it meets, plus what mixes tokens."""
        weights = sum(layer.flops_per_token for layer in self.linears)
        return weights + self.mixing_flops_per_token(sequence_length)

    def mixing_flops_per_token(self, sequence_length: int) -> float:
        """Forward FLOPs per token of what mixes tokens without weights: attention, or a scan."""
        each = (a.flops_per_token(n) for a, n in self.attentions(sequence_length))
        return sum(each, self.scan_flops_per_token)


@frozen
class Module:
    """A piece of a block that can recompute by itself."""

    repeated: Part
    """What runs again in backward: its matmuls, and the work that leaves what it keeps."""
    freed: tuple[Kept, ...]
    """What the block does not keep then."""
    checkpoint: tuple[Kept, ...] = ()
    """What it keeps in their place."""


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@frozen
class Model:
    """An architecture with its sizes, read from a config.json."""

    name: str
    model_type: str
    task: str
    """What the head is trained for: "causal-lm", "masked-lm", "seq2seq-lm",
    "sequence-classification", "token-classification", "question-answering", "multiple-choice", "next-sentence-prediction",
    "image-classification", "automatic-speech-recognition" or "none"."""
    parts: tuple[Part, ...]
    vocab_size: int
    hidden_size: int
    max_position_embeddings: int
    reads_images: bool = False
    """A sequence is an image, as long as the model's positions are many."""
    has_learned_positions: bool = False
    """Positions are looked up in a table, so a longer sequence cannot run at all."""
    config: Mapping[str, object]
    """The config.json itself, for the files that build the model."""
    is_pretrained: bool = True
    """Weights can be loaded by name; False for a bare config.json."""
    revision: str = "main"
    """Of the Hub's repository that the config came from."""
    folder: str = ""
    """Where its config.json lies on this disk, and what else there is; "" where that is the Hub."""

    @property
    def has_token_loss(self) -> bool:
        """Return whether every token has logits over the vocabulary."""
        return self.task.endswith("-lm") or self.task == "automatic-speech-recognition"

    @property
    def share_with_logits(self) -> float:
        """Return of what share of the tokens there are logits: those that the head sees, the last part."""
        return self.parts[-1].share_of_tokens

    @property
    def weights_dtype(self) -> str:
        """Return the dtype that config.json names for the weights: "bf16", "fp16", else "fp32"."""
        inner = self.config.get("text_config")
        for values in (self.config, inner if isinstance(inner, Mapping) else {}):
            named = values.get("dtype") or values.get("torch_dtype")
            if isinstance(named, str):
                return _DTYPES.get(named.removeprefix("torch."), "fp32")
        return "fp32"

    @property
    def stored_in(self) -> str:
        """Return how its weights are stored where they are quantised: "mxfp4", "fp8", "gptq"; "" where they are not.

        Source: quantization_config of config.json, which transformers reads before it loads weights.
        """
        inner = self.config.get("text_config")
        for values in (self.config, inner if isinstance(inner, Mapping) else {}):
            said = values.get("quantization_config")
            if isinstance(said, Mapping):
                return str(said.get("quant_method") or "bitsandbytes")
        return ""

    @property
    def normalises_in_fp32(self) -> bool:
        """Return whether autocast runs the norms of the trunk in fp32, and hands fp32 on."""
        return any(kept.is_normalised_in_fp32 for part in self.blocks for kept in part.kept)

    @property
    @remembered(8)
    def blocks(self) -> tuple[Part, ...]:
        """Return the distinct kinds of trunk layers."""
        return tuple(part for part in self.parts if part.is_block)

    @property
    @remembered(8)
    def others(self) -> tuple[Part, ...]:
        """Return what stands outside the trunk: embeddings, heads, final norms."""
        return tuple(part for part in self.parts if not part.is_block)

    @property
    def is_decoder(self) -> bool:
        """Return whether it is a decoder-only language model, whose trunk is one chain of layers."""
        return self.task == "causal-lm"

    @property
    def has_trunk_of_decoder(self) -> bool:
        """Return whether it is such a model, or one that scores sequences on the same trunk."""
        is_causal = all(part.attention is None or part.attention.is_causal for part in self.blocks)
        return self.is_decoder or (self.task == "sequence-classification" and is_causal)

    @property
    def has_experts(self) -> bool:
        """Return whether a router picks some of several experts for each token."""
        return any(layer.num_experts > 1 for part in self.parts for layer in part.linears)

    @property
    def num_blocks(self) -> int:
        """Return the number of trunk layers of all kinds."""
        return sum(part.count for part in self.blocks)

    @property
    def parameters(self) -> int:
        """Return the exact number of parameters, tied weights counted once."""
        return sum(part.count * part.parameters for part in self.parts)

    @property
    def active_parameters(self) -> int:
        """Return the parameters that one token meets: all but the experts it is not sent to."""
        return sum(part.count * part.active_parameters for part in self.parts)

    @property
    def largest_layer_parameters(self) -> int:
        """Return the parameters of the largest part: what one GPU must be able to gather."""
        return max(part.parameters for part in self.parts)

    @property
    def linear_weights(self) -> int:
        """Return the elements of all weight matrices of the model."""
        return sum(part.count * part.linear_weights for part in self.parts)

    def flops_per_token(self, sequence_length: int) -> float:
        """Forward FLOPs per token of the sequence: 2 per matmul weight, plus causal attention.

        Training costs three times that (backward is twice the forward). The embedding look-up,
        norms and activations are left out, as in Kaplan et al., arXiv:2001.08361.
        """
        return sum(
            part.count
            * part.flops_per_token(sequence_length)
            * part.tokens(sequence_length)
            / sequence_length
            for part in self.parts
        )
