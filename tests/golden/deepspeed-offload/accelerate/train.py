"""Train a causal-lm model with DeepSpeed ZeRO-3 on 1 x 4 GPUs, by Accelerate.

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

import torch
import transformers
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm import tqdm

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


def build_accelerator(args: argparse.Namespace) -> Accelerator:
    """Return the accelerator, with the command line's clipping and this run's accumulation."""
    accumulation = GradientAccumulationPlugin(num_steps=1, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=accumulation)
    if not accelerator.deepspeed_plugin:
        raise SystemExit("Accelerate has no DeepSpeed here: start this with launch.sh, on GPUs")
    stride = MICRO_BATCH_SIZE * accelerator.num_processes
    if GLOBAL_BATCH_SIZE % stride:
        raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
    accelerator.gradient_accumulation_steps = GLOBAL_BATCH_SIZE // stride
    settings = accelerator.deepspeed_plugin.deepspeed_config
    settings["gradient_accumulation_steps"] = accelerator.gradient_accumulation_steps
    settings["gradient_clipping"] = args.clip
    return accelerator


def build_loader(samples: Samples, start: int, args: argparse.Namespace) -> DataLoader:
    """Return the micro-batches of all steps from `start` on; Accelerate deals them to the ranks."""
    left = range(start * GLOBAL_BATCH_SIZE, args.steps * GLOBAL_BATCH_SIZE)
    generator = torch.Generator()  # without its own, starting the loader would disturb dropout's
    return DataLoader(Subset(samples, left), batch_size=MICRO_BATCH_SIZE, generator=generator)


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, accelerator: Accelerator, args: argparse.Namespace) -> None:
        self.accelerator = accelerator
        self.step = json.loads((args.resume / "step.json").read_text()) if args.resume else 0
        config = read_config(args)
        samples = read_samples(args, config.vocab_size)
        loader = build_loader(samples, self.step, args)
        model = build_model(args, config)
        # PyTorch's fused AdamW runs on GPUs and CPUs alike, with nothing to compile.
        optimizer = torch.optim.AdamW(
            model.parameters(), weight_decay=args.weight_decay, fused=True
        )
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        partial = folder.with_name(f"{folder.name}.partial")
        self.accelerator.save_state(str(partial))
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            (partial / "step.json").write_text(json.dumps(self.step))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        self.accelerator.wait_for_everyone()

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint."""
        self.accelerator.load_state(str(folder))

    def save_model(self, folder: Path) -> None:
        """Write the whole weights as safetensors from rank 0."""
        weights = self.accelerator.get_state_dict(self.model)
        model = self.accelerator.unwrap_model(self.model)
        is_main = self.accelerator.is_main_process
        model.save_pretrained(folder, is_main_process=is_main, state_dict=weights)


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


def weigh(accelerator: Accelerator, batches: list[dict[str, Any]]) -> torch.Tensor:
    """Return the weight of each micro-batch's loss, a mean: its labels, over their mean number.

    So the sum over all micro-batches and processes is a mean over labels, however much is padding.
    """
    counts = torch.stack([(batch["labels"] != -100).sum() for batch in batches]).float()
    return counts / accelerator.reduce(counts.mean(), reduction="mean")


def train_step(args: argparse.Namespace, training: Training, batches: Any) -> float:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    accelerator, model, optimizer = training.accelerator, training.model, training.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    total = torch.zeros((), device=accelerator.device)
    # All are read before the first is computed. So the loader ends early, and must not tell when to
    # reduce: sync_with_dataloader=False.
    own = list(itertools.islice(batches, accelerator.gradient_accumulation_steps))
    for batch, weight in zip(own, weigh(accelerator, own), strict=True):
        with accelerator.accumulate(model):
            loss = model(**batch, use_cache=False).loss * weight
            accelerator.backward(loss)  # after the last micro-batch it clips and takes the step too
        total += loss.detach() / accelerator.gradient_accumulation_steps
    training.step += 1
    return accelerator.reduce(total, reduction="mean").item()


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    args = parse_arguments()
    accelerator = build_accelerator(args)
    rank, world_size = accelerator.process_index, accelerator.num_processes
    training = Training(accelerator, args)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if accelerator.is_main_process else None
    batches = iter(training.loader)
    with profiler(args, rank) as profile:
        while training.step < args.steps:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + rank)
            loss = train_step(args, training, batches)
            if report:
                report.show(training.step, loss)
            if profile:
                profile.step()
            if args.save_every and training.step % args.save_every == 0:
                training.save(args.output / f"step-{training.step}")
    if args.save_model:
        training.save_model(args.save_model)
    accelerator.wait_for_everyone()
    training.model.destroy()
    accelerator.end_training()


if __name__ == "__main__":
    main()
