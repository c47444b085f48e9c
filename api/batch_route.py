"""How a global batch is made, and what follows from it: what may be asked by REST, and what a process does about it."""

from typing import Literal

from pydantic import Field

from api.body import read_wire
from api.fields import in_fields
from api.jobs import Reply, reply_of
from planner.advice.batch_plan import BatchWish
from planner.answers.batch_plan_answer import (
    Trained,
    answer_batch_plan,
    data_parallel_ranks,
    plan_batch,
)
from planner.models.hub_client import asking_with
from planner.request.model import ModelRequest
from planner.request.wire import WireModel

_LARGEST = 2**24
_NAMES = {
    "recipe.global_batch_size": "global_batch_size",
    "--global-batch-size": "global_batch_size",
    "--micro-batch-size": "micro_batch_size",
    "--accumulation-steps": "gradient_accumulation_steps",
    "--dp": "data_parallel_size",
    "--epochs": "epochs",
    "--from-batch": "tuned_batch_size",
    "--learning-rate": "learning_rate",
}


class BatchRequest(WireModel):
    """A batch: two of global batch, micro-batch and accumulation, or the global batch alone."""

    model: ModelRequest | None = None
    """Whose nearest published run gives a learning rate, where none is given."""
    gpus_per_node: int = Field(default=1, ge=1, le=_LARGEST)
    nodes: int = Field(default=1, ge=1, le=65536)
    data_parallel_size: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Where it is not all the GPUs."""
    global_batch_size: int | None = Field(default=None, ge=1, le=_LARGEST)
    micro_batch_size: int | None = Field(default=None, ge=1, le=_LARGEST)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1, le=_LARGEST)
    samples: int | None = Field(default=None, ge=1, le=10**15)
    """Of the data set."""
    epochs: float = Field(default=1, gt=0, le=1e6)
    max_steps: int | None = Field(default=None, ge=1, le=10**12)
    """As given to Trainer."""
    warmup_fraction: float | None = Field(default=None, ge=0, le=1)
    learning_rate: float | None = Field(default=None, gt=0, le=1000)
    """That was tuned."""
    tuned_batch_size: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Global batch that it was tuned with; else that of one GPU."""
    method: Literal["full", "lora", "qlora"] = "full"
    task: Literal["sequence-classification", "token-classification"] | None = None
    from_scratch: bool = False
    """The model starts from random weights."""


def batch_plan(body: bytes, token: str = "") -> Reply:
    """Say how a global batch is made, its steps and learning rate, and what to configure."""
    hint = 'send {"gpus_per_node": 4, "global_batch_size": 256}'
    asked = read_wire(BatchRequest, body, hint)
    trained = Trained(
        model=asked.model,
        method=asked.method,
        from_scratch=asked.from_scratch,
        task=asked.task,
    )
    gpus = asked.gpus_per_node * asked.nodes
    with asking_with(token), in_fields(_NAMES):
        wish = BatchWish(
            ranks=data_parallel_ranks(gpus, asked.data_parallel_size),
            global_batch_size=asked.global_batch_size,
            micro_batch_size=asked.micro_batch_size,
            accumulation_steps=asked.gradient_accumulation_steps,
            samples=asked.samples,
            epochs=asked.epochs,
            max_steps=asked.max_steps,
            warmup_fraction=asked.warmup_fraction,
            learning_rate=asked.learning_rate,
            from_batch=asked.tuned_batch_size,
        )
        plan, notes = plan_batch(wish, trained, allow_paths=False)
    return reply_of({**answer_batch_plan(plan), "notes": notes})
