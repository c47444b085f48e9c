"""Train a sequence-classification model with FSDP2 (ZeRO-3) on 1 x 2 GPUs, by Accelerate.

Train FacebookAI/roberta-base on 1 node x 2 t4 = 2 GPUs with ZeRO-3 (FSDP, full shard), micro-batch
32 x 1 accumulation x 2 ranks = 64 sequences per step.

Start it with launch.sh beside it; accelerate.yaml says what is parallel, and how.
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
from accelerate.utils import FullyShardedDataParallelPlugin, GradientAccumulationPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
MODEL = "FacebookAI/roberta-base"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 32  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 566237970.0  # forward and backward
PEAK_FLOPS_PER_SECOND = 65_000_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 39206.582375690705  # of one GPU
EXPECTED_PEAK_GIB = 5.63


def parse_arguments() -> argparse.Namespace:
    """Read the command line; the defaults are the plan's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", default=MODEL, help="Hub id or local folder")
    add("--revision", default=REVISION, help="branch, tag or commit of the model on the Hub")
    add("--init", choices=["pretrained", "random"], default="pretrained")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--data", type=Path, help="local .jsonl with the fields text and label")
    text.add_argument("--dataset", help="Hub dataset with those columns, NAME[:CONFIG]")
    add("--labels", type=int, help="number of classes; default: the model's")
    add("--tokenizer", help="default: the model's")
    add("--steps", "--max-steps", type=int, default=100, help="optimizer steps in all")
    add("--lr", type=float, default=3e-4, help="learning rate after the warm-up")
    add("--warmup", type=int, default=10, help="steps of linear warm-up")
    add("--weight-decay", type=float, default=0.01)
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0)
    add("--no-dropout", action="store_true")
    add("--no-sync", action="store_true", help="reduce gradients once a step, not per micro-batch")
    add("--profile", help="folder for a trace of the third to fifth step")
    add("--log", type=Path, help="append one JSON line per step")
    add("--save-every", type=int, default=0, help="steps between checkpoints; 0: none")
    add("--output", type=Path, default=Path("checkpoints"), help="where checkpoints go")
    add("--resume", type=Path, help="a checkpoint, such as checkpoints/step-100")
    add("--save-model", type=Path, help="where the final weights go, as safetensors")
    return parser.parse_args()


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Samples in training order; sample i is a pure function of (seed, i) on every process.

    Synthetic tokens are `randint(vocabulary)` of a generator seeded with `seed * 1_000_003 + i`,
    which then draws their class, `randint(labels)`. Text is read in another random order every
    epoch, padded on the right, and the padding masked.
    """

    def __init__(self, rows: Any, vocabulary: int, labels: int, seed: int) -> None:
        self.rows = rows
        self.vocabulary = vocabulary
        self.labels = labels
        self.seed = seed

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if self.rows is None:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
            tokens = torch.randint(self.vocabulary, (SEQUENCE_LENGTH,), generator=generator)
            label = torch.randint(self.labels, (), generator=generator)
            return {"input_ids": tokens, "labels": label}
        epoch, position = divmod(index, len(self.rows))
        row = self.rows[int(shuffled(len(self.rows), self.seed + epoch)[position])]
        tokens, length = torch.tensor(row["input_ids"]), len(row["input_ids"])
        return {
            "input_ids": torch.nn.functional.pad(tokens, (0, SEQUENCE_LENGTH - length)),
            "attention_mask": (torch.arange(SEQUENCE_LENGTH) < length).long(),
            "labels": torch.tensor(int(row["labels"])),
        }


@functools.lru_cache(maxsize=2)
def shuffled(length: int, seed: int) -> torch.Tensor:
    """Return the order in which an epoch reads the rows of text."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def read_rows(args: argparse.Namespace, tokenizer: Any, labels: int) -> Any:
    """Tokenize texts, cut at SEQUENCE_LENGTH, and read their classes; cached on disk."""
    from datasets import load_dataset

    if args.dataset:
        name, _, config = args.dataset.partition(":")
        texts = load_dataset(name, config or None, split="train")
    else:
        kind = "text" if args.data.suffix == ".txt" else "json"
        texts = load_dataset(kind, data_files=str(args.data), split="train")
    if "label" not in texts.column_names:
        raise SystemExit("every text needs its class, in a column named label")

    def cut(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = tokenizer(batch["text"], truncation=True, max_length=SEQUENCE_LENGTH)["input_ids"]
        pairs = [(row, label) for row, label in zip(rows, batch["label"], strict=True) if row]
        return {"input_ids": [row for row, _ in pairs], "labels": [label for _, label in pairs]}

    columns = texts.column_names
    rows = texts.map(cut, batched=True, batch_size=10_000, remove_columns=columns)
    if len(rows) == 0:
        raise SystemExit("there is no text to train on")
    if not set(rows.unique("labels")) <= set(range(labels)):
        raise SystemExit(f"a label is a whole number from 0 to {labels - 1}: see --labels")
    return rows


def read_samples(args: argparse.Namespace, vocabulary: int, labels: int) -> Samples:
    """Return the training data: text, or synthetic tokens when none was named."""
    if not args.data and not args.dataset:
        return Samples(None, vocabulary, labels, args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        args.tokenizer or args.model, revision="main" if args.tokenizer else args.revision
    )
    return Samples(read_rows(args, tokenizer, labels), vocabulary, labels, args.seed)


def read_config(args: argparse.Namespace) -> Any:
    """Return the model's configuration; random weights take theirs from config.json."""
    source = HERE if args.init == "random" else args.model
    config = transformers.AutoConfig.from_pretrained(source, revision=args.revision)
    for name, value in config.to_dict().items():
        if args.no_dropout and ("dropout" in name or name.endswith("pdrop")) and value:
            setattr(config, name, 0.0)
    config.num_labels = args.labels or config.num_labels
    config.problem_type = "single_label_classification"
    if config.num_labels == 1:
        raise SystemExit("a model of one class learns nothing: --labels N")
    return config


def build_model(args: argparse.Namespace, config: Any) -> Any:
    """Return the model with pretrained weights, or random ones that depend on the seed alone."""
    auto = transformers.AutoModelForSequenceClassification
    torch.manual_seed(args.seed)
    if args.init == "random":
        return auto.from_config(config, **MODEL_OPTIONS).train()
    # The head of another number of classes is drawn anew.
    options = MODEL_OPTIONS | {"revision": args.revision, "ignore_mismatched_sizes": True}
    return auto.from_pretrained(args.model, config=config, **options).train()


def blocks(model: Any) -> list[torch.nn.Module]:
    """Return the repeated blocks, each of which is gathered and computed as a whole."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    names = model._no_split_modules or ()
    return [block for block in itertools.chain(*lists) if type(block).__name__ in names]


def build_accelerator(args: argparse.Namespace) -> Accelerator:
    """Return the accelerator that accelerate.yaml describes."""
    # Reducing after every micro-batch keeps the gradients sharded. --no-sync saves that traffic,
    # but holds the whole gradient on every rank until the last micro-batch.
    accumulation = GradientAccumulationPlugin(
        num_steps=1, sync_with_dataloader=False, sync_each_batch=not args.no_sync
    )
    # The yaml alone would also reduce gradients in float16.
    policy = MixedPrecisionPolicy(torch.float16, reduce_dtype=torch.float32)
    return Accelerator(
        gradient_accumulation_plugin=accumulation,
        fsdp_plugin=FullyShardedDataParallelPlugin(mixed_precision_policy=policy),
    )


def build_loader(samples: Samples, start: int, args: argparse.Namespace) -> DataLoader:
    """Return the micro-batches of all steps from `start` on; Accelerate deals them to the ranks."""
    left = range(start * GLOBAL_BATCH_SIZE, args.steps * GLOBAL_BATCH_SIZE)
    generator = torch.Generator()  # without its own, starting the loader would disturb dropout's
    return DataLoader(Subset(samples, left), batch_size=MICRO_BATCH_SIZE, generator=generator)


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, accelerator: Accelerator, args: argparse.Namespace) -> None:
        stride = MICRO_BATCH_SIZE * accelerator.num_processes
        if GLOBAL_BATCH_SIZE % stride:
            raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
        accelerator.gradient_accumulation_steps = GLOBAL_BATCH_SIZE // stride
        self.accelerator = accelerator
        self.step = json.loads((args.resume / "step.json").read_text()) if args.resume else 0
        config = read_config(args)
        samples = read_samples(args, config.vocab_size, config.num_labels)
        loader = build_loader(samples, self.step, args)
        model = build_model(args, config)
        # Accelerate shards by this list, where some models have their tied embeddings too.
        model._no_split_modules = sorted({type(block).__name__ for block in blocks(model)})
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=args.weight_decay)
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
        for name in model.all_tied_weights_keys:  # gathered once under each of their names
            weights.pop(name, None)
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
            loss = model(**batch).loss * weight
            accelerator.backward(loss)  # divides by the accumulation steps
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
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
    accelerator.end_training()


if __name__ == "__main__":
    main()
