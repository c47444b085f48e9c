"""The plan's numbers, and the command line, whose defaults they are."""

import contextlib
import importlib.util
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import torch

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
EXPECTED_TOKENS_PER_SECOND = 36_601  # of one GPU
EXPECTED_PEAK_GIB = 3.01
CHECKPOINT_BYTES = 619_812_864  # of the plan's model, at the most
MODEL_BYTES = 206_604_288
TENSOR_PARALLEL_SIZE = 2
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (4, 4)
MODEL_RANKS = PIPELINE_PARALLEL_SIZE * TENSOR_PARALLEL_SIZE


def fail(message: str) -> NoReturn:
    """End the run with one line: the other processes leave the launcher time to end them."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(60)
    raise SystemExit(message)


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """End the run with one line where a model or a tokenizer cannot be read."""
    if not name or (name.startswith(("/", ".")) and not Path(name).exists()):
        fail(f"there is no model in {name!r}: a folder, or a name on the Hub, is read")
    try:
        yield
    except (OSError, ValueError) as error:
        said = " ".join(line.strip() for line in str(error).splitlines()[:2])
        access = ": `hf auth login` or HF_TOKEN, on every node" if "gated" in said else ""
        fail(f"{name} cannot be read: {said}{access}")


def parse_arguments(about: str | None = None) -> Namespace:
    """Read the command line; the defaults are the plan's."""
    parser = ArgumentParser(description=(about or "").partition("\n")[0])
    parser.error = lambda message: fail(f"{message}: --help lists the arguments")
    if os.environ.get("LOCAL_RANK", "0") != "0":
        parser.print_help = lambda file=None: None  # one process of a node does
    add = parser.add_argument
    add("--model", default=MODEL, help="Hub id or local folder")
    add("--revision", default=REVISION, help="branch, tag or commit of the model on the Hub")
    add("--init", choices=["pretrained", "random"], help="default: random, without --model")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--data", type=Path, help="file or folder: text, or tokens as .bin or .npy")
    data.add_argument("--dataset", help="Hub dataset, NAME[:CONFIG]")
    add("--text-column", default="text")
    add("--tokenizer", help="default: the model's")
    add("--num-proc", type=int, default=0, help="further processes of a node that tokenize")
    add("--workers", type=int, default=2, help="processes that read ahead, for each GPU")
    add("--split", default="train", help="the Hub dataset's split to train on")
    add("--eval-every", type=int, default=0, help="steps between evaluations; 0: none")
    held_out = parser.add_mutually_exclusive_group()
    held_out.add_argument("--eval-data", type=Path, help="what to evaluate on, like --data")
    held_out.add_argument("--eval-share", type=float, default=0.01, help="else, of the data")
    add("--length", type=int, default=SEQUENCE_LENGTH, help="tokens of a sequence")
    add("--batch-size", type=int, default=GLOBAL_BATCH_SIZE, help="sequences per optimizer step")
    add("--micro-batch-size", type=int, default=MICRO_BATCH_SIZE, help="sequences in one pass")
    add("--steps", "--max-steps", type=int, default=100, help="optimizer steps in all")
    add("--epochs", type=float, default=0.0, help="how often the data is read, in place of --steps")
    add("--lr", type=float, default=0.00015, help="learning rate after the warm-up")
    add("--warmup", type=float, default=0.01, help="share of the steps; from 1, steps")
    add("--beta2", type=float, default=0.95, help="of AdamW")
    add("--weight-decay", type=float, default=0.1, help="of matrices alone")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0)
    add("--cpu", action="store_true", help="train on CPUs, to try the script")
    add("--no-dropout", action="store_true", help="train without, where the model has some")
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
    dtypes = ["float32", "bfloat16", "float16"]
    add("--save-dtype", choices=dtypes, help="of the final weights; default: the model's own")
    add("--push-to-hub", metavar="REPOSITORY", help="upload the final weights to the Hub")
    args = parser.parse_args()
    args.init = args.init or ("random" if args.model == MODEL else "pretrained")
    check(args)
    return args


def check(args: Namespace) -> None:
    """Refuse what would end the run later on."""
    counts = ("steps", "length", "batch_size", "micro_batch_size")
    for name, value in vars(args).items():
        if isinstance(value, int | float) and not value >= (1 if name in counts else 0):
            fail(f"--{name.replace('_', '-')} {value} is too small")
    if args.beta2 >= 1:
        fail(f"--beta2 {args.beta2} is not below 1")
    for package in ("tensorboard", "wandb"):
        if vars(args)[package] and not importlib.util.find_spec(package):
            fail(f"--{package} needs its package: pip install {package}")
    if args.epochs and not (args.data or args.dataset):
        fail("--epochs counts the rows of --data or --dataset")
    for path in (args.data, args.eval_data):
        if path and not path.exists():
            fail(f"there is no {path}: paths are relative to the folder of launch.sh")
    if args.log and (args.log.is_dir() or not args.log.absolute().parent.is_dir()):
        fail(f"--log {args.log} is no file of a folder that is there")
    if args.eval_data and not args.eval_every:
        fail("nothing is evaluated without --eval-every N")
