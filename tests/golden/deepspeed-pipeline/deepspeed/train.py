"""Train a causal-lm model with DeepSpeed's data parallelism, a pipeline on 1 x 4 GPUs, by DeepSpeed.

Train openai-community/gpt2 on 1 node x 4 a100-sxm-80gb = 4 GPUs with DDP, pipeline parallel 2
(1f1b), full activation recompute, micro-batch 1 x 32 accumulation x 2 ranks = 64 sequences per
step.

Start it with launch.sh beside it; ds_config.json has the batch, the precision and ZeRO's stage.
"""

import argparse
import contextlib
import datetime
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import deepspeed
import torch
import torch.distributed as dist
import transformers
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology
from safetensors.torch import save_file
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, default_collate
from tqdm import tqdm

HERE = Path(__file__).resolve().parent
MODEL = "openai-community/gpt2"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
WORLD_SIZE = 4  # processes, one per GPU
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 1  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 769_503_744  # forward and backward
PEAK_FLOPS_PER_SECOND = 19500000000000.0  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 9_001  # of one GPU
EXPECTED_PEAK_GIB = 1.53
TRIED = {  # packages, and the oldest and newest release that ran this script
    "torch": ("2.13.0", "2.13.0"),
    "transformers": ("5.4.0", "5.23.0"),
    "accelerate": ("1.10.1", "1.15.0"),
    "deepspeed": ("0.19.8", "0.19.8"),
}
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (6, 6)


def check_versions() -> None:
    """Refuse packages older than ran this script; say which others it was not tried with."""
    for name, (oldest, newest) in TRIED.items():
        installed = importlib.metadata.version(name)
        is_older = release(installed) < release(oldest)
        if is_older and name != "torch":
            cure = "pip install -r requirements.txt"
            raise SystemExit(f"{name} {installed} is older than {oldest}, the oldest tried: {cure}")
        is_tried = not is_older and release(installed) <= release(newest)
        if not is_tried and os.environ.get("RANK", "0") == "0":
            span = newest if oldest == newest else f"{oldest} to {newest}"
            print(f"{name} {installed} was not tried with this script, {span} was", flush=True)


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in version.split(".")[:2])


def parse_arguments() -> argparse.Namespace:
    """Read the command line; the defaults are the plan's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", default=MODEL, help="Hub id or local folder")
    add("--revision", default=REVISION, help="branch, tag or commit of the model on the Hub")
    add("--init", choices=["pretrained", "random"], default="pretrained")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--data", type=Path, help=f"file or folder: {', '.join(KINDS)}")
    data.add_argument("--dataset", help="Hub dataset, NAME[:CONFIG]")
    add("--text-column", help="default: text")
    formats = ["text", "chat", "prompt-completion"]
    add("--format", choices=formats, help="default: as the data's columns say")
    add("--chat-template", type=Path, help="a Jinja file; default: the tokenizer's")
    add("--padded", action="store_true", help="each text by itself, padded; default: packed")
    add("--num-proc", type=int, default=1, help="processes of a node that tokenize")
    add("--streaming", action="store_true", help="read the data in training, not to disk before it")
    add("--split", default="train", help="the Hub dataset's split to train on")
    add("--eval-every", type=int, default=0, help="steps between evaluations; 0: none")
    held_out = parser.add_mutually_exclusive_group()
    held_out.add_argument("--eval-data", type=Path, help="what to evaluate on, like --data")
    held_out.add_argument("--eval-split", help="the Hub dataset's split to evaluate on")
    held_out.add_argument("--eval-share", type=float, default=0.01, help="else, of the data")
    add("--eval-samples", type=int, default=1000, help="evaluate on no more than that")
    add("--tokenizer", help="default: the model's")
    add("--steps", "--max-steps", type=int, default=100, help="optimizer steps in all")
    add("--lr", type=float, default=8.8e-05, help="learning rate after the warm-up")
    add("--warmup", type=float, default=0.03, help="share of the steps; from 1 on, steps")
    add("--beta2", type=float, default=0.999, help="of AdamW")
    add("--weight-decay", type=float, default=0.01, help="of matrices alone")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0)
    add("--cpu", action="store_true", help="train on CPUs, to try the script")
    add("--no-dropout", action="store_true")
    add("--profile", help="folder for a trace of the third to fifth step")
    add("--log", type=Path, help="append one JSON line per step")
    add("--tensorboard", help="folder for TensorBoard, where that is installed")
    add("--wandb", help="project of Weights & Biases, where that is installed")
    add("--save-every", type=int, default=0, help="steps between checkpoints; 0: none")
    add("--output", type=Path, default=Path("checkpoints"), help="where checkpoints go")
    add("--keep", type=int, default=0, help="checkpoints to keep, the newest; 0: all")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", type=Path, help="a checkpoint, or latest: the newest there")
    start.add_argument("--overwrite", action="store_true", help="remove what --output has")
    add("--save-model", type=Path, help="where the final weights go; default: final in --output")
    add("--no-save-model", action="store_true", help="do not save the final weights")
    args = parser.parse_args()
    for package in ("tensorboard", "wandb"):
        if vars(args)[package] and not importlib.util.find_spec(package):
            fail(f"--{package} needs its package: pip install {package}")
    if args.data and not args.data.exists():
        fail(f"there is no {args.data}: paths are relative to the folder of launch.sh")
    return args


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
            labels = tokens.clone()
        else:
            row = self.rows[index]
            tokens = torch.tensor(row["input_ids"])
            labels = torch.tensor(row.get("labels", row["input_ids"]))
        # No token looks right, where the padding is. Nothing predicts the first.
        labels[0] = -100
        padding = (0, SEQUENCE_LENGTH - len(tokens))
        return {
            "input_ids": torch.nn.functional.pad(tokens, padding),
            "labels": torch.nn.functional.pad(labels, padding, value=-100),
        }


@functools.lru_cache(maxsize=2)
def shuffled(length: int, seed: int) -> torch.Tensor:
    """Return the order in which an epoch reads the rows."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


class Shuffled:
    """Rows in another random order every epoch."""

    def __init__(self, rows: Any, seed: int) -> None:
        self.rows = rows
        self.seed = seed

    def __getitem__(self, index: int) -> Any:
        epoch, position = divmod(index, len(self.rows))
        return self.rows[int(shuffled(len(self.rows), self.seed + epoch)[position])]


class HeldOut:
    """Samples to evaluate on, and then ones without labels: so all processes have as many."""

    def __init__(self, samples: Samples, length: int) -> None:
        self.samples = samples
        self.length = length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        sample = self.samples[min(index, self.length - 1)]
        if index >= self.length:
            sample["labels"] = torch.full_like(sample["labels"], -100)
        return sample


@contextlib.contextmanager
def first_on_node() -> Iterator[None]:
    """Let a node's first process do it; then the others, which find its work in the cache."""
    distributed = torch.distributed
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        yield
        return
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    group = distributed.new_group(backend="gloo", timeout=datetime.timedelta(days=1))
    if not is_first:
        distributed.barrier(group)
    try:
        yield
    finally:
        if is_first:
            distributed.barrier(group)
        distributed.destroy_process_group(group)


class Stream:
    """Rows of a dataset that is larger than the disk; each process reads and tokenizes its part.

    Row i is the same every time on as many processes, which ask for rising numbers alone. Resuming
    reads what was read before once more.
    """

    def __init__(self, texts: Any, rows_of: Any, args: argparse.Namespace) -> None:
        self.texts = texts.shuffle(seed=args.seed, buffer_size=10_000)
        self.rows_of = rows_of
        self.rows: Iterator[Any] | None = None
        self.given = 0

    def read(self, rank: int, size: int) -> Iterator[Any]:
        """Give the rows of one of `size` equal parts of the data, over and over again."""
        from datasets.distributed import split_dataset_by_node

        rows = self.rows_of(split_dataset_by_node(self.texts, rank, size))
        for epoch in itertools.count():
            rows.set_epoch(epoch)
            found = False
            for row in rows:
                if row.get("learned", 1):
                    found = True
                    yield row
            if not found:
                fail(f"a {size}th of the data is too little for a single sequence")

    def __getitem__(self, index: int) -> Any:
        size = 1
        if torch.distributed.is_initialized():
            size = torch.distributed.get_world_size() // 2
        turn, place = divmod(index, MICRO_BATCH_SIZE * size)
        rank, offset = divmod(place, MICRO_BATCH_SIZE)
        self.rows = self.rows or self.read(rank, size)
        number = turn * MICRO_BATCH_SIZE + offset
        row = next(itertools.islice(self.rows, number - self.given, None))
        self.given = number + 1
        return row


KINDS = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


def load(args: argparse.Namespace, path: Path | None, split: str) -> Any:
    """Return the rows of local files, or of a split of the Hub's dataset."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError

    options: dict[str, Any] = {"streaming": args.streaming}
    name, _, config = (args.dataset or "").partition(":")
    if path:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        kinds = {str(file): KINDS[end] for file in files for end in file.suffixes if end in KINDS}
        if not path.exists() or len(set(kinds.values())) != 1:
            fail(f"{path}: no files of one kind, which is one of {', '.join(KINDS)}")
        name, config, split = next(iter(kinds.values())), "", "train"
        options["data_files"] = [*kinds]
    try:
        return load_dataset(name, config or None, split=split, **options)
    except (OSError, ValueError, DatasetGenerationError) as error:
        fail(f"{path or args.dataset}: {error.__cause__ or error}")


def hold_out(args: argparse.Namespace, texts: Any, *, is_shuffled: bool) -> tuple[Any, Any]:
    """Return what to train on, and what to evaluate on, if anything."""
    if not args.eval_every:
        return texts, None
    if args.eval_split and not args.dataset:
        fail("--eval-split is one of a --dataset: --eval-data names files")
    if args.eval_data or args.eval_split:
        return texts, load(args, args.eval_data, args.eval_split)
    if args.streaming:
        fail("--streaming holds out no share: name --eval-data or --eval-split")
    if len(texts) < 2 or not 0 < args.eval_share < 1:
        fail(f"no share of {args.eval_share} can be held out of {len(texts)} rows")
    seed = args.seed if is_shuffled else None
    parts = texts.train_test_split(args.eval_share, shuffle=is_shuffled, seed=seed)
    return parts["train"], parts["test"]


def tokenize(
    args: argparse.Namespace, needed: list[str], divide: Any, check: Any, texts: Any
) -> Any:
    """Return rows of tokens, cached on disk unless they are streamed."""
    columns = texts.column_names or [*next(iter(texts))]
    if missing := [name for name in needed if name not in columns]:
        fail(f"the data has no column named {' or '.join(missing)}, but {', '.join(columns)}")
    options = {"batched": True, "remove_columns": columns}
    if args.streaming:
        return texts.map(divide, **options)
    processes = args.num_proc if args.num_proc > 1 else None
    try:
        return check(texts.map(divide, batch_size=10_000, num_proc=processes, **options))
    except ValueError as error:
        fail(str(error))


def both(
    args: argparse.Namespace, texts: Any, rows_of: Any, *, is_shuffled: bool
) -> tuple[Any, Any]:
    """Return rows in training order, and those to evaluate on, if any."""
    texts, others = hold_out(args, texts, is_shuffled=is_shuffled)
    rows = Stream(texts, rows_of, args) if args.streaming else Shuffled(rows_of(texts), args.seed)
    if others is None:
        return rows, None
    few = zip(rows_of(others), range(args.eval_samples), strict=False)
    held_out = [row for row, _ in few if row.get("learned", 1)]
    if not held_out:
        fail("there is nothing to evaluate on")
    return rows, held_out


Marked = tuple[str, list[tuple[int, int]]]
"""A text, and where what is learned of it begins and ends."""


def render(tokenizer: Any, messages: list[Any], *, asks: bool = False) -> str:
    """Return a conversation as the chat template writes it, and what asks to continue it."""
    messages = [{key: of for key, of in each.items() if of is not None} for each in messages]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)
    except Exception as error:  # a template raises what it likes
        start = str(messages)[:200]
        raise ValueError(f"the chat template does not take {start}...: {error}") from error
    return str(text)


def answers(tokenizer: Any, messages: list[Any], first: int = 0) -> list[Marked]:
    """Return a conversation and its answers: the assistant's turns, from number `first` on.

    A turn begins after what asks for it, and ends with the token that ends turns. A template that
    writes earlier turns in another way, such as without their reasoning, would show the model what
    it never sees in use: then each turn ends a conversation of its own.
    """
    ends = tuple(str(token) for token in tokenizer.added_tokens_decoder.values())
    turns = []
    for number, message in enumerate(messages):
        if number >= first and message["role"] == "assistant":
            asked = render(tokenizer, messages[:number], asks=True)
            text = render(tokenizer, messages[: number + 1])
            if not text.startswith(asked):
                raise ValueError(f"no answer of the chat template begins with its own {asked!r}")
            bare = text.rstrip()
            turns.append((text, (len(asked), len(bare if bare.endswith(ends) else text))))
    whole = turns[-1][0] if turns else ""
    if turns and all(whole.startswith(text[:end]) for text, (_, end) in turns):
        return [(whole, [place for _, place in turns])]
    return [(text, [place]) for text, place in turns]


def marked(tokenizer: Any, kind: str, row: dict[str, Any]) -> list[Marked]:
    """Return the texts of a row of the data: a conversation, or a prompt and its completion."""
    if kind == "chat":
        return answers(tokenizer, row["messages"] or [])
    prompt, completion = row["prompt"] or "", row["completion"] or ""
    if isinstance(completion, list):
        return answers(tokenizer, [*prompt, *completion], first=len(prompt))
    if tokenizer("x")["input_ids"][:1] == [tokenizer.bos_token_id]:
        prompt = tokenizer.bos_token + prompt
    whole = prompt + completion + (tokenizer.eos_token or "")
    return [(whole, [(len(prompt), len(whole))])] if completion else []


def encode(tokenizer: Any, text: str, places: list[tuple[int, int]]) -> dict[str, Any]:
    """Return the tokens of a text, and as labels those of which a part is learned."""
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    tokens = read["input_ids"]
    labels = [
        token if any(low < end and high > start for start, end in places) else -100
        for token, (low, high) in zip(tokens, read["offset_mapping"], strict=True)
    ]
    labels[:1] = [-100]  # nothing predicts the first
    return {
        "input_ids": tokens[:SEQUENCE_LENGTH],
        "labels": labels[:SEQUENCE_LENGTH],
        "length": len(tokens),
        "learned": sum(label != -100 for label in labels[:SEQUENCE_LENGTH]),
    }


def kind_of(args: argparse.Namespace, columns: list[str]) -> str:
    """Return how the data is read: as --format says, else as its columns do."""
    if args.format or args.text_column:
        return args.format or "text"
    if "messages" in columns:
        return "chat"
    return "prompt-completion" if {"prompt", "completion"} <= set(columns) else "text"


def answering(args: argparse.Namespace, tokenizer: Any, kind: str) -> Any:
    """Return what makes rows of tokens of conversations, or of prompts and completions."""
    if not tokenizer.is_fast:
        fail("only a fast tokenizer tells which tokens are an answer's")
    if args.chat_template:
        tokenizer.chat_template = args.chat_template.read_text()
    if kind == "chat" and not tokenizer.chat_template:
        fail("the tokenizer has no chat template: --chat-template, or --tokenizer")

    def divide(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        lines = [dict(zip(batch, line, strict=True)) for line in zip(*batch.values(), strict=True)]
        texts = itertools.chain.from_iterable(marked(tokenizer, kind, line) for line in lines)
        rows = [encode(tokenizer, *text) for text in texts]
        names = ("input_ids", "labels", "length", "learned")
        return {name: [row[name] for row in rows] for name in names}

    return divide


def teaching(rows: Any) -> Any:
    """Return the sequences that teach something; say how much is padding, and what was cut."""
    kept = rows.filter(lambda learned: learned > 0, input_columns="learned")
    if len(kept) == 0:
        fail(f"no answer begins within {SEQUENCE_LENGTH} tokens, or there is none")
    lengths = torch.tensor(kept["length"][:])
    padding = 1 - lengths.clamp(max=SEQUENCE_LENGTH).double().mean().item() / SEQUENCE_LENGTH
    if os.environ.get("RANK", "0") == "0":
        print(
            f"{len(kept)} sequences, {padding:.1%} of them padding;"
            f" {(lengths > SEQUENCE_LENGTH).sum()} cut at {SEQUENCE_LENGTH} tokens,"
            f" {len(rows) - len(kept)} left out: without an answer up to there",
            flush=True,
        )
    return kept


def writing(args: argparse.Namespace, tokenizer: Any, column: str) -> Any:
    """Return what makes rows of tokens: blocks of SEQUENCE_LENGTH, or each text by itself."""
    end = tokenizer.convert_tokens_to_ids(tokenizer.eos_token or tokenizer.sep_token)

    def pack(batch: dict[str, list[str | None]]) -> dict[str, list[list[int]]]:
        texts = [text or "" for text in batch[column]]
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        stream = list(itertools.chain.from_iterable([*row, end] for row in rows if row))
        starts = range(0, len(stream) - SEQUENCE_LENGTH + 1, SEQUENCE_LENGTH)
        return {"input_ids": [stream[start : start + SEQUENCE_LENGTH] for start in starts]}

    def cut(batch: dict[str, list[str | None]]) -> dict[str, list[list[int]]]:
        texts = [text or "" for text in batch[column]]
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        return {"input_ids": [[*row, end][:SEQUENCE_LENGTH] for row in rows if row]}

    return cut if args.padded else pack


def read_rows(args: argparse.Namespace, tokenizer: Any) -> tuple[Any, Any]:
    """Return rows of tokens in training order, and those to evaluate on, if any."""
    texts = load(args, args.data, args.split)

    def check(rows: Any) -> Any:
        if len(rows) == 0:
            fail(f"the text is too short for one sequence of {SEQUENCE_LENGTH} tokens")
        return rows

    column = args.text_column or "text"
    kind = kind_of(args, texts.column_names or [*next(iter(texts))])
    if kind != "text":
        columns = ["messages"] if kind == "chat" else ["prompt", "completion"]
        divide = answering(args, tokenizer, kind)
        rows_of = functools.partial(tokenize, args, columns, divide, teaching)
        return both(args, texts, rows_of, is_shuffled=True)
    rows_of = functools.partial(tokenize, args, [column], writing(args, tokenizer, column), check)
    return both(args, texts, rows_of, is_shuffled=args.padded)


@functools.cache
def load_tokenizer(name: str, revision: str) -> Any:
    """Return a tokenizer, read once."""
    return transformers.AutoTokenizer.from_pretrained(name, revision=revision)


def read_tokenizer(args: argparse.Namespace) -> Any:
    """Return the tokenizer of --tokenizer, or of the model."""
    if args.tokenizer:
        return load_tokenizer(args.tokenizer, "main")
    return load_tokenizer(args.model, args.revision)


def read_samples(args: argparse.Namespace, vocabulary: int) -> tuple[Samples, HeldOut | None]:
    """Return the training data, and what is evaluated on: text, or synthetic tokens."""
    if not args.data and not args.dataset:
        others = Samples(None, vocabulary, args.seed + 1)
        held_out = HeldOut(others, GLOBAL_BATCH_SIZE) if args.eval_every else None
        return Samples(None, vocabulary, args.seed), held_out
    tokenizer = read_tokenizer(args)
    with first_on_node():
        rows, others = read_rows(args, tokenizer)
    samples = Samples(rows, vocabulary, args.seed)
    if others is None:
        return samples, None
    few = Samples(others, vocabulary, args.seed)
    return samples, HeldOut(few, len(others))


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


def checkpoints(output: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, the newest last."""
    found = [path for path in output.glob("step-*") if path.name[5:].isdecimal()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return after which step a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def find_start(args: argparse.Namespace) -> Path | None:
    """Return the checkpoint to continue from, None to start anew; rank 0 looks for all."""
    found: list[Any] = [None, None]
    if is_first():
        try:
            found[0] = choose_start(args)
        except SystemExit as refusal:
            found[1] = str(refusal)
    if dist.is_initialized():
        dist.broadcast_object_list(found)
    if found[1]:
        fail(found[1])
    return found[0]


def choose_start(args: argparse.Namespace) -> Path | None:
    """Choose by --resume and --overwrite; the results of an earlier run are not replaced unasked."""
    earlier, final = checkpoints(args.output), args.output / "final"
    if args.overwrite:
        for folder in [*args.output.glob("step-*"), final]:
            shutil.rmtree(folder, ignore_errors=True)
        return None
    if args.resume and args.resume != Path("latest"):
        if not args.resume.is_dir():
            raise SystemExit(f"there is no checkpoint {args.resume}")
        return args.resume
    if args.resume and earlier:
        return earlier[-1]
    if earlier or final.exists():
        folder = earlier[-1] if earlier else final
        asked = "--resume latest continues it" if earlier else "--output names another folder"
        raise SystemExit(f"{folder} is from an earlier run: {asked}, --overwrite removes it")
    if args.resume:
        print(f"there is no checkpoint in {args.output}: starting anew", flush=True)
    return None


def is_first() -> bool:
    """Return whether this is rank 0."""
    return not dist.is_initialized() or dist.get_rank() == 0


def wait_for_all() -> None:
    """Wait until all processes are here."""
    if dist.is_initialized():
        dist.barrier()


@contextlib.contextmanager
def written(folder: Path, *, is_checkpoint: bool) -> Iterator[Path]:
    """Yield a folder to write into, which gets its name when it is whole; all processes call this."""
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        if is_first():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        wait_for_all()
        yield partial
    except Exception as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise SystemExit(failure(folder, error)) from error
    wait_for_all()
    if is_first() and is_checkpoint:
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    elif is_first():  # a folder that the user named may hold other things, or be a mount point
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("model*.safetensors*"):
            stale.unlink()
        for path in partial.iterdir():
            shutil.move(path, folder / path.name)
        partial.rmdir()
    wait_for_all()


def failure(folder: Path, error: BaseException) -> str:
    """Return in one line why a folder was not saved."""
    # torch.distributed.checkpoint lists what failed, by rank.
    causes = [cause for cause, *_ in getattr(error, "failures", {}).values()]
    reason = str(causes[0] if causes else error).strip().partition("\n")[0]
    disk = next(parent for parent in folder.resolve().parents if parent.exists())
    free = shutil.disk_usage(disk).free / 1e9
    return f"{folder} was not saved, with {free:.1f} GB free on its disk: {reason}"


def remove_older(args: argparse.Namespace, step: int) -> None:
    """Keep the newest --keep of the checkpoints up to this step."""
    if args.keep and is_first():
        earlier = [folder for folder in checkpoints(args.output) if step_of(folder) <= step]
        for folder in earlier[: -args.keep]:
            shutil.rmtree(folder)


class Stop:
    """Whether any process was told to end: by SIGTERM, or by SIGUSR1 as Slurm warns of a limit."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.received = 0  # by this process, at any moment
        self.signal = 0  # by any process, known to all
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, self.note)

    def note(self, number: int, frame: Any) -> None:
        """Remember the signal; the running step ends first."""
        self.received = number

    def agreed(self) -> int:
        """Return the signal that any process has got, 0 without one; all processes call this."""
        largest = torch.tensor(self.received, device=self.device)
        if dist.is_initialized():
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        self.signal = int(largest.item())
        return self.signal

    def exit(self, args: argparse.Namespace, step: int) -> int:
        """Say that the run is not finished; return the exit status of a process that ended so."""
        if is_first():
            name = signal.Signals(self.signal).name
            print(f"{name} after step {step}: --resume latest --output {args.output} continues")
        return 128 + self.signal


def save_tokenizer(args: argparse.Namespace, folder: Path) -> None:
    """Save what prepares the data beside the model, where the run has data."""
    if is_first() and (args.data or args.dataset):
        read_tokenizer(args).save_pretrained(folder)


SHARD_BYTES = 5 * 10**9  # of a file of weights


class Shards:
    """Files of whole weights, as transformers reads them; one at a time is in host memory."""

    def __init__(self, folder: Path, model: Any, *, is_writer: bool) -> None:
        self.folder = folder
        self.model = model
        self.is_writer = is_writer
        self.weights: dict[str, torch.Tensor] = {}
        self.files: list[tuple[str, list[str], int]] = []

    def add(self, name: str, weight: torch.Tensor) -> None:
        """Take a weight; only writers keep it."""
        if not self.is_writer:
            return
        held = sum(each.nbytes for each in self.weights.values())
        if self.weights and held + weight.nbytes > SHARD_BYTES:
            self.flush()
        self.weights[name] = weight.detach().cpu().contiguous()

    def flush(self) -> None:
        """Write what is held, under the names that checkpoints of this model have."""
        if self.weights:
            weights = as_in_files(self.model, self.weights)
            rank = dist.get_rank() if dist.is_initialized() else 0
            file = f"rank-{rank}-{len(self.files)}.safetensors"
            weights = {name: weight.contiguous() for name, weight in weights.items()}
            save_file(weights, self.folder / file, metadata={"format": "pt"})
            size = sum(weight.nbytes for weight in weights.values())
            self.files.append((file, list(weights), size))
        self.weights = {}

    def close(self) -> None:
        """Give the files their names, and write the index and the configuration: all call this."""
        self.flush()
        everyone = [self.files]
        if dist.is_initialized():
            everyone = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(everyone, self.files)
        if not is_first():
            return
        files = [file for each in everyone for file in each]
        places = {}
        for number, (file, names, _) in enumerate(files, start=1):
            suffix = f"-{number:05}-of-{len(files):05}" if len(files) > 1 else ""
            (self.folder / file).rename(self.folder / f"model{suffix}.safetensors")
            places |= dict.fromkeys(names, f"model{suffix}.safetensors")
        if len(files) > 1:
            index = {"metadata": {"total_size": sum(size for *_, size in files)}}
            text = json.dumps(index | {"weight_map": places}, indent=2)
            (self.folder / "model.safetensors.index.json").write_text(text)
        self.describe()

    def describe(self) -> None:
        """Write the configuration of the model, as it loads again."""
        config = self.model.config
        config.architectures = [type(self.model).__name__.removeprefix("FSDP")]
        config.dtype = str(self.model.dtype).removeprefix("torch.")
        config.save_pretrained(self.folder)
        if self.model.can_generate():
            with contextlib.suppress(ValueError):  # some that are published fail their own check
                self.model.generation_config.save_pretrained(self.folder)


def as_in_files(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights under the names that checkpoints of this model have for them."""
    from transformers.core_model_loading import revert_weight_conversion

    return revert_weight_conversion(model, weights)


def data_parallel_size() -> int:
    """Return how many pipelines run side by side."""
    return dist.get_world_size() // PIPELINE_PARALLEL_SIZE


def read_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return ds_config.json with the command line's clipping and this run's batch."""
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    settings = json.loads((HERE / "ds_config.json").read_text())
    return settings | {
        "train_batch_size": GLOBAL_BATCH_SIZE,
        "train_micro_batch_size_per_gpu": MICRO_BATCH_SIZE,
        "gradient_accumulation_steps": GLOBAL_BATCH_SIZE // stride,
        "gradient_clipping": args.clip,
    }


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


def groups(parameters: Any, decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters: biases and the scales of norms do not decay."""
    by_decay: dict[float, list[torch.Tensor]] = {}
    for parameter in parameters:
        by_decay.setdefault(decay if parameter.ndim > 1 else 0.0, []).append(parameter)
    return [{"params": group, "weight_decay": each} for each, group in by_decay.items()]


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(self, args: argparse.Namespace, config: Any) -> None:
        settings = read_settings(args)
        self.model, stage = assemble(args, config)
        # DeepSpeed's clipping leaves out later stages, unless their parameters are marked.
        for parameter in stage.parameters():
            parameter.model_parallel = not parameter.ds_pipe_replicated
        # PyTorch's fused AdamW runs on GPUs and CPUs alike, with nothing to compile.
        parameters = groups(stage.parameters(), args.weight_decay)
        optimizer = torch.optim.AdamW(parameters, betas=(0.9, args.beta2), fused=True)
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=stage, optimizer=optimizer, config=settings
        )
        self.step, self.norm = 0, 0.0  # the gradient's, before it was clipped

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        with written(folder, is_checkpoint=True) as partial:
            state = {"step": self.step}
            self.engine.save_checkpoint(str(partial), tag="state", client_state=state)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, on as many processes as wrote it."""
        _, state = self.engine.load_checkpoint(str(folder), tag="state")
        self.step = int(state["step"])

    def save_model(self, args: argparse.Namespace, folder: Path) -> None:
        """Write the whole weights as safetensors, each from the first process that has it."""
        here, held = parts(self.model), [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(held, [*here])
        earlier = set(itertools.chain.from_iterable(held[: dist.get_rank()]))
        with written(folder, is_checkpoint=False) as partial:
            shards = Shards(partial, self.model, is_writer=True)
            for name in self.model.state_dict():
                if name in here and name not in earlier:
                    shards.add(name, here[name])
            shards.close()
            save_tokenizer(args, partial)


def learning_rate(args: argparse.Namespace, step: int) -> float:
    """Rise linearly during the warm-up, then fall to a tenth along a cosine."""
    warmup = round(args.warmup * args.steps if args.warmup < 1 else args.warmup)
    if step < warmup:
        return args.lr * (step + 1) / warmup
    done = (step - warmup) / max(1, args.steps - warmup)
    return args.lr * (0.55 + 0.45 * math.cos(math.pi * done))


def open_trackers(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return TensorBoard's writer and the run at Weights & Biases, each where it was asked for."""
    board = run = None
    if args.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(args.tensorboard)
    if args.wandb:
        import wandb

        run = wandb.init(project=args.wandb, config=vars(args))
    return board, run


class Report:
    """Progress beside what the plan expects: a bar on a terminal, else one line per step."""

    def __init__(self, args: argparse.Namespace, start: int, world_size: int) -> None:
        self.args = args
        self.world_size = world_size
        self.bar = tqdm(total=args.steps, initial=start, disable=not sys.stderr.isatty())
        self.board, self.run = open_trackers(args)
        self.clock = time.perf_counter()

    def show(self, step: int, loss: float, norm: float) -> None:
        """Show and log one optimizer step, timed from the call before."""
        now = time.perf_counter()
        speed = GLOBAL_BATCH_SIZE * SEQUENCE_LENGTH / (now - self.clock)
        mfu = speed * FLOPS_PER_TOKEN / PEAK_FLOPS_PER_SECOND / self.world_size
        self.clock, rate = now, learning_rate(self.args, step - 1)
        figures = {"loss": loss, "learning_rate": rate, "gradient_norm": norm}
        figures |= {"tokens_per_second": speed, "mfu": mfu}
        line = f"loss {loss:.4f}, lr {rate:.2e}, norm {norm:.3g}, {speed:,.0f} tokens/s"
        line += f" (plan {EXPECTED_TOKENS_PER_SECOND * self.world_size:,}), MFU {mfu:.1%}"
        if not self.args.cpu:
            figures["peak_gib"] = peak = torch.cuda.max_memory_allocated() / 2**30
            line += f", peak {peak:.2f} GiB on rank 0 (plan {EXPECTED_PEAK_GIB:.2f} on the fullest)"
        self.bar.set_postfix_str(line)
        self.bar.update()
        if self.bar.disable:
            print(f"step {step}/{self.args.steps}: {line}", flush=True)
        self.record(step, figures)

    def record(self, step: int, figures: dict[str, float]) -> None:
        """Write figures of a step to whatever keeps them."""
        if self.args.log:
            line = json.dumps({"step": step, **figures, "world_size": self.world_size})
            with self.args.log.open("a") as log:
                log.write(f"{line}\n")
        if self.board:
            for name, value in figures.items():
                self.board.add_scalar(f"train/{name}", value, step)
        if self.run:
            self.run.log(figures, step=step)

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        """Show and log an evaluation, whose time is none of the next step's."""
        line = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.bar.write(f"step {step}/{self.args.steps}: {line}")
        sys.stdout.flush()
        self.record(step, metrics)
        self.clock = time.perf_counter()


def profiler(args: argparse.Namespace, rank: int) -> Any:
    """Return what writes a trace of the third to fifth step, or does nothing."""
    if not args.profile:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(args.profile, f"rank-{rank}"),
        profile_memory=True,
    )


def micro_batches(samples: Any, step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return this pipeline's slice of each micro-batch: tokens, and labels for its last stage."""
    number = dist.get_rank() % data_parallel_size()
    stride = MICRO_BATCH_SIZE * data_parallel_size()
    batches = []
    for offset in range(0, GLOBAL_BATCH_SIZE, stride):
        first = step * GLOBAL_BATCH_SIZE + offset + number * MICRO_BATCH_SIZE
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
    training.norm = float(training.engine.get_global_grad_norm() or 0.0)
    return loss.item()


@torch.no_grad()
def evaluate(training: Training, held_out: HeldOut) -> dict[str, float]:
    """Return the mean loss over all labels of what is held out, a global batch at a time."""
    engine = training.engine
    loss, labels = 0.0, 0.0
    engine.module.loss_fn.mean_labels = torch.ones((), device=engine.device)  # so losses are sums
    for step in range(math.ceil(held_out.length / GLOBAL_BATCH_SIZE)):
        batches = micro_batches(held_out, step)
        labels += count_labels(training, batches).item() * len(batches)
        loss += engine.eval_batch(iter(batches)).item() * len(batches)
    return {"eval_loss": loss / labels, "eval_perplexity": math.exp(min(loss / labels, 700.0))}


def fail(message: str) -> NoReturn:
    """End the run with one line: the other processes leave the launcher time to end them."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(60)
    raise SystemExit(message)


def require_gpus(args: argparse.Namespace) -> None:
    """End the run where this machine has fewer GPUs than processes, unless --cpu is given."""
    processes, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if gpus < processes and not args.cpu:
        fail(f"PyTorch finds {gpus} GPUs here for {processes} processes; --cpu trains without")


def introduce(args: argparse.Namespace, rank: int, world_size: int) -> None:
    """Say what training starts from, on how many of which device; end it where those do not fit."""
    stride = MICRO_BATCH_SIZE * world_size // 2
    if world_size % 2 or GLOBAL_BATCH_SIZE % stride:
        shares = f"{GLOBAL_BATCH_SIZE} sequences a step, {MICRO_BATCH_SIZE} at a time"
        fail(f"{world_size} processes cannot share {shares}: the plan is for {WORLD_SIZE}")
    start = f"pretrained weights of {args.model}" if args.init == "pretrained" else "random weights"
    start = f"checkpoint {args.resume}" if args.resume else start
    device = "CPU" if args.cpu else torch.cuda.get_device_name()
    planned = "" if world_size == WORLD_SIZE else f" (the plan is for {WORLD_SIZE})"
    if rank == 0:
        print(f"starting from {start}, on {world_size} x {device}{planned}", flush=True)


def train(args: argparse.Namespace) -> int:
    """Take the steps that are left, save the model; return the exit status."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    args.resume = find_start(args)
    introduce(args, rank, world_size)
    config = read_config(args)
    samples, held_out = read_samples(args, config.vocab_size)
    training = Training(args, config)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if rank == 0 else None
    stop = Stop(training.engine.device)
    with profiler(args, rank) as profile:
        while training.step < args.steps and not stop.signal:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + rank)
            loss = train_step(args, training, micro_batches(samples, training.step))
            if report:
                report.show(training.step, loss, training.norm)
            if held_out and (training.step % args.eval_every == 0 or training.step == args.steps):
                metrics = evaluate(training, held_out)
                if report:
                    report.evaluated(training.step, metrics)
            if profile:
                profile.step()
            is_due = args.save_every and training.step % args.save_every == 0
            if stop.agreed() or is_due:
                training.save(args.output / f"step-{training.step}")
                remove_older(args, training.step)
    if training.step < args.steps:
        return stop.exit(args, training.step)
    if not args.no_save_model:
        training.save_model(args, args.save_model or args.output / "final")
    dist.barrier()
    training.engine.destroy()
    return 0


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    check_versions()
    args = parse_arguments()
    require_gpus(args)
    deepspeed.init_distributed()
    deepspeed.get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    status = train(args)
    dist.destroy_process_group()
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
