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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as sharded
import transformers
from safetensors.torch import save_file
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
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
WORLD_SIZE = 8  # processes, one per GPU
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 16  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 224_133_120  # forward and backward
PEAK_FLOPS_PER_SECOND = 989_000_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 222_689  # of one GPU
EXPECTED_PEAK_GIB = 2.11
TRIED = {  # packages, and the oldest and newest release that ran this script
    "torch": ("2.13.0", "2.13.0"),
    "transformers": ("5.4.0", "5.23.0"),
}
TENSOR_PARALLEL_SIZE = 2
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (4, 4)


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
    add("--init", choices=["pretrained", "random"], help="default: random, without --model")
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
    add("--lr", type=float, default=0.00015, help="learning rate after the warm-up")
    add("--warmup", type=float, default=0.01, help="share of the steps; from 1 on, steps")
    add("--beta2", type=float, default=0.95, help="of AdamW")
    add("--weight-decay", type=float, default=0.1, help="of matrices alone")
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
    args.init = args.init or ("random" if args.model == MODEL else "pretrained")
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
            size = torch.distributed.get_world_size() // 4
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


def gathered(part: torch.Tensor) -> torch.Tensor:
    """Return a weight, put together where it is divided: all processes that share it call this."""
    if isinstance(part, DTensor):  # it may wait in host memory
        return part.detach().to(part.device_mesh.device_type).full_tensor()
    return part.detach()


class Grid:
    """The processes by what they share; the last axis joins those with the fastest links."""

    def __init__(self, device: torch.device) -> None:
        data = dist.get_world_size() // 4
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


def divide_norms(attention: Any, mesh: DeviceMesh) -> None:
    """Let norms of queries and keys see the heads of this process alone, with what is of those."""

    def take(_: Any, inputs: Any, __: Any) -> Any:
        return DTensor.from_local(inputs[0], mesh, (Shard(2),), run_check=False)

    def give(_: Any, output: Any, __: Any) -> Any:
        return output.to_local()

    for name, norm in attention.named_children():
        if "norm" in name:
            is_of_all = norm.weight.numel() > attention.head_dim
            placement = Shard(0) if is_of_all else Replicate()
            weight = distribute_tensor(norm.weight, mesh, (placement,), src_data_rank=None)
            norm.weight = torch.nn.Parameter(weight)
            distribute_module(norm, mesh, None, take, give)


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
    layers = model.model.layers
    norms = [name for name, _ in layers[0].named_children() if "norm" in name]
    plan |= {f"model.layers.*.{name}": norm for name in norms}
    # The model's own plan names its matrices.
    for name, style in model.config.base_model_tp_plan.items():
        if style.startswith(("colwise", "rowwise")):
            plan[f"model.{name}"] = columns if style.startswith("colwise") else rows
    for layer in layers:
        divide_norms(layer.self_attn, mesh)
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


def clip(model: Any, most: float, device: torch.device) -> float:
    """Scale the gradients so that their norm over all processes is `most`, if it is more; return it.

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
    norm = total.sqrt()
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    for parameter in model.parameters():
        gradient = local(parameter.grad)
        gradient *= scale.to(gradient.device)
    return norm.item()


def deal(parameters: list[torch.Tensor], size: int) -> list[int]:
    """Return which process steps each parameter, so that all have about as many elements."""
    loads, owners = [0] * size, [0] * len(parameters)
    for number in sorted(range(len(parameters)), key=lambda n: -parameters[n].numel()):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += parameters[number].numel()
    return owners


def groups(parameters: Iterable[torch.Tensor], decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups: of parameters on the same processes; biases and norms do not decay."""
    apart: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        apart.setdefault((mesh, decay if parameter.ndim > 1 else 0.0), []).append(parameter)
    found = [{"params": group, "weight_decay": each} for (_, each), group in apart.items()]
    return found or [{"params": []}]


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
        own = (parameter for parameter, owner in pairs if owner == rank)
        parameters = groups(own, args.weight_decay)
        self.optimizer = torch.optim.AdamW(parameters, betas=(0.9, args.beta2))
        self.grid = grid
        self.device = device
        self.step, self.norm = 0, 0.0  # the gradient's, before it was clipped
        self.micro_batches = GLOBAL_BATCH_SIZE // (MICRO_BATCH_SIZE * grid.data_size)
        self.loss = NextTokenLoss()
        self.stages = stages
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
        with written(folder, is_checkpoint=True) as partial:
            dcp.save(self.state(), checkpoint_id=partial)

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

    def save_model(self, args: argparse.Namespace, folder: Path) -> None:
        """Write the whole weights as safetensors; of each stage one process does."""
        _, *others = self.grid.mesh.get_coordinate()
        is_writer = not any(others)
        with written(folder, is_checkpoint=False) as partial:
            shards = Shards(partial, self.model, is_writer=is_writer)
            parts = self.model.state_dict()
            for name, part in parts.items():
                shards.add(name, gathered(part))
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
    stride = MICRO_BATCH_SIZE * world_size // 4
    if world_size % 4 or GLOBAL_BATCH_SIZE % stride:
        shares = f"{GLOBAL_BATCH_SIZE} sequences a step, {MICRO_BATCH_SIZE} at a time"
        fail(f"{world_size} processes cannot share {shares}: the plan is for {WORLD_SIZE}")
    start = f"pretrained weights of {args.model}" if args.init == "pretrained" else "random weights"
    start = f"checkpoint {args.resume}" if args.resume else start
    device = "CPU" if args.cpu else torch.cuda.get_device_name()
    planned = "" if world_size == WORLD_SIZE else f" (the plan is for {WORLD_SIZE})"
    if rank == 0:
        print(f"starting from {start}, on {world_size} x {device}{planned}", flush=True)


def join(args: argparse.Namespace) -> torch.device:
    """Join the other processes, or be a group of one; return this process's device."""
    require_gpus(args)
    options: dict[str, Any] = {"timeout": datetime.timedelta(minutes=30)}  # ranks wait for loading
    if "RANK" not in os.environ:
        options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    if args.cpu:
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
    training.norm = clip(model, args.clip, training.device)
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


def pass_through(training: Training, tokens: torch.Tensor) -> torch.Tensor | None:
    """Return the logits of a micro-batch on the process that has the last stage, else nothing."""
    group = training.grid.mesh["pipeline"].get_group()
    here, hidden, before = dist.get_rank(group), tokens, 0
    shape = (
        MICRO_BATCH_SIZE,
        SEQUENCE_LENGTH // TENSOR_PARALLEL_SIZE,
        training.model.config.hidden_size,
    )
    for number in range(len(LAYERS_PER_STAGE)):
        rank = number % PIPELINE_PARALLEL_SIZE
        if here == before != rank:
            dist.send(hidden.contiguous(), group=group, group_dst=rank)
        if here == rank:
            if rank != before:
                hidden = torch.empty(shape, dtype=torch.float32, device=training.device)
                dist.recv(hidden, group=group, group_src=before)
            (stage,) = (stage for stage in training.stages if stage.number == number)
            hidden = stage(hidden)
        before = rank
    return hidden if here == before else None


@torch.no_grad()
def evaluate(training: Training, held_out: HeldOut) -> dict[str, float]:
    """Return the mean loss over all labels of what is held out; each process computes a part."""
    grid, device = training.grid, training.device
    stride = MICRO_BATCH_SIZE * grid.data_size
    totals = torch.zeros(2, dtype=torch.double, device=device)
    end = math.ceil(held_out.length / stride) * stride  # so all compute as many batches
    training.loss.mean_labels = torch.ones((), device=device)  # so a loss is a sum
    training.model.eval()
    for first in range(grid.data_rank * MICRO_BATCH_SIZE, end, stride):
        batch = default_collate([held_out[first + i] for i in range(MICRO_BATCH_SIZE)])
        tokens, labels = (batch[name].to(device) for name in ("input_ids", "labels"))
        with loss_parallel():
            logits = pass_through(training, tokens)
            if logits is not None:
                loss = local(training.loss(logits, labels))
                totals += torch.stack([loss.double(), (labels != -100).sum().double()])
    training.model.train()
    dist.all_reduce(totals)
    loss, labels = totals.tolist()
    return {"eval_loss": loss / labels, "eval_perplexity": math.exp(min(loss / labels, 700.0))}


def train(args: argparse.Namespace, device: torch.device) -> int:
    """Take the steps that are left, save the model; return the exit status."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    args.resume = find_start(args)
    introduce(args, rank, world_size)
    config = read_config(args)
    samples, held_out = read_samples(args, config.vocab_size)
    training = Training(args, config, Grid(device), device)
    if args.resume:
        training.load(args.resume)
    report = Report(args, training.step, world_size) if rank == 0 else None
    stop = Stop(device)
    with profiler(args, rank) as profile:
        while training.step < args.steps and not stop.signal:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            # Processes of a tensor-parallel group must drop the same.
            stream = rank // TENSOR_PARALLEL_SIZE
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + stream)
            loss = train_step(args, training, read_batch(samples, training))
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
    return 0


def main() -> None:
    """Train; an error on any rank is left uncaught, so that it ends the whole job."""
    check_versions()
    args = parse_arguments()
    status = train(args, join(args))
    gc.collect()  # the model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
