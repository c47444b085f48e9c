"""Samples in training order: tokens of files, text packed into sequences, or synthetic tokens."""

import contextlib
import datetime
import functools
import itertools
import math
import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import transformers
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from settings import fail, reading

KINDS = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
KINDS |= {".bin": "tokens", ".npy": "tokens"}


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Sample i is a pure function of (seed, i) on every process, so a resumed run reads on.

    Synthetic tokens are `randint(vocabulary)` of a generator seeded with `seed * 1_000_003 + i`.
    Rows are read in another random order every epoch. Of samples to evaluate on there are `count`;
    later ones have no labels, so that all processes have as many.
    """

    def __init__(self, rows: Any, vocabulary: int, args: Any, count: int = 0) -> None:
        self.rows, self.vocabulary, self.count = rows, vocabulary, count
        self.length, self.seed = args.length, args.seed

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        number = min(index, self.count - 1) if self.count else index
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        if self.rows is None:
            tokens = torch.randint(self.vocabulary, (self.length,), generator=generator)
        else:
            place = number if self.count else self.place(number)
            tokens = torch.as_tensor(self.rows[place]["input_ids"])
        labels = tokens.clone()
        labels[0] = -100  # nothing predicts the first
        if self.count and index >= self.count:
            labels = torch.full_like(labels, -100)
        return {"input_ids": tokens, "labels": labels}

    def place(self, number: int) -> int:
        """Return which row is read, in the random order of its epoch."""
        epoch, position = divmod(number, len(self.rows))
        return int(shuffled(len(self.rows), self.seed + epoch)[position])


@functools.lru_cache(maxsize=2)
def shuffled(length: int, seed: int) -> torch.Tensor:
    """Return the order in which an epoch reads the rows."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


class Tokens(ConcatDataset[Any]):
    """Rows of flat files of tokens: .npy, or .bin of uint16 (uint32 for a larger vocabulary)."""

    def __init__(self, files: list[Path], vocabulary: int, length: int) -> None:
        kind, tables = "uint16" if vocabulary <= 2**16 else "uint32", []
        for file in files:
            is_numpy = file.suffix == ".npy"
            table = np.load(file, mmap_mode="r") if is_numpy else np.memmap(file, kind, mode="r")
            flat = table.reshape(-1)
            if flat[:1_000_000].max(initial=0) >= vocabulary:
                fail(f"{file} has tokens beyond the {vocabulary} of the model")
            tables.append(flat[: flat.size // length * length].reshape(-1, length))
        super().__init__(tables)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": super().__getitem__(row).astype("int64")}


def outlive(worker: int) -> None:
    """Keep signals that ask the run to end from a worker, which the running step needs."""
    os.setsid()  # the launcher's SIGTERM is for the group; one that ends this worker arrives
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def batches(
    samples: Samples, args: Namespace, device: torch.device, span: range, share: tuple[int, int]
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield this process's part of a span of micro-batches, which workers read ahead."""
    rank, size = share
    stride = args.micro_batch_size * size
    firsts = (number * stride + rank * args.micro_batch_size for number in span)
    order: Any = (range(first, first + args.micro_batch_size) for first in firsts)
    loader = DataLoader(
        samples,
        batch_sampler=order,
        num_workers=args.workers,
        multiprocessing_context="fork" if args.workers else None,  # mapped files stay mapped
        pin_memory=device.type == "cuda" and args.workers > 0,
        worker_init_fn=outlive,
        generator=torch.Generator(),  # dropout's stays as it is
    )
    with usable(args.data or args.dataset):
        for batch in loader:
            yield {name: value.to(device, non_blocking=True) for name, value in batch.items()}


@contextlib.contextmanager
def usable(what: Any) -> Iterator[None]:
    """End the run with one line where data cannot be read, or not be used."""
    from datasets.exceptions import DatasetGenerationError

    try:
        yield
    except (OSError, RuntimeError, ValueError, DatasetGenerationError) as error:
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
        said = str(cause or error).strip().splitlines()[-1].removeprefix("ValueError: ")
        fail(f"{what} has no rows" if "corresponds to no data" in said else f"{what}: {said}")


def load(args: Namespace, path: Path | None, split: str, vocabulary: int) -> Any:
    """Return the rows of local files, or of a split of the Hub's dataset."""
    from datasets import load_dataset

    files = None
    name, _, config = (args.dataset or "").partition(":")
    if path:
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        kinds = {file: KINDS[end] for file in found for end in file.suffixes if end in KINDS}
        if len(set(kinds.values())) != 1:
            fail(f"{path}: no files of one kind, which is one of {', '.join(KINDS)}")
        if not any(file.stat().st_size for file in kinds):
            fail(f"{path} is empty")
        name, config, split = next(iter(kinds.values())), "", "train"
        if name == "tokens":
            with usable(path):
                return Tokens([*kinds], vocabulary, args.length)
        files = [*map(str, kinds)]
    with usable(path or args.dataset):
        return load_dataset(name, config or None, split=split, data_files=files)


def packed(args: Namespace, texts: Any) -> Any:
    """Return rows of --length tokens, one text after the other; they are cached."""
    if isinstance(texts, Tokens):
        return texts
    tokenizer, column = read_tokenizer(args), args.text_column
    end = tokenizer.convert_tokens_to_ids(tokenizer.eos_token or tokenizer.sep_token)

    def pack(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[list[int]]]:
        for number, text in zip(numbers, batch[column], strict=True):
            if not isinstance(text, str | None):
                raise ValueError(f"row {number + 1} holds {str(text)[:100]}, which is no text")
        rows = tokenizer([text or "" for text in batch[column]], add_special_tokens=False)
        stream = list(itertools.chain(*([*row, end] for row in rows["input_ids"] if row)))
        starts = range(0, len(stream) - args.length + 1, args.length)
        return {"input_ids": [stream[start : start + args.length] for start in starts]}

    columns = texts.column_names
    if column not in columns:
        fail(f"the data has no column named {column}, but {', '.join(columns)}: see --text-column")
    options = {"batched": True, "batch_size": 10_000, "with_indices": True}
    options |= {"remove_columns": columns, "num_proc": args.num_proc or None}
    with usable(args.data or args.dataset):
        return texts.map(pack, **options)


def hold_out(args: Namespace, texts: Any, vocabulary: int) -> tuple[Any, Any]:
    """Return what to train on, and what to evaluate on, if anything."""
    if not args.eval_every:
        return texts, None
    if args.eval_data:
        return texts, load(args, args.eval_data, "train", vocabulary)
    if isinstance(texts, Tokens):
        fail("no share is held out of files of tokens: --eval-data names what to evaluate on")
    if len(texts) < 2 or not 0 < args.eval_share < 1:
        fail(f"no share of {args.eval_share} can be held out of {len(texts)} rows")
    parts = texts.train_test_split(args.eval_share, shuffle=False)
    return parts["train"], parts["test"]


@contextlib.contextmanager
def first_on_node() -> Iterator[None]:
    """Let a node's first process do it; then the others, which find its work in the cache."""
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(days=1))
    if not is_first:
        dist.barrier(group)
    yield
    if is_first:
        dist.barrier(group)
    dist.destroy_process_group(group)


def read_samples(args: Namespace, vocabulary: int) -> tuple[Samples, Samples | None]:
    """Return what is trained on, and what is evaluated on, if anything."""
    if not args.data and not args.dataset:
        others = Namespace(length=args.length, seed=args.seed + 1)
        held_out = Samples(None, vocabulary, others, args.batch_size)
        samples = Samples(None, vocabulary, args)
        return samples, held_out if args.eval_every else None
    with first_on_node():
        texts, others = hold_out(args, load(args, args.data, args.split, vocabulary), vocabulary)
        texts, others = packed(args, texts), None if others is None else packed(args, others)
    if len(texts) == 0:
        fail(f"the text is too short for one sequence of {args.length} tokens")
    args.steps = math.ceil(args.epochs * len(texts) / args.batch_size) or args.steps
    if os.environ.get("RANK", "0") == "0":
        epochs = args.steps * args.batch_size / len(texts)
        print(f"{len(texts):,} samples, read {epochs:,.2f} times in all", flush=True)
    samples = Samples(texts, vocabulary, args)
    if others is None:
        return samples, None
    if len(others) == 0:
        fail("there is nothing to evaluate on")
    return samples, Samples(others, vocabulary, args, len(others))


def read_tokenizer(args: Namespace) -> Any:
    """Return the tokenizer of --tokenizer, or of the model."""
    name, revision = (args.tokenizer, "main") if args.tokenizer else (args.model, args.revision)
    with reading(name):
        return transformers.AutoTokenizer.from_pretrained(name, revision=revision)
