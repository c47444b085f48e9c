"""Train a causal-lm model with FSDP2 (ZeRO-3) on 1 x 4 GPUs, by transformers' Trainer.

Train tiny-llama on 1 node x 4 a100-sxm-80gb = 4 GPUs with ZeRO-3 (FSDP, full shard), full
activation recompute, micro-batch 16 x 1 accumulation x 4 ranks = 64 sequences per step.

Start it with launch.sh beside it; training_arguments.json says what is parallel, and how.
"""

import argparse
import contextlib
import functools
import itertools
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset, Subset
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
EXPECTED_TOKENS_PER_SECOND = 302604.0650365165  # of one GPU
EXPECTED_PEAK_GIB = 3.23
WRAPPER = "FSDPModule"  # the class that Trainer must have put around the model


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


def profiler(args: argparse.Namespace, rank: int) -> Any:
    """Return what writes a trace of the third to fifth step, or does nothing."""
    if not args.profile:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(args.profile, f"rank-{rank}"),
        profile_memory=True,
    )


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


def read_settings(args: argparse.Namespace) -> transformers.TrainingArguments:
    """Return training_arguments.json with the command line and this run's accumulation."""
    settings = json.loads((HERE / "training_arguments.json").read_text())
    if not torch.cuda.is_available():
        settings |= {"use_cpu": True, "ddp_backend": "gloo"}
    settings |= {"max_steps": args.steps, "max_grad_norm": args.clip, "seed": args.seed}
    settings |= {"learning_rate": args.lr, "weight_decay": args.weight_decay}
    settings |= {"save_strategy": "steps", "save_steps": args.save_every} if args.save_every else {}
    stride = MICRO_BATCH_SIZE * int(os.environ.get("WORLD_SIZE", "1"))
    if GLOBAL_BATCH_SIZE % stride:
        raise SystemExit(f"{GLOBAL_BATCH_SIZE} sequences are not a multiple of {stride}")
    settings["gradient_accumulation_steps"] = GLOBAL_BATCH_SIZE // stride
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (parsed,) = parser.parse_dict(settings | {"output_dir": str(args.output)})
    return parsed


class Trainer(transformers.Trainer):
    """Trainer with this plan's learning rates, and the loss of every step."""

    def __init__(self, script: argparse.Namespace, **options: Any) -> None:
        super().__init__(**options)
        self.script = script
        self.model_accepts_loss_kwargs = False  # not all models do what Trainer then expects
        self.total = torch.zeros((), device=self.args.device)

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """Decay all parameters alike, as the other targets do."""
        return [name for name, _ in model.named_parameters()]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return the learning rates of the plan's other targets, as fractions of --lr."""
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer,
            lambda step: learning_rate(self.script, step) / self.script.lr,
        )
        return self.lr_scheduler

    def get_batch_samples(self, *args: Any) -> tuple[list[dict[str, Any]], torch.Tensor]:
        """Return the micro-batches of a step, and the mean number of labels in one."""
        batches, _ = super().get_batch_samples(*args)
        counts = torch.stack([(batch["labels"] != -100).sum() for batch in batches]).float()
        mean = counts.mean().to(self.args.device)
        return batches, self.accelerator.reduce(mean, reduction="mean")

    def compute_loss(self, model: Any, inputs: dict[str, Any], **kwargs: Any) -> torch.Tensor:
        """Weigh a micro-batch's loss, a mean, by its labels: so the step's is one over labels."""
        loss = super().compute_loss(model, inputs)
        return loss * (inputs["labels"] != -100).sum() / kwargs["num_items_in_batch"]

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Keep the loss, which Trainer would round."""
        loss = super().training_step(*args, **kwargs)
        self.total += loss
        return loss


class Steps(transformers.TrainerCallback):
    """What happens around every optimizer step."""

    def __init__(self, trainer: Trainer, report: Report | None, profile: Any) -> None:
        self.trainer = trainer
        self.report = report
        self.profile = profile

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse to go on where Trainer took another strategy without a word."""
        classes = {one.__name__ for one in type(self.trainer.model_wrapped).__mro__}
        if args.world_size > 1 and WRAPPER not in classes:
            raise SystemExit(f"Trainer made no {WRAPPER} of the model: has it found the GPUs?")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let dropout depend on the seed, the step and the rank alone, so resuming repeats it."""
        step = (args.seed * 1_000_003 + state.global_step) * args.world_size
        torch.manual_seed(step + args.process_index)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Show and log the loss, averaged over the global batch."""
        loss = self.trainer.accelerator.reduce(self.trainer.total, reduction="mean").item()
        self.trainer.total = torch.zeros_like(self.trainer.total)
        if self.report:
            self.report.show(state.global_step, loss)
        if self.profile:
            self.profile.step()


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    args = parse_arguments()
    settings = read_settings(args)  # before the model: it joins the other processes
    config = read_config(args)
    samples = read_samples(args, config.vocab_size)
    model = build_model(args, config)
    model.config.use_cache = False
    data = Subset(samples, range(args.steps * GLOBAL_BATCH_SIZE))
    trainer = Trainer(
        args,
        model=model,
        args=settings,
        train_dataset=data,
        optimizer_cls_and_kwargs=(torch.optim.AdamW, {"lr": args.lr, "fused": True}),
    )
    start = int(args.resume.name.rpartition("-")[2]) if args.resume else 0
    rank, world_size = settings.process_index, settings.world_size
    with profiler(args, rank) as profile:
        report = Report(args, start, world_size) if rank == 0 else None
        trainer.add_callback(Steps(trainer, report, profile))
        trainer.train(resume_from_checkpoint=str(args.resume) if args.resume else None)
    if args.save_model:
        # Its checkpoints are shards; the model is whole.
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        trainer.save_model(str(args.save_model))
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
