"""A PyTorch module tree -> the parts of a Model: counts that are exact, kept bytes estimated.

Every matmul keeps its input, and siblings of one width share it; attention keeps query, key, value
and output; a widening matmul keeps its output for the activation that follows; norms and dropouts
keep what theirs do.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from planner.core.errors import UnsupportedError
from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Part
from planner.models.architectures import kept

Module: TypeAlias = Any
"""A torch.nn.Module; torch is imported where it is used, as it may not be installed."""

Modules: TypeAlias = list[tuple[str, Module]]
"""Modules with their paths, each without its children."""

_STACK = 3
"""Dimensions of the stacked matrices of experts."""


@dataclass(slots=True)
class Facts:
    """What the config says about every block, and which parameters were met already."""

    hidden_size: int
    num_experts: int
    experts_per_token: int
    activation: str
    """The function between the matmuls of an MLP, as the config calls it."""
    attention: Attention | None
    seen: set[int] = field(default_factory=set)

    def is_new(self, parameter: Any) -> bool:
        """Return whether a parameter is met for the first time; a tied one is met again."""
        is_new = id(parameter) not in self.seen
        self.seen.add(id(parameter))
        return is_new


def read_parts(built: Module, facts: Facts, num_layers: int) -> tuple[Part, ...]:
    """Return embeddings, blocks and head; the embeddings first, as their weights may be tied.

    Raises:
        UnsupportedError: the layers are no list of modules, or share their weights.
    """
    blocks = _blocks(built)
    if not blocks or len(blocks) < num_layers:
        raise UnsupportedError(
            f"the layers of {type(built).__name__} are not a list of blocks",
            hint="plan for a model of a known type with the same sizes",
            field="model",
        )
    before, after = _outer(built, blocks)
    embeddings = _part("embeddings", before, facts)
    kinds: list[Part] = []
    counts: Counter[int] = Counter()
    for block in blocks:
        part = _block(block, facts)
        if part not in kinds:
            kinds.append(part)
        counts[kinds.index(part)] += 1
    trunk = [
        replace(part, name=f"block_{i + 1}" if len(kinds) > 1 else "block", count=counts[i])
        for i, part in enumerate(kinds)
    ]
    parts = (embeddings, *trunk, _part("head", after, facts))
    return tuple(part for part in parts if part.linears or part.parameters)


def _blocks(built: Module) -> list[Modules]:
    """Return the elements of the longest lists of modules; lists side by side are one layer."""
    from torch.nn import ModuleList

    lists: list[tuple[str, Module]] = []
    for path, module in built.named_modules():
        is_inner = any(path.startswith(f"{outer}.") for outer, _ in lists)
        if isinstance(module, ModuleList) and not is_inner and _has_parameters(module):
            lists.append((path, module))
    longest = max((len(module) for _, module in lists), default=0)
    layers: dict[tuple[str, int], Modules] = {}
    for path, module in lists:
        parent, _, own = path.rpartition(".")
        for index in range(longest if len(module) == longest else 0):
            layer = layers.setdefault((parent, index), [])
            layer += module[index].named_modules(prefix=own)
    sides = {parent: None for parent, _ in layers}
    return [layers[parent, index] for parent in sides for index in range(longest)]


def _has_parameters(module: Module) -> bool:
    return next(module.parameters(), None) is not None


def _outer(built: Module, blocks: list[Modules]) -> tuple[Modules, Modules]:
    """Return the modules outside the blocks: all tables and what comes first, then the rest."""
    from torch.nn import Embedding

    inner = {id(module) for block in blocks for _, module in block}
    output = built.get_output_embeddings()
    before: Modules = []
    after: Modules = []
    has_begun = False
    for path, module in built.named_modules():
        if id(module) in inner:
            has_begun = True
        elif isinstance(module, Embedding) or not (has_begun or module is output):
            before.append((path, module))
        else:
            after.append((path, module))
    return before, after


def _part(name: str, modules: Modules, facts: Facts) -> Part:
    """Return the parameters of modules, those that were met before left out, and matmul inputs."""
    from torch.nn import Embedding

    linears: list[Linear] = []
    tables: Counter[str] = Counter()
    vectors: Counter[str] = Counter()
    inputs: Counter[tuple[str, int]] = Counter()
    norms: list[Kept] = []
    for path, module in modules:
        found = _linears(path, module, facts)
        linears += found
        for linear in found:
            inputs[path.rpartition(".")[0], linear.in_features * linear.experts_per_token] += 1
        own = [p for p in module.parameters(recurse=False) if facts.is_new(p)]
        if own:
            kind = tables if isinstance(module, Embedding) else vectors
            kind[_short(path)] += sum(p.numel() for p in own)
        norms += _norm(_short(path), module, own)
    operands = [
        kept.operand(f"{_short(parent)}_input_{width}", width, copies)
        for (parent, width), copies in inputs.items()
    ]
    return Part(
        name=name,
        linears=tuple(linears),
        tables=dict(tables),
        vectors=dict(vectors),
        kept=(*norms, *operands),
    )


def _short(path: str) -> str:
    """Return a path below the model as a name; an index of a layer is no part of it."""
    names = [name for name in path.split(".") if name and not name.isdigit()]
    return "_".join(names[-2:]) or "own"


def _linears(path: str, module: Module, facts: Facts) -> list[Linear]:
    """Return a module's weight matrix, or its stacks of experts; what remains is vectors."""
    from torch.nn import Linear as Dense
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, Dense | Conv1D):
        shape: Any = module.weight.shape
        rows, columns = shape if isinstance(module, Conv1D) else reversed(shape)
        return [
            Linear(
                name=_short(path),
                in_features=rows,
                out_features=columns,
                is_tied=not facts.is_new(module.weight),
                has_bias=module.bias is not None and facts.is_new(module.bias),
            )
        ]
    return [
        Linear(
            name=f"{_short(path)}_{name}",
            in_features=parameter.shape[2],
            out_features=parameter.shape[1],
            is_tied=not facts.is_new(parameter),
            num_experts=facts.num_experts,
            experts_per_token=min(facts.experts_per_token, facts.num_experts),
        )
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() == _STACK and parameter.shape[0] == facts.num_experts > 1
    ]


def _norm(name: str, module: Module, own: list[Any]) -> list[Kept]:
    kind = type(module).__name__.lower()
    if "norm" not in kind or not own:
        return []
    size = own[0].numel()
    return [kept.rms_norm(name, size) if "rms" in kind else kept.layer_norm(name, size)]


def _block(modules: Modules, facts: Facts) -> Part:
    part = _part("block", modules, facts)
    attending = [path for path, module in modules if "attention" in type(module).__name__.lower()]
    attention = facts.attention if attending else None
    more: list[Kept] = []
    if attention:
        more += [
            kept.operand("query_and_output", 2 * attention.query_size),
            kept.operand("key_value", 2 * attention.key_value_size),
        ]
    for path, module in modules:
        if not any(f"{path}.".startswith(f"{outer}.") for outer in attending):
            more += _elementwise(path, module, facts)
    return replace(part, is_block=True, kept=(*part.kept, *more), attention=attention)


def _elementwise(path: str, module: Module, facts: Facts) -> Iterable[Kept]:
    from torch.nn import Dropout

    if isinstance(module, Dropout):
        return kept.dropout(_short(path), facts.hidden_size, module.p)
    widening = [
        linear.out_features * linear.experts_per_token
        for linear in _linears(path, module, replace(facts, seen=set()))
        if linear.out_features > linear.in_features
    ]
    return [each for size in widening for each in kept.activation(facts.activation, size)]
