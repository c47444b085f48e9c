"""Folders of checkpoints: which to continue from, how one is written, when a signal asks for one."""

import argparse
import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from start import fail


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
    partial, is_made = folder.with_name(f"{folder.name}.partial"), False
    try:
        if is_first():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        wait_for_all()
        is_made = True
        yield partial
        wait_for_all()
    except Exception as error:
        failed = folder.with_name(f"{folder.name}.failed-{os.getpid()}")
        try:
            partial.rename(failed)  # one process can, and says why
        except OSError:
            is_told = is_made and folder.parent.exists()
        else:
            is_told = False
            shutil.rmtree(failed, ignore_errors=True)
        raise SystemExit(1 if is_told else failure(folder, error)) from error
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
        print(f"saved {folder}", flush=True)
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
    """Whether any process was told to end: by SIGTERM, by Ctrl-C, or by SIGUSR1 as Slurm warns of a limit."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.received = 0  # by this process, at any moment
        self.signal = 0  # by any process, known to all
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
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
