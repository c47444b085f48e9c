"""What is trained: three small models, and the layouts that two ranks can have of each."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from proof.wires import WIRES, Wire

_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512}
_LAYERS = 4
_SEQUENCES = 8
"""Of a step."""
REPETITIONS = 5
_TIMED, _TIMED_OF_ANCHORS = 2, 5


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and how long its sequences are."""

    name: str
    config: Mapping[str, Any]
    sequence_length: int


SUBJECTS = (
    Subject(  # many parameters for its tokens: 12.7 MB of gradients
        "wide-gpt",
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": 512,
            "n_positions": 64,
            "n_embd": 256,
            "n_layer": _LAYERS,
            "n_head": 4,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "resid_pdrop": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        64,
    ),
    Subject(  # 5 MB
        "llama",
        {
            **_LLAMA,
            "hidden_size": 160,
            "intermediate_size": 448,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128,
        },
        128,
    ),
    Subject(  # few parameters for its tokens: 2 MB
        "long-llama",
        {
            **_LLAMA,
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 256,
        },
        256,
    ),
)

_WHOLE = {
    "zero_stage": 0,
    "tensor_parallel_size": 1,
    "sequence_parallel": False,
    "pipeline_parallel_size": 1,
    "virtual_pipeline_size": 1,
    "pipeline_schedule": "1f1b",
    "context_parallel_size": 1,
    "expert_parallel_size": 1,
    "synchronize_every": 1,
    "recompute": "none",
    "offload": "none",
}
"""Every choice of a layout: what is not pinned, the planner would choose."""
_HALF = {"micro_batch_size": _SEQUENCES // 2, "gradient_accumulation_steps": 1}
ANCHOR = "anchor"
"""DDP on twice the batch: a real step of both cores, as `planner calibrate` ends with; no run that is judged."""
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    ANCHOR: {"micro_batch_size": _SEQUENCES, "gradient_accumulation_steps": 1},
    "ddp": _HALF,
    "accumulation": {"micro_batch_size": 1, "gradient_accumulation_steps": 4},
    "zero-1": {"zero_stage": 1, **_HALF},
    "zero-2": {"zero_stage": 2, **_HALF},
    "zero-3": {"zero_stage": 3, **_HALF},
    "local-4": {"synchronize_every": 4, **_HALF},
    "local-16": {"synchronize_every": 16, **_HALF},
    "tp": {
        "tensor_parallel_size": 2,
        "micro_batch_size": _SEQUENCES,
        "gradient_accumulation_steps": 1,
    },
    **{
        f"pp-{number}": {
            "pipeline_parallel_size": 2,
            "micro_batch_size": _SEQUENCES // number,
            "gradient_accumulation_steps": number,
        }
        for number in (2, 4, 8)
    },
    "chunks-4": {
        "pipeline_parallel_size": 2,
        "virtual_pipeline_size": 2,
        "pipeline_schedule": "interleaved-1f1b",
        "micro_batch_size": _SEQUENCES // 4,
        "gradient_accumulation_steps": 4,
    },
}
"""By name: pp-4 has four micro-batches in the pipeline, chunks-4 two chunks of layers on each rank besides, and
local-4 averages every four steps."""
LOCAL = ("local-4", "local-16")
"""What trains another way: the planner says it beside its choice, and does not choose it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One model with one layout over one wire."""

    wire: Wire
    subject: Subject
    layout: str

    @property
    def name(self) -> str:
        """Return what the run is called, in files too."""
        return f"{self.wire.name}.{self.subject.name}.{self.layout}"

    @property
    def steps(self) -> int:
        """Return how many steps it takes: one to warm up and two, or as many as local SGD averages after."""
        every = int(LAYOUTS[self.layout].get("synchronize_every", 1))
        timed = _TIMED_OF_ANCHORS if self.layout == ANCHOR else _TIMED
        return every if every > 1 else 1 + timed

    def mean_step(self, seconds: Sequence[float]) -> float:
        """Return the mean step of one training without its first, which warms up: the median for it in local SGD."""
        rest = list(seconds[1:])
        if self.layout in LOCAL:
            rest.append(median(rest[:-1]))
        return sum(rest) / len(rest)

    @property
    def tokens(self) -> int:
        """Return the tokens of a step."""
        return self.sequences * self.subject.sequence_length

    @property
    def sequences(self) -> int:
        """Return the sequences of a step."""
        return 2 * _SEQUENCES if self.layout == ANCHOR else _SEQUENCES

    @property
    def is_refused(self) -> bool:
        """Return whether no such plan is written: tensor parallelism between nodes (LAY020)."""
        return self.layout == "tp" and self.wire.nodes > 1

    def request(self, models: Path | None = None, *, nodes: int = 0) -> dict[str, Any]:
        """Return the estimate request; the model by its folder, or whole; on the wire's nodes, or on so many."""
        subject = self.subject
        nodes = nodes or self.wire.nodes
        layout = LAYOUTS[self.layout]
        model: Any = str(models / subject.name) if models else dict(subject.config)
        return {
            "id": self.name,
            "model": model,
            "cluster": {"gpu": "cpu", "gpus_per_node": 2 // nodes, "nodes": nodes},
            "recipe": {
                "sequence_length": subject.sequence_length,
                "global_batch_size": self.sequences,
                "precision": "fp32",
            },
            "strategy": {**_WHOLE, **layout},
        }


RUNS = tuple(
    Run(wire, subject, layout)
    for wire in WIRES
    for subject in SUBJECTS
    for layout in LAYOUTS
    if layout != ANCHOR
)
ANCHORS = tuple(Run(wire, subject, ANCHOR) for wire in WIRES for subject in SUBJECTS)


def write_models(folder: Path) -> None:
    """Write each model's config.json into a folder of its name."""
    for subject in SUBJECTS:
        (folder / subject.name).mkdir(parents=True, exist_ok=True)
        (folder / subject.name / "config.json").write_text(json.dumps(subject.config))
