"""What an engine that generates holds of its GPUs: weights, cache, and how many sequences that is room for.

Notation: t tensor parallel size of the engine; all in bytes of one GPU.
"""

from collections.abc import Mapping

from planner.catalog.rollout import EngineRecord
from planner.core.frozen import frozen
from planner.core.term import Term, bytes_each, count, gpus, percent, size
from planner.domain.model import Attention, Model, Part

_BYTES = 2
"""Of a weight and of a cached number: vLLM runs in 16 bit, whatever the trainer holds."""
_SOURCE = "vLLM 0.11, gpu_memory_utilization; TRL 1.16, vllm_generation.py"


@frozen
class Engine:
    """One copy of the model that generates, on as many GPUs as it is divided over."""

    tensor_parallel_size: int
    replicas: int
    """Engines that generate side by side."""
    share: float
    """Of a card's memory, as vllm_gpu_memory_utilization has it."""
    card_bytes: float
    record: EngineRecord
    """How fast such engines are, and what they hold."""

    @property
    def gpus(self) -> int:
        """Return the GPUs of all engines."""
        return self.tensor_parallel_size * self.replicas

    @property
    def given_bytes(self) -> float:
        """Return what an engine may take of a GPU."""
        return self.share * self.card_bytes


def weight_bytes(model: Model) -> float:
    """Return the bytes of the weights that an engine reads, all of its GPUs together."""
    return float(_BYTES * model.parameters)


def read_bytes(model: Model, sequences: float) -> float:
    """Return the bytes of weights that one token of so many sequences reads.

        2 B x (dense + experts' x (1 - (1 - k / E)^n))

    Notation: E experts of a layer, k of them for each token, n sequences: the share of the experts that any of them meets.
    Leaves out: that an embedding is looked up, not read; that tokens which resemble each other meet the same experts.
    """
    found = 0.0
    for part in model.parts:
        idle = sum(
            layer.parameters * (1 - layer.experts_per_token / layer.num_experts) ** sequences
            for layer in part.linears
            if layer.num_experts > 1
        )
        tables = 0 if _is_tied(model) else sum(part.tables.values())
        found += part.count * (part.parameters - tables - idle)
    return _BYTES * found


def _is_tied(model: Model) -> bool:
    return any(layer.is_tied for part in model.parts for layer in part.linears)


def cache_bytes_per_token(model: Model, tensor_parallel_size: int = 1) -> float:
    """Return the bytes that one token of a sequence has in the cache of one GPU.

        2 x 2 B x layers x key-value heads x channels / min(t, key-value heads);  of a latent: 2 B x layers x (latent + rotary)

    Source: Kwon et al., PagedAttention, arXiv:2309.06180, section 3; DeepSeek-V2, arXiv:2405.04434, section 2.1.
    Leaves out: blocks of 16 tokens that are not full; recurrences, whose state does not grow.
    """
    latent = _latent(model.config)
    if latent:
        return float(_BYTES * model.num_blocks * latent)
    each = (_of_layer(part, tensor_parallel_size) for part in model.blocks)
    return sum(each)


def _of_layer(part: Part, tensor_parallel_size: int) -> float:
    attention: Attention | None = part.attention
    if attention is None or not attention.is_causal:
        return 0.0
    split = min(tensor_parallel_size, attention.num_key_value_heads)
    return part.count * 2 * _BYTES * attention.key_value_size / split


def _latent(config: Mapping[str, object]) -> int:
    sizes = [config.get(name) for name in ("kv_lora_rank", "qk_rope_head_dim")]
    return sum(value for value in sizes if isinstance(value, int)) if sizes[0] else 0


def holds(model: Model, engine: Engine, tokens: float, sequences: int) -> tuple[Term, ...]:
    """Return what an engine has on a GPU: they sum to its share where the sequences fill it, else to less.

    Args:
        model: that generates.
        engine: on which GPUs.
        tokens: of a sequence when it is longest.
        sequences: of one engine that run at once.
    """
    t, record = engine.tensor_parallel_size, engine.record
    return (
        Term(
            name="engine_weights",
            arithmetic=bytes_each(_BYTES) * count(model.parameters, "parameters") / gpus(t),
            source=_SOURCE,
        ),
        Term(
            name="engine_cache",
            arithmetic=count(sequences, "sequences")
            * count(tokens, "tokens")
            * size(cache_bytes_per_token(model, t), "a token"),
            note=("the engine takes all of ", percent(engine.share), " of the card"),
            source="PagedAttention, arXiv:2309.06180",
        ),
        Term(name="engine_graphs", arithmetic=size(record.held_bytes), source=record.source),
    )


def share_for(model: Model, engine: Engine, tokens: float, sequences: int) -> float:
    """Return the share of a card with which an engine holds so many sequences at once."""
    cache = sequences * tokens * cache_bytes_per_token(model, engine.tensor_parallel_size)
    return (_beside_cache(model, engine) + cache) / engine.card_bytes


def _beside_cache(model: Model, engine: Engine) -> float:
    return engine.record.held_bytes + weight_bytes(model) / engine.tensor_parallel_size


def sequences_at_once(model: Model, engine: Engine, tokens: float) -> int:
    """Return how many sequences the cache of one engine has room for; 0 where not even one.

        (share x card - weights / t - held) / (tokens x cache of a token)

    Source: vLLM, v1/core/kv_cache_utils.py.
    """
    each = tokens * cache_bytes_per_token(model, engine.tensor_parallel_size)
    left = engine.given_bytes - _beside_cache(model, engine)
    if left <= 0:
        return 0
    return int(left // each) if each else 2**20
