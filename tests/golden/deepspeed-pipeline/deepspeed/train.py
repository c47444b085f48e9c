"""Train a causal-lm model with DeepSpeed's data parallelism, a pipeline on 1 x 4 GPUs, by DeepSpeed.

Train openai-community/gpt2 on 1 node x 4 a100-sxm-80gb = 4 GPUs with DDP, pipeline parallel 2
(1f1b), full activation recompute, micro-batch 1 x 32 accumulation x 2 ranks = 64 sequences per
step.

Start it with launch.sh beside it; ds_config.json has the batch, the precision and ZeRO's stage.
"""

import argparse
import contextlib
import functools
import itertools
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import transformers
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, default_collate
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
MODEL = "openai-community/gpt2"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 1  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 769503744.0  # forward and backward
PEAK_FLOPS_PER_SECOND = 19500000000000.0  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 9001.02  # of one GPU
EXPECTED_PEAK_GIB = 1.53
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (6, 6)


def parse_arguments() -> argparse.Namespace:
    """Read the command line; the defaults are the plan's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", default=MODEL, help="Hub id or local folder")
    add("--revision", default=REVISION, help="branch, tag or commit of the model on the Hub")
    add("--init", choices=["pretrained", "random"], default="pretrained")
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


def data_parallel_size() -> int:
    """Return how many pipelines run side by side."""
    size, rest = divmod(dist.get_world_size(), PIPELINE_PARALLEL_SIZE)
    if rest:
        raise SystemExit(f"the processes are not a multiple of the {PIPELINE_PARALLEL_SIZE} stages")
    return size


def read_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return ds_config.json with the command line's clipping and this run's accumulation."""
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    if GLOBAL_BATCH_SIZE % stride:
        raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
    settings = json.loads((HERE / "ds_config.json").read_text())
    accumulation = {"gradient_accumulation_steps": GLOBAL_BATCH_SIZE // stride}
    return settings | accumulation | {"gradient_clipping": args.clip}


class Part(torch.nn.Module):
    """A part of the model, whose memory is allocated by the stage that runs it."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part.to_empty(device="cpu")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the part makes of tokens or hidden states."""
        return self.part(hidden)


class Positions(Part):
    """The embeddings of the positions."""

    def __init__(self, part: Any, dropout: Any) -> None:
        super().__init__(part)
        self.dropout = dropout

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of tokens, with those of their positions added."""
        return self.dropout(hidden + self.part(torch.arange(SEQUENCE_LENGTH, device=hidden.device)))


class Block(Part):
    """One of the repeated layers."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states after the layer."""
        mask = None  # without padding the kernels are told to be causal
        return self.part(hidden, attention_mask=mask)


def logits(embedding: Part, hidden: torch.Tensor) -> torch.Tensor:
    """Return a score for every token: the head is the embedding of the tokens."""
    return torch.nn.functional.linear(hidden, embedding.part.weight)


def layers(model: Any) -> list[LayerSpec]:
    """Return the model as the list that its stages divide."""
    trunk = model.transformer
    return [
        # Each end of the pipeline has a copy; DeepSpeed adds up the gradients of both.
        TiedLayerSpec("tokens", Part, trunk.wte, tied_weight_attr="part.weight"),
        LayerSpec(Positions, trunk.wpe, trunk.drop),
        *(LayerSpec(Block, block) for block in trunk.h),
        LayerSpec(Part, trunk.ln_f),
        TiedLayerSpec(
            "tokens",
            Part,
            trunk.wte,
            forward_fn=logits,
            tied_weight_attr="part.weight",
        ),
    ]


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


class Pipeline(PipelineModule):
    """The stages, with the plan's numbers of blocks; DeepSpeed itself would balance them."""

    def _partition_layers(self, method: str = "uniform") -> None:
        specs = self._layer_specs
        first = next(n for n, spec in enumerate(specs) if spec.typename is Block)
        ends = itertools.accumulate(LAYERS_PER_STAGE[:-1], initial=first)
        self.parts = [0, *itertools.islice(ends, 1, None), len(specs)]
        self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])


@torch.no_grad()
def assemble(args: argparse.Namespace, config: Any) -> tuple[Any, Pipeline]:
    """Return the model and its stage here; only rank 0 ever holds it whole, in host memory.

    What other stages run stays on the meta device, without memory.
    """
    source = build_model(args, config) if dist.get_rank() == 0 else None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **MODEL_OPTIONS).train()
    shapes = dict(model.named_parameters()) | dict(model.named_buffers())
    stage = Pipeline(
        layers(model),
        topology=PipeDataParallelTopology(PIPELINE_PARALLEL_SIZE, data_parallel_size()),
        loss_fn=NextTokenLoss(),
        activation_checkpoint_interval=1,
        activation_checkpoint_func=functools.partial(checkpoint, use_reentrant=False),
        checkpointable_layers=["Block"],
    )
    fill(model, shapes, source)
    return model, stage


def parts(model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of this stage under transformers' names."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in tensors.items() if not tensor.is_meta}


@torch.no_grad()
def fill(model: Any, shapes: dict[str, Any], source: Any) -> None:
    """Give every process its parts of rank 0's weights, one tensor after the other."""
    here = parts(model)
    device = next(iter(here.values())).device
    weights = dict(source.named_parameters()) | dict(source.named_buffers()) if source else {}
    for name, like in shapes.items():
        whole = weights[name].to(device) if source else torch.empty_like(like, device=device)
        dist.broadcast(whole, src=0)
        if name in here:
            here[name].copy_(whole)


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, args: argparse.Namespace, config: Any) -> None:
        settings = read_settings(args)
        self.model, stage = assemble(args, config)
        # DeepSpeed's clipping leaves out later stages, unless their parameters are marked.
        for parameter in stage.parameters():
            parameter.model_parallel = not parameter.ds_pipe_replicated
        # PyTorch's fused AdamW runs on GPUs and CPUs alike, with nothing to compile.
        optimizer = torch.optim.AdamW(
            stage.parameters(), weight_decay=args.weight_decay, fused=True
        )
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=stage, optimizer=optimizer, config=settings
        )
        self.step = 0

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        partial = folder.with_name(f"{folder.name}.partial")
        self.engine.save_checkpoint(str(partial), tag="state", client_state={"step": self.step})
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, on as many processes as wrote it."""
        _, state = self.engine.load_checkpoint(str(folder), tag="state")
        self.step = int(state["step"])

    def save_model(self, folder: Path) -> None:
        """Write the whole weights as safetensors from rank 0, which gets one tensor at a time."""
        rank, here, weights = dist.get_rank(), parts(self.model), {}
        held: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(held, [*here])
        like = next(self.engine.module.parameters())
        for name, tensor in self.model.state_dict().items():
            owner = next((owner for owner, names in enumerate(held) if name in names), None)
            if owner is None:
                continue  # a saved model holds tied weights once
            empty = torch.empty_like(tensor, dtype=like.dtype, device=like.device)
            whole = here[name].detach() if rank == owner else empty
            dist.broadcast(whole, src=owner)
            if rank == 0:
                weights[name] = whole.cpu()
        if rank == 0:
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


def micro_batches(samples: Samples, training: Training) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return this pipeline's slice of each micro-batch: tokens, and labels for its last stage."""
    number = dist.get_rank() % data_parallel_size()
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    batches = []
    for offset in range(0, GLOBAL_BATCH_SIZE, stride):
        first = training.step * GLOBAL_BATCH_SIZE + offset + number * MICRO_BATCH_SIZE
        batch = default_collate([samples[first + i] for i in range(MICRO_BATCH_SIZE)])
        batches.append((batch["input_ids"], batch["labels"]))
    return batches


def count_labels(training: Training, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return how many tokens a micro-batch of the step predicts, on average over all processes."""
    counts = torch.stack([(labels != -100).sum() for _, labels in batches])
    mean = counts.float().mean().to(training.engine.device)
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def train_step(
    args: argparse.Namespace,
    training: Training,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
) -> float:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    training.engine.module.loss_fn.mean_labels = count_labels(training, batches)
    loss = training.engine.train_batch(iter(batches))
    training.step += 1
    return loss.item()


def train(args: argparse.Namespace) -> None:
    """Take the steps that are left, and save what was asked for."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    config = read_config(args)
    samples = read_samples(args, config.vocab_size)
    training = Training(args, config)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if rank == 0 else None
    with profiler(args, rank) as profile:
        while training.step < args.steps:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + rank)
            loss = train_step(args, training, micro_batches(samples, training))
            if report:
                report.show(training.step, loss)
            if profile:
                profile.step()
            if args.save_every and training.step % args.save_every == 0:
                training.save(args.output / f"step-{training.step}")
    if args.save_model:
        training.save_model(args.save_model)
    dist.barrier()
    training.engine.destroy()


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    args = parse_arguments()
    deepspeed.init_distributed()
    deepspeed.get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
