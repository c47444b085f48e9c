"""Train a causal-lm model with DeepSpeed ZeRO-3 on 1 x 4 GPUs, by DeepSpeed.

Train tiny-llama on 1 node x 4 a100-sxm-80gb = 4 GPUs with ZeRO-3, offload of optimizer, micro-batch
16 x 1 accumulation x 4 ranks = 64 sequences per step.

Start it with launch.sh beside it; ds_config.json says what is sharded, and how.
"""

import argparse
import contextlib
import functools
import itertools
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import transformers
from torch.utils.data import Dataset, default_collate
from tqdm import tqdm
from transformers.integrations import HfDeepSpeedConfig

HERE = Path(__file__).resolve().parent
MODEL = "tiny-llama"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 16  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 224133120.0  # forward and backward
PEAK_FLOPS_PER_SECOND = 312_000_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 223377.25349137824  # of one GPU
EXPECTED_PEAK_GIB = 5.2


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


def read_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return ds_config.json with the command line's clipping and this run's accumulation."""
    stride = MICRO_BATCH_SIZE * dist.get_world_size()
    if GLOBAL_BATCH_SIZE % stride:
        raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
    settings = json.loads((HERE / "ds_config.json").read_text())
    accumulation = {"gradient_accumulation_steps": GLOBAL_BATCH_SIZE // stride}
    return settings | accumulation | {"gradient_clipping": args.clip}


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, args: argparse.Namespace, config: Any) -> None:
        settings = read_settings(args)
        # While this object lives, transformers builds and loads models in shards.
        self.sharding = HfDeepSpeedConfig(settings)
        model = build_model(args, config)
        # PyTorch's fused AdamW runs on GPUs and CPUs alike, with nothing to compile.
        optimizer = torch.optim.AdamW(
            model.parameters(), weight_decay=args.weight_decay, fused=True
        )
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=settings
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
        """Write the whole weights as safetensors from rank 0."""
        model = self.engine.module
        names = model.state_dict().keys()
        weights = {name: buffer for name, buffer in model.named_buffers() if name in names}
        for name, parameter in model.named_parameters():
            with deepspeed.zero.GatheredParameters(parameter):
                if dist.get_rank() == 0:
                    weights[name] = parameter.detach().cpu().clone()
        if dist.get_rank() == 0:
            model.save_pretrained(folder, state_dict=weights)


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
            line += f", peak {peak:.2f} GiB (plan {EXPECTED_PEAK_GIB:.2f})"
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


def micro_batches(samples: Samples, training: Training) -> list[dict[str, Any]]:
    """Return this rank's slice of each micro-batch of the step."""
    stride = MICRO_BATCH_SIZE * dist.get_world_size()
    batches = []
    for offset in range(0, GLOBAL_BATCH_SIZE, stride):
        first = training.step * GLOBAL_BATCH_SIZE + offset + dist.get_rank() * MICRO_BATCH_SIZE
        batch = default_collate([samples[first + i] for i in range(MICRO_BATCH_SIZE)])
        batches.append({name: tensor.to(training.engine.device) for name, tensor in batch.items()})
    return batches


def weigh(batches: list[dict[str, Any]]) -> torch.Tensor:
    """Return the weight of each micro-batch's loss, a mean: its labels, over their mean number.

    So the sum over all micro-batches and processes is a mean over labels, however much is padding.
    """
    counts = torch.stack([(batch["labels"] != -100).sum() for batch in batches]).float()
    mean = counts.mean()
    dist.all_reduce(mean)
    return counts * dist.get_world_size() / mean


def train_step(args: argparse.Namespace, training: Training, batches: list[dict[str, Any]]) -> Any:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    engine = training.engine
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    total = torch.zeros((), device=engine.device)
    for batch, weight in zip(batches, weigh(batches), strict=True):
        loss = engine(**batch, use_cache=False).loss * weight
        engine.backward(loss)  # divides by the accumulation steps
        engine.step()  # acts after the last micro-batch alone
        total += loss.detach() / len(batches)
    training.step += 1
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


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
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
