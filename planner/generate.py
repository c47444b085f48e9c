"""Write a plan as files that run: a training script, its launcher and a README for each target.

Every text that a user chose reaches a file through a filter that quotes it for that file's language.
"""

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import PlannerError, did_you_mean
from planner.units import GIB, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from jinja2 import Environment

TARGETS: dict[str, tuple[str, ...]] = {
    "torchrun": ("train.py", "launch.sh", "config.json", "requirements.txt"),
    "accelerate": ("train.py", "launch.sh", "accelerate.yaml", "config.json", "requirements.txt"),
}

_TEMPLATES = Path(__file__).parent / "templates"
_LINE_LENGTH = 100
_STRATEGIES = {
    0: "DDP",
    1: "DDP and ZeRO-1",
    2: "FSDP2 (ZeRO-2)",
    3: "FSDP2 (ZeRO-3)",
}
_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}
_AUTO_CLASSES = {"causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM"}
_COMPUTE_DTYPES = {"fp16-mixed": "float16", "bf16-mixed": "bfloat16"}
_ACCELERATE_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything the files need, as plain values."""

    model: str
    """Hub id, or the name the user gave; untrusted text."""
    revision: str
    """Branch, tag or commit of the Hub's repository; untrusted text."""
    model_config: Mapping[str, object]
    """The model's config.json."""
    is_pretrained: bool
    """Whether `model` has weights to load; else training starts from random ones."""
    task: str
    """`causal-lm` or `masked-lm`."""
    nodes: int
    gpus_per_node: int
    cuda_visible_devices: str
    """The order in which a node's GPUs become ranks; "" for that of their indices."""
    zero_stage: int
    """0 DDP, 1 ZeroRedundancyOptimizer, 2 and 3 fully_shard without and with resharding."""
    micro_batch_size: int
    """Sequences per GPU in one forward pass."""
    gradient_accumulation_steps: int
    global_batch_size: int
    """Sequences per optimizer step, over all GPUs."""
    sequence_length: int
    precision: str
    """`fp32`, `tf32`, `fp16-mixed`, `bf16-mixed` or `bf16`."""
    attention: str
    """`eager`, `sdpa` or `flash`."""
    recompute: str
    """`none` or `full`."""
    optimizer: str
    """`adamw`."""
    expected_peak_bytes: int
    """What `torch.cuda.max_memory_allocated` should say."""
    expected_reserved_bytes: int
    expected_step_seconds: float
    expected_tokens_per_second_per_gpu: float
    flops_per_token: float
    """Of the forward and backward pass, recomputation not counted."""
    peak_flops_per_second: float
    """Dense peak of one GPU in the plan's precision."""
    plan_summary: str
    """One sentence; untrusted text."""
    plan_json: str
    versions: Mapping[str, str]
    """Package to version: what the files were checked with."""


def generate(bundle: Bundle, targets: Sequence[str]) -> dict[str, str]:
    """Return the files of a plan: relative path to text.

    Raises:
        PlannerError: a target does not exist, or the bundle asks for what no template can write.
    """
    _check(bundle, targets)
    environment = _environment()
    context = _context(bundle, targets)
    files = {"README.md": _render(environment, "README.md", context), "plan.json": bundle.plan_json}
    for target in targets:
        for name in TARGETS[target]:
            template = "common/config.json" if name == "config.json" else f"{target}/{name}"
            files[f"{target}/{name}"] = _render(environment, template, context)
    return files


def _check(bundle: Bundle, targets: Sequence[str]) -> None:
    for target in targets:
        if target not in TARGETS:
            raise PlannerError(
                f"unknown target {target!r}",
                did_you_mean(target, TARGETS) or f"known targets: {', '.join(TARGETS)}",
            )
    choices: dict[str, tuple[object, Sequence[object]]] = {
        "task": (bundle.task, tuple(_AUTO_CLASSES)),
        "zero_stage": (bundle.zero_stage, tuple(_STRATEGIES)),
        "precision": (bundle.precision, ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16")),
        "attention": (bundle.attention, tuple(_ATTENTION)),
        "recompute": (bundle.recompute, ("none", "full")),
        "optimizer": (bundle.optimizer, ("adamw",)),
    }
    for field, (value, known) in choices.items():
        if value not in known:
            raise PlannerError(
                f"no launch files for {field} {value!r}",
                f"the targets can write: {', '.join(map(str, known))}",
            )
    product = (
        bundle.micro_batch_size
        * bundle.gradient_accumulation_steps
        * bundle.nodes
        * bundle.gpus_per_node
    )
    if product != bundle.global_batch_size:
        raise PlannerError(
            f"micro batch {bundle.micro_batch_size} x accumulation "
            f"{bundle.gradient_accumulation_steps} x {bundle.nodes * bundle.gpus_per_node} GPUs "
            f"= {product}, not the global batch {bundle.global_batch_size}",
            "choose a global batch size that the micro batch and the GPUs divide",
        )


def _context(bundle: Bundle, targets: Sequence[str]) -> dict[str, Any]:
    """Return the bundle's fields and what the templates would otherwise have to compute."""
    world_size = bundle.nodes * bundle.gpus_per_node
    is_alone = world_size == 1 and bundle.zero_stage == 0
    is_sharded = bundle.zero_stage >= 2  # noqa: PLR2004 -- stages 2 and 3 shard the model
    tokens_per_step = bundle.global_batch_size * bundle.sequence_length
    return asdict(bundle) | {
        "targets": tuple(targets),
        "world_size": world_size,
        "last_node": bundle.nodes - 1,
        "gpus": "1 GPU" if world_size == 1 else f"{bundle.nodes} x {bundle.gpus_per_node} GPUs",
        "strategy": "no parallelism" if is_alone else _STRATEGIES[bundle.zero_stage],
        "is_alone": is_alone,
        "is_replicated": not is_alone and not is_sharded,
        "is_sharded": is_sharded,
        "is_masked": bundle.task == "masked-lm",
        "is_recomputed": bundle.recompute == "full",
        "needs_scaler": bundle.precision == "fp16-mixed",
        "auto_class": _AUTO_CLASSES[bundle.task],
        "attention": _ATTENTION[bundle.attention],
        "weight_dtype": "bfloat16" if bundle.precision == "bf16" else "float32",
        "compute_dtype": _COMPUTE_DTYPES.get(bundle.precision),
        "accelerate_precision": _ACCELERATE_PRECISION.get(bundle.precision, "no"),
        "versions": {name: text.partition("+")[0] for name, text in bundle.versions.items()},
        "tokens_per_step": format_count(tokens_per_step),
        "expected_peak_gib": round(bundle.expected_peak_bytes / GIB, 2),
        "peak_memory": format_bytes(bundle.expected_peak_bytes),
        "reserved_memory": format_bytes(bundle.expected_reserved_bytes),
        "step_time": format_seconds(bundle.expected_step_seconds),
        "tokens_per_second_per_gpu": f"{bundle.expected_tokens_per_second_per_gpu:,.0f}",
        "tokens_per_second": f"{bundle.expected_tokens_per_second_per_gpu * world_size:,.0f}",
    }


@cache
def _environment() -> "Environment":
    # Imported here: it would slow the start of every command that writes no files.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 -- no template is HTML; each language has its own filter
    )
    environment.filters |= {
        "python": _python,
        "shell": shlex.quote,
        "tojson": _json,
        "comment": _one_line,
        "docstring": _docstring,
        "markdown": _markdown,
    }
    return environment


def _render(environment: "Environment", name: str, context: Mapping[str, Any]) -> str:
    return environment.get_template(f"{name}.j2").render(context)


def _python(value: object) -> str:
    """Return a Python literal, with the quotes that formatters prefer."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:_}" if isinstance(value, int) else repr(value)
    literal = repr(value)
    if literal.startswith("'") and '"' not in literal and "\\'" not in literal:
        return f'"{literal[1:-1]}"'
    return literal


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str)


def _one_line(text: str) -> str:
    """Return the text without line breaks, control, bidirectional or other invisible characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _docstring(text: str) -> str:
    r"""Return lines that can stand inside a docstring: no `\` escape and no closing quotes."""
    harmless = _one_line(text).replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.fill(harmless, _LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


def _markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no markup, HTML or links."""
    escaped = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = "".join(f"\\{c}" if c in "\\`*_[]|~$!#" else c for c in escaped)
    return escaped.replace("://", "&#58;//")
