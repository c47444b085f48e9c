"""Train a causal-lm model with DDP and ZeRO-1, tensor parallelism, a pipeline on 2 x 4 GPUs, by PyTorch alone.

Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs with ZeRO-1, tensor parallel 2 with sequence
parallelism, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences
per step.

Start it with launch.sh beside it.
"""

import argparse
import contextlib
import datetime
import functools
import gc
import itertools
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as sharded
import transformers
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.data import Dataset, default_collate
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
MODEL = "tiny-llama"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 16  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 224133120.0  # forward and backward
PEAK_FLOPS_PER_SECOND = 989_000_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 222689.3  # of one GPU
EXPECTED_PEAK_GIB = 2.11
TENSOR_PARALLEL_SIZE = 2
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (4, 4)


def parse_arguments() -> argparse.Namespace:
    """Read the command line; the defaults are the plan's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", default=MODEL, help="Hub id or local folder")
    add("--revision", default=REVISION, help="branch, tag or commit of the model on the Hub")
    add("--init", choices=["pretrained", "random"], default="random")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--data", type=Path, help="local .txt, or .jsonl with a text field")
    text.add_argument("--dataset", help="Hub dataset with a text column, NAME[:CONFIG]")
    add("--padded", action="store_true", help="each text by itself, padded; default: packed")
    add("--tokenizer", help="default: the model's")
    add("--steps", "--max-steps", type=int, default=100, help="optimizer steps in all")
    add("--lr", type=float, default=3e-4, help="learning rate after the warm-up")
    add("--warmup", type=int, default=10, help="steps of linear warm-up")
    add("--weight-decay", type=float, default=0.01)
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0)
    add("--no-dropout", action="store_true")
    add("--profile", help="folder for a trace of the third to fifth step")
    add("--log", type=Path, help="append one JSON line per step")
    add("--save-every", type=int, default=0, help="steps between checkpoints; 0: none")
    add("--output", type=Path, default=Path("checkpoints"), help="where checkpoints go")
    add("--resume", type=Path, help="a checkpoint, such as checkpoints/step-100")
    add("--save-model", type=Path, help="where the final weights go, as safetensors")
    return parser.parse_args()


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Samples in training order; sample i is a pure function of (seed, i) on every process.

    Synthetic tokens are `randint(vocabulary)` of a generator seeded with `seed * 1_000_003 + i`.
    Text is read in another random order every epoch.
    """

    def __init__(self, rows: Any, vocabulary: int, seed: int) -> None:
        self.rows = rows
        self.vocabulary = vocabulary
        self.seed = seed

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        if self.rows is None:
            tokens = torch.randint(self.vocabulary, (SEQUENCE_LENGTH,), generator=generator)
        else:
            epoch, position = divmod(index, len(self.rows))
            order = shuffled(len(self.rows), self.seed + epoch)
            tokens = torch.tensor(self.rows[int(order[position])]["input_ids"])
        length = len(tokens)
        tokens = torch.nn.functional.pad(tokens, (0, SEQUENCE_LENGTH - length))
        # No token looks right, where the padding is. It is no label, and nothing predicts the first.
        labels = tokens.clone()
        labels[0] = labels[length:] = -100
        return {"input_ids": tokens, "labels": labels}


@functools.lru_cache(maxsize=2)
def shuffled(length: int, seed: int) -> torch.Tensor:
    """Return the order in which an epoch reads the rows of text."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def read_rows(args: argparse.Namespace, tokenizer: Any) -> Any:
    """Tokenize the text, cached on disk: packed into blocks of SEQUENCE_LENGTH, or each by itself."""
    from datasets import load_dataset

    if args.dataset:
        name, _, config = args.dataset.partition(":")
        texts = load_dataset(name, config or None, split="train")
    else:
        kind = "text" if args.data.suffix == ".txt" else "json"
        texts = load_dataset(kind, data_files=str(args.data), split="train")
    end = tokenizer.convert_tokens_to_ids(tokenizer.eos_token or tokenizer.sep_token)

    def pack(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        rows = tokenizer(batch["text"], add_special_tokens=False)["input_ids"]
        stream = list(itertools.chain.from_iterable([*row, end] for row in rows if row))
        starts = range(0, len(stream) - SEQUENCE_LENGTH + 1, SEQUENCE_LENGTH)
        return {"input_ids": [stream[start : start + SEQUENCE_LENGTH] for start in starts]}

    def cut(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        rows = tokenizer(batch["text"], add_special_tokens=False)["input_ids"]
        return {"input_ids": [[*row, end][:SEQUENCE_LENGTH] for row in rows if row]}

    columns, divide = texts.column_names, cut if args.padded else pack
    rows = texts.map(divide, batched=True, batch_size=10_000, remove_columns=columns)
    if len(rows) == 0:
        raise SystemExit(f"the text is too short for one sequence of {SEQUENCE_LENGTH} tokens")
    return rows


def read_samples(args: argparse.Namespace, vocabulary: int) -> Samples:
    """Return the training data: text, or synthetic tokens when none was named."""
    if not args.data and not args.dataset:
        return Samples(None, vocabulary, args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        args.tokenizer or args.model, revision="main" if args.tokenizer else args.revision
    )
    return Samples(read_rows(args, tokenizer), vocabulary, args.seed)


def read_config(args: argparse.Namespace) -> Any:
    """Return the model's configuration; random weights take theirs from config.json."""
    source = HERE if args.init == "random" else args.model
    config = transformers.AutoConfig.from_pretrained(source, revision=args.revision)
    for name, value in config.to_dict().items():
        if args.no_dropout and ("dropout" in name or name.endswith("pdrop")) and value:
            setattr(config, name, 0.0)
    return config


def build_model(args: argparse.Namespace, config: Any) -> Any:
    """Return the model with pretrained weights, or random ones that depend on the seed alone."""
    auto = transformers.AutoModelForCausalLM
    torch.manual_seed(args.seed)
    if args.init == "random":
        return auto.from_config(config, **MODEL_OPTIONS).train()
    model = auto.from_pretrained(args.model, config=config, revision=args.revision, **MODEL_OPTIONS)
    return model.train()


class Grid:
    """The processes by what they share; the last axis joins those with the fastest links."""

    def __init__(self, device: torch.device) -> None:
        world_size = dist.get_world_size()
        data, rest = divmod(world_size, 4)
        if rest or not data:
            raise SystemExit(f"{world_size} processes are not a multiple of 4")
        self.mesh = init_device_mesh(
            device.type,
            (PIPELINE_PARALLEL_SIZE, data, TENSOR_PARALLEL_SIZE),
            mesh_dim_names=("pipeline", "data", "tensor"),
        )
        self.batch = self.mesh["data"]
        """Processes with the same parameters, each with its part of the batch."""
        place = self.mesh.get_coordinate()
        self.data_size, self.data_rank = data, place[1]


class Stage(torch.nn.Module):
    """Consecutive layers, with the embeddings before the first and the head after the last."""

    def __init__(self, model: Any, number: int) -> None:
        super().__init__()
        self.number = number
        last = sum(LAYERS_PER_STAGE[: number + 1])
        first = last - LAYERS_PER_STAGE[number]
        trunk = model.model
        self.layers = trunk.layers[first:last]
        self.embeddings = trunk.embed_tokens if first == 0 else None
        self.rotary_emb = trunk.rotary_emb
        is_last = last == len(trunk.layers)
        self.head = torch.nn.Sequential(trunk.norm, model.lm_head) if is_last else None
        self.kept = range(first, last)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after the layers, of tokens or of hidden states; or the logits."""
        with torch.autocast(hidden.device.type, dtype=torch.bfloat16):
            return self.compute(hidden)

    def compute(self, hidden: torch.Tensor) -> torch.Tensor:
        """Do what `forward` says, in the precision that it sets."""
        places = torch.arange(SEQUENCE_LENGTH, device=hidden.device)[None]
        mask = None  # without padding the kernels are told to be causal
        if self.embeddings is not None:
            hidden = self.embeddings(hidden)
        rotary = self.rotary_emb(hidden, places)
        for layer in self.layers:
            hidden = layer(
                hidden, attention_mask=mask, position_ids=places, position_embeddings=rotary
            )
        return hidden if self.head is None else self.head(hidden)


def cut(model: Any, numbers: Iterable[int]) -> list[Stage]:
    """Return the stages of these numbers, and take from the model all that is in none of them."""
    trunk = model.model
    stages = [Stage(model, number) for number in numbers]
    kept = set(itertools.chain.from_iterable(stage.kept for stage in stages))
    for number in range(len(trunk.layers)):
        if number not in kept:
            trunk.layers[number] = torch.nn.Identity()
    if all(stage.embeddings is None for stage in stages):
        trunk.embed_tokens = torch.nn.Identity()
    if all(stage.head is None for stage in stages):
        trunk.norm, model.lm_head = torch.nn.Identity(), torch.nn.Identity()
    return stages


class NextTokenLoss:
    """The cross-entropy of each next token given those before it, in fp32, summed.

    Over the mean number of labels in a micro-batch of the step: so its mean over micro-batches and
    processes is a mean over labels, however much is padding.
    """

    def __init__(self) -> None:
        self.mean_labels = torch.ones(())

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a micro-batch."""
        predicted = logits[:, :-1].flatten(0, 1).float()
        following = labels[:, 1:].flatten()
        total = torch.nn.functional.cross_entropy(predicted, following, reduction="sum")
        return total / self.mean_labels


def divide(model: Any, mesh: DeviceMesh) -> None:
    """Divide the matrices over the processes of a tensor-parallel group.

    Columns of what goes into a block, rows of what comes out of it, so that one sum over the group
    follows each; the vocabulary at both ends, and the loss is computed from its parts.
    Between the blocks each process has its part of the sequence.
    """
    apart, whole = Shard(1), Replicate()
    gather = PrepareModuleInput(input_layouts=apart, desired_input_layouts=whole)
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=apart)
    norm = SequenceParallel(use_local_output=True)
    plan: dict[str, ParallelStyle] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=apart),
        "model.layers.*.*_layernorm": norm,
        "model.layers.*.self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": apart},
            desired_input_kwarg_layouts={"hidden_states": whole},
        ),
        "model.layers.*.mlp": gather,
        "model.norm": norm,
        "lm_head": ColwiseParallel(
            input_layouts=apart, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    # The model's own plan names its matrices; norms inside the heads are divided with them.
    styles = {"colwise": columns, "rowwise": rows}
    heads = SequenceParallel(sequence_dim=2, use_local_output=True)
    for name, style in model.config.base_model_tp_plan.items():
        plan[f"model.{name}"] = styles.get(style, heads)
    parallelize_module(model, mesh, plan)


def settle(model: Any) -> None:
    """Sum the gradients of which each process has a part, such as those of norms."""
    for parameter in model.parameters():
        if isinstance(parameter.grad, DTensor):
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)


def assemble(args: argparse.Namespace, config: Any, grid: Grid, device: torch.device) -> Any:
    """Return the model and its stages here; only rank 0 ever holds it whole, in host memory."""
    source = build_model(args, config) if dist.get_rank() == 0 else None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **MODEL_OPTIONS).train()
    shapes = dict(model.state_dict()) | dict(model.named_buffers())
    divide(model, grid.mesh["tensor"])
    rank = grid.mesh.get_local_rank("pipeline")
    numbers = range(rank, len(LAYERS_PER_STAGE), PIPELINE_PARALLEL_SIZE)
    stages = cut(model, numbers)
    model.to_empty(device=device)
    fill(model, shapes, source, device)
    return model, stages


@torch.no_grad()
def fill(model: Any, shapes: dict[str, Any], source: Any, device: torch.device) -> None:
    """Give every process its parts of rank 0's weights, one tensor after the other."""
    parts = dict(model.state_dict()) | dict(model.named_buffers())
    weights = dict(source.state_dict()) | dict(source.named_buffers()) if source else {}
    for name, like in shapes.items():
        empty = torch.empty(like.shape, dtype=like.dtype, device=device)
        whole = weights[name].to(device) if source else empty
        dist.broadcast(whole, src=0)
        part = parts.get(name)
        if isinstance(part, DTensor):
            placed = distribute_tensor(whole, part.device_mesh, part.placements, src_data_rank=None)
            part.to_local().copy_(placed.to_local())
        elif part is not None:
            part.copy_(whole)


def build_schedule(
    stages: list[Stage],
    loss: NextTokenLoss,
    hidden_size: int,
    micro_batches: int,
    grid: Grid,
    device: torch.device,
) -> Any:
    """Return the schedule that runs micro-batches through the stages here and elsewhere."""
    tokens = torch.empty(MICRO_BATCH_SIZE, SEQUENCE_LENGTH, dtype=torch.long, device="meta")
    hidden = torch.empty(
        MICRO_BATCH_SIZE,
        SEQUENCE_LENGTH // TENSOR_PARALLEL_SIZE,
        hidden_size,
        dtype=torch.float32,
        device="meta",
        requires_grad=True,
    )
    group = grid.mesh["pipeline"].get_group()
    pieces = [
        PipelineStage(
            stage,
            stage.number,
            len(LAYERS_PER_STAGE),
            device,
            input_args=hidden if stage.embeddings is None else tokens,
            output_args=hidden,
            group=group,
        )
        for stage in stages
    ]
    return Schedule1F1B(pieces[0], micro_batches, loss)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def average_gradients(model: Any, mesh: DeviceMesh) -> None:
    """Average the gradients over the processes with the same parameters."""
    handles = []
    for parameter in model.parameters():
        gradient = local(parameter.grad)
        gradient /= mesh.size()
        handles.append(dist.all_reduce(gradient, group=mesh.get_group(), async_op=True))
    for handle in handles:
        handle.wait()


def clip(model: Any, most: float, device: torch.device) -> None:
    """Scale the gradients so that their norm over all processes is `most`, if it is more.

    Each process adds up the squares of its parts, divided by how many processes have the same.
    """
    total = torch.zeros((), device=device)
    for parameter in model.parameters():
        copies = dist.get_world_size() // PIPELINE_PARALLEL_SIZE
        if isinstance(parameter, DTensor):
            sizes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
            copies //= math.prod(size for size, kind in sizes if not kind.is_replicate())
        norm = torch.linalg.vector_norm(local(parameter.grad), dtype=torch.float32)
        total += norm.to(device) ** 2 / copies
    dist.all_reduce(total)
    scale = torch.clamp(most / (total.sqrt() + 1e-6), max=1.0)
    for parameter in model.parameters():
        gradient = local(parameter.grad)
        gradient *= scale.to(gradient.device)


def deal(parameters: list[torch.Tensor], size: int) -> list[int]:
    """Return which process steps each parameter, so that all have about as many elements."""
    loads, owners = [0] * size, [0] * len(parameters)
    for number in sorted(range(len(parameters)), key=lambda n: -parameters[n].numel()):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += parameters[number].numel()
    return owners


def groups(parameters: Iterable[torch.Tensor]) -> list[dict[str, Any]]:
    """Return groups of parameters that can be stepped together: those on the same processes."""
    by_mesh: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        by_mesh.setdefault(mesh, []).append(parameter)
    return [{"params": group} for group in by_mesh.values()] or [{"params": []}]


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(
        self, args: argparse.Namespace, config: Any, grid: Grid, device: torch.device
    ) -> None:
        self.model, stages = assemble(args, config, grid, device)
        self.parameters = list(self.model.parameters())
        self.owners = deal(self.parameters, grid.batch.size())
        rank = grid.batch.get_local_rank()
        pairs = zip(self.parameters, self.owners, strict=True)
        mine = groups(parameter for parameter, owner in pairs if owner == rank)
        self.optimizer = torch.optim.AdamW(mine, weight_decay=args.weight_decay)
        self.grid = grid
        self.device = device
        self.step = 0
        self.micro_batches, rest = divmod(GLOBAL_BATCH_SIZE, MICRO_BATCH_SIZE * grid.data_size)
        if rest:
            stride = MICRO_BATCH_SIZE * grid.data_size
            raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
        self.loss = NextTokenLoss()
        self.schedule = build_schedule(
            stages, self.loss, config.hidden_size, self.micro_batches, grid, device
        )
        self.has_head = any(stage.head is not None for stage in stages)
        self.has_embeddings = any(stage.embeddings is not None for stage in stages)

    def state(self) -> dict[str, Any]:
        """Return this process's parts of the state, under the names of the whole model."""
        options = sharded.StateDictOptions(flatten_optimizer_state_dict=True)
        model, optimizer = sharded.get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        partial = folder.with_name(f"{folder.name}.partial")
        dcp.save(self.state(), checkpoint_id=partial)
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, of any layout of the same model."""
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        sharded.set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=sharded.StateDictOptions(flatten_optimizer_state_dict=True),
        )
        self.step = int(state["step"])

    def save_model(self, folder: Path) -> None:
        """Write the whole weights as safetensors from rank 0."""
        rank, *others = self.grid.mesh.get_coordinate()
        is_writer = not any(others)
        weights: dict[str, torch.Tensor] = {}
        for name, part in self.model.state_dict().items():
            weight = part.full_tensor() if isinstance(part, DTensor) else part
            if is_writer:
                weights[name] = weight.cpu()
        stages: list[Any] | None = None if rank else [None] * PIPELINE_PARALLEL_SIZE
        group = self.grid.mesh["pipeline"].get_group()
        dist.gather_object(weights, stages, group=group, group_dst=0)
        weights = {name: weight for stage in stages or [] for name, weight in stage.items()}
        if dist.get_rank() == 0:
            self.model.save_pretrained(folder, state_dict=weights)


def learning_rate(args: argparse.Namespace, step: int) -> float:
    """Rise linearly during the warm-up, then fall to a tenth along a cosine."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.55 + 0.45 * math.cos(math.pi * done))


class Report:
    """Progress beside what the plan expects: a bar on a terminal, else one line per step."""

    def __init__(self, args: argparse.Namespace, start: int, world_size: int) -> None:
        self.args = args
        self.world_size = world_size
        self.bar = tqdm(total=args.steps, initial=start, disable=not sys.stderr.isatty())
        self.clock = time.perf_counter()

    def show(self, step: int, loss: float) -> None:
        """Show and log one optimizer step, timed from the call before."""
        now = time.perf_counter()
        speed = GLOBAL_BATCH_SIZE * SEQUENCE_LENGTH / (now - self.clock)
        self.clock = now
        line = f"loss {loss:.4f}, {speed:,.0f} tokens/s"
        line += f" (plan {EXPECTED_TOKENS_PER_SECOND * self.world_size:,.0f})"
        line += f", MFU {speed * FLOPS_PER_TOKEN / PEAK_FLOPS_PER_SECOND / self.world_size:.1%}"
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated() / 2**30
            line += f", peak {peak:.2f} GiB on rank 0 (plan {EXPECTED_PEAK_GIB:.2f} on the fullest)"
        self.bar.set_postfix_str(line)
        self.bar.update()
        if self.bar.disable:
            print(f"step {step}/{self.args.steps}: {line}", flush=True)
        if self.args.log:
            record = {"step": step, "loss": loss, "tokens_per_second": speed}
            with self.args.log.open("a") as log:
                log.write(json.dumps(record | {"world_size": self.world_size}) + "\n")


def profiler(args: argparse.Namespace, rank: int) -> Any:
    """Return what writes a trace of the third to fifth step, or does nothing."""
    if not args.profile:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(args.profile, f"rank-{rank}"),
        profile_memory=True,
    )


def join() -> torch.device:
    """Join the other processes, or be a group of one; return this process's device."""
    options: dict[str, Any] = {"timeout": datetime.timedelta(minutes=30)}  # ranks wait for loading
    if "RANK" not in os.environ:
        options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", **options)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", **options)
    return device


def read_batch(samples: Samples, training: Training) -> dict[str, torch.Tensor]:
    """Return this process's sequences of the step, one micro-batch after the other."""
    grid, rows = training.grid, []
    for number in range(training.micro_batches):
        first = training.step * GLOBAL_BATCH_SIZE
        first += (number * grid.data_size + grid.data_rank) * MICRO_BATCH_SIZE
        rows += [samples[first + i] for i in range(MICRO_BATCH_SIZE)]
    return {name: tensor.to(training.device) for name, tensor in default_collate(rows).items()}


def count_labels(training: Training, labels: torch.Tensor) -> torch.Tensor:
    """Return how many tokens a micro-batch of the step predicts, on average over all processes."""
    mean = (labels != -100).sum() / training.micro_batches
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def accumulate(args: argparse.Namespace, training: Training, batch: dict[str, Any]) -> torch.Tensor:
    """Add up the gradients of the micro-batches; return their mean loss, 0 where there is none."""
    losses: list[torch.Tensor] = []
    inputs = (batch["input_ids"],) if training.has_embeddings else ()
    outputs = {"target": batch["labels"], "losses": losses} if training.has_head else {}
    with loss_parallel():
        training.schedule.step(*inputs, **outputs, return_outputs=False)
    zero = torch.zeros((), device=training.device)
    return torch.stack([local(loss.detach()) for loss in losses]).mean() if losses else zero


def train_step(args: argparse.Namespace, training: Training, batch: dict[str, Any]) -> float:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    model, optimizer = training.model, training.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    training.loss.mean_labels = count_labels(training, batch["labels"])
    total = accumulate(args, training, batch)
    settle(model)
    average_gradients(model, training.grid.batch)
    clip(model, args.clip, training.device)
    optimizer.step()
    share_parameters(training)
    model.zero_grad()
    training.step += 1
    dist.all_reduce(total)
    return total.item() / (dist.get_world_size() // PIPELINE_PARALLEL_SIZE)


@torch.no_grad()
def share_parameters(training: Training) -> None:
    """Give every process the parameters that another one has stepped."""
    group = training.grid.batch.get_group()
    handles = [
        dist.broadcast(local(parameter), group=group, group_src=owner, async_op=True)
        for parameter, owner in zip(training.parameters, training.owners, strict=True)
    ]
    for handle in handles:
        handle.wait()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Take the steps that are left, and save what was asked for."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config = read_config(args)
    samples = read_samples(args, config.vocab_size)
    training = Training(args, config, Grid(device), device)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if rank == 0 else None
    with profiler(args, rank) as profile:
        while training.step < args.steps:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            # Processes of a tensor-parallel group must drop the same.
            stream = rank // TENSOR_PARALLEL_SIZE
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + stream)
            loss = train_step(args, training, read_batch(samples, training))
            if report:
                report.show(training.step, loss)
            if profile:
                profile.step()
            if args.save_every and training.step % args.save_every == 0:
                training.save(args.output / f"step-{training.step}")
    if args.save_model:
        training.save_model(args.save_model)
    dist.barrier()


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    args = parse_arguments()
    train(args, join())
    gc.collect()  # the model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
