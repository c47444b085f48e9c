"""What a step changes, how it is kept and found again, and when a signal asks for that."""

import contextlib
import itertools
import shutil
import signal
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as sharded
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import DeviceMesh

import settings
from data import read_tokenizer
from model import assemble, build_schedule, is_first, next_token_loss, save_weights, whole_weights
from settings import CHECKPOINT_BYTES, MODEL, MODEL_BYTES, fail

STATE_OPTIONS = sharded.StateDictOptions(flatten_optimizer_state_dict=True)


class FailedError(Exception):
    """What some process could not do, known to all, in one line."""


@contextlib.contextmanager
def agreed(what: str) -> Iterator[None]:
    """Have all processes fail where one does; all call this."""
    mine, everyone = None, [None] * dist.get_world_size()
    try:
        yield
    except (Exception, CheckpointException) as error:
        # torch.distributed.checkpoint lists what failed, by rank.
        causes = [cause for cause, *_ in getattr(error, "failures", {}).values()]
        said = str(causes[0] if causes else error).strip() or type(error).__name__
        mine = f"{what}: {said.splitlines()[0]}"[:500]
    dist.all_gather_object(everyone, mine)
    if said := next(filter(None, everyone), None):
        raise FailedError(said)


def checkpoints(output: Path) -> dict[int, Path]:
    """Return the whole checkpoints in a folder by their step, the newest first."""
    paths = [path for path in output.glob("step-*") if path.name[5:].isdecimal()]
    return dict(sorted(((int(path.name[5:]), path) for path in paths), reverse=True))


def find_starts(args: Namespace) -> list[Path]:
    """Return the checkpoints to continue from, the newest first, after a look at the output."""
    found: list[Any] = [[]]
    if is_first():
        earlier, final = [*checkpoints(args.output).values()], args.output / "final"
        if args.overwrite:
            for folder in [*earlier, final]:
                shutil.rmtree(folder, ignore_errors=True)
        elif args.resume and args.resume != Path("latest"):
            is_there = args.resume.is_dir()
            found = [[args.resume] if is_there else f"there is no checkpoint {args.resume}"]
        elif args.resume and earlier:
            found = [earlier]
        elif earlier or final.exists():  # the results of an earlier run are not replaced unasked
            folder = earlier[0] if earlier else final
            cure = "--resume latest continues it" if earlier else "--output names another folder"
            found = [f"{folder} is from an earlier run: {cure}, --overwrite removes it"]
        elif args.resume:
            print(f"there is no checkpoint in {args.output}: starting anew", flush=True)
    dist.broadcast_object_list(found)
    if isinstance(found[0], str):
        fail(found[0])
    check_output(args)
    return found[0]


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest around it that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def free_gb(folder: Path) -> float:
    """Return what is free on the disk of a folder, which need not be there."""
    return shutil.disk_usage(existing(folder)).free / 1e9


def check_output(args: Namespace) -> None:
    """Refuse, before the first step, what cannot be written, or a disk too small for the plan."""
    for folder in (args.output, args.save_model or args.output):
        with agreed(f"{folder} cannot be written"):
            with tempfile.TemporaryFile(dir=existing(folder)) as file:
                file.write(b"0")
                file.flush()
            needed = CHECKPOINT_BYTES if args.save_every else 0
            needed += 0 if args.no_save_model else MODEL_BYTES
            if free_gb(folder) < needed / 1e9 and args.model == MODEL:
                raise ValueError(f"{needed / 1e9:.1f} GB go there, {free_gb(folder):.1f} are free")


@contextlib.contextmanager
def written(folder: Path, *, is_checkpoint: bool) -> Iterator[Path]:
    """Yield a folder to write into, which gets its name when it is whole: all call this."""
    partial = folder.with_name(f"{folder.name}.partial")
    failed = f"{folder} was not saved, with {free_gb(folder):.1f} GB free on its disk"
    try:
        with agreed(failed):
            if is_first():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
        with agreed(failed):
            yield partial
        with agreed(failed):
            if is_first() and is_checkpoint:
                shutil.rmtree(folder, ignore_errors=True)
                partial.rename(folder)
            elif is_first():  # the folder may hold other things, or be a mount point
                folder.mkdir(parents=True, exist_ok=True)
                for stale in folder.glob("model*.safetensors*"):
                    stale.unlink()
                for path in partial.iterdir():
                    shutil.move(path, folder / path.name)
                partial.rmdir()
                print(f"saved {folder}", flush=True)
    except FailedError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_older(args: Namespace, step: int) -> None:
    """Keep the newest --keep of the checkpoints up to this step."""
    if args.keep and is_first():
        earlier = [path for number, path in checkpoints(args.output).items() if number <= step]
        for folder in earlier[args.keep :]:
            shutil.rmtree(folder)


class Stop:
    """Whether any process was told to end: by SIGTERM, Ctrl-C, or SIGUSR1, by which Slurm warns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.received = self.signal = 0  # by this process, at any moment; by any, known to all
        with contextlib.suppress(ValueError):  # a thread, as Ray's, is sent none
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, self.note)

    def note(self, number: int, frame: Any) -> None:
        """Remember the signal; the running step ends first."""
        self.received = number

    def agreed(self) -> int:
        """Return the signal that any process has got, 0 without one; all processes call this."""
        largest = torch.tensor(self.received, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        self.signal = int(largest.item())
        return self.signal

    def exit(self, args: Namespace, step: int) -> int:
        """Say that the run is not finished; return the exit status of a process that ended so."""
        if is_first():
            name = signal.Signals(self.signal).name
            print(f"{name} after step {step}: --resume latest --output {args.output} continues")
        return 128 + self.signal


def save_tokenizer(args: Namespace, folder: Path) -> None:
    """Save the tokenizer beside the model, where the run has data."""
    if is_first() and (args.data or args.dataset):
        with contextlib.suppress(SystemExit):  # tokens of files need none
            read_tokenizer(args).save_pretrained(folder)


def deal(parameters: Iterable[torch.Tensor], size: int) -> dict[torch.Tensor, int]:
    """Return which process steps each parameter, so that all have about as many elements."""
    owners, loads = {parameter: 0 for parameter in parameters}, [0] * size
    for parameter in sorted(owners, key=torch.numel, reverse=True):
        owners[parameter] = loads.index(min(loads))
        loads[owners[parameter]] += parameter.numel()
    return owners


def groups(parameters: Any, decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters: biases and the scales of norms do not decay."""
    apart: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        mesh = getattr(parameter, "device_mesh", None)  # a group is on the same processes
        apart.setdefault((decay if parameter.ndim > 1 else 0.0, mesh), []).append(parameter)
    found = [{"params": group, "weight_decay": each} for (each, _), group in apart.items()]
    return found or [{"params": []}]


class Training:
    """What a step changes and a checkpoint holds."""

    def __init__(
        self, args: Namespace, config: Any, mesh: DeviceMesh, device: torch.device
    ) -> None:
        self.model, stages = assemble(args, config, mesh, device)
        self.owners = deal(self.model.parameters(), mesh["data"].size())
        rank = mesh["data"].get_local_rank()
        own = (parameter for parameter, owner in self.owners.items() if owner == rank)
        parameters = groups(own, args.weight_decay)
        self.optimizer = torch.optim.AdamW(parameters, betas=(0.9, args.beta2), fused=True)
        self.mesh, self.device = mesh, device
        self.step, self.norm = 0, 0.0  # the gradient's, before it was clipped
        given = (args, stages, next_token_loss, mesh, device)
        several = args.batch_size // (args.micro_batch_size * mesh["data"].size())
        self.schedule = build_schedule(*given, several)
        # Of what it evaluates at once it keeps all logits: few micro-batches, then.
        self.evaluation = build_schedule(*given, len(settings.LAYERS_PER_STAGE))

    def state(self) -> dict[str, Any]:
        """Return this process's parts of the state, under the names of the whole model."""
        model, optimizer = sharded.get_state_dict(self.model, self.optimizer, options=STATE_OPTIONS)
        own = {"model": model, "optimizer": optimizer, "step": self.step}
        return own

    def save(self, folder: Path) -> None:
        """Write a checkpoint, then give its folder the final name."""
        with written(folder, is_checkpoint=True) as partial:
            dcp.save(self.state(), checkpoint_id=partial)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint, of any layout in which the matrices have the same names."""
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        sharded.set_state_dict(self.model, self.optimizer, **parts, options=STATE_OPTIONS)
        self.step = int(state["step"])

    def save_model(self, args: Namespace, folder: Path) -> None:
        """Write the whole weights as safetensors from rank 0."""
        _, *others = self.mesh.get_coordinate()
        keeps = not any(others)  # of each stage one process
        with written(folder, is_checkpoint=False) as partial:
            dtype = getattr(torch, args.save_dtype)
            weights = whole_weights(self.model, dtype, keeps=keeps)
            save_weights(self.model, weights, partial, dtype)
            save_tokenizer(args, partial)


def resume(training: Training, starts: list[Path]) -> None:
    """Continue from the first of these checkpoints that can be read."""
    for folder, following in itertools.zip_longest(starts, starts[1:]):
        try:
            with agreed(f"checkpoint {folder} cannot be read"):
                if not (folder / ".metadata").is_file():
                    raise ValueError("it is none of this script, or not whole")
                training.load(folder)
            return
        except FailedError as error:
            if following is None:
                raise
            if is_first():
                print(f"{error}; continuing from {following}", flush=True)


def save_at_last(training: Training, args: Namespace, stop: Stop) -> int:
    """Save the model: where that fails elsewhere, and again every minute; return the status."""
    asked = args.save_model or args.output / "final"
    spare = Path(tempfile.gettempdir()) / str(asked.absolute()).strip("/").replace("/", "-")
    for folder in itertools.cycle([asked, spare]):
        try:
            training.save_model(args, folder)
            break
        except FailedError as error:
            following = f"in {spare}" if folder == asked else "in a minute, when there is room"
            if is_first():
                print(f"{error}: trying again {following}", flush=True)
            time.sleep(60 if folder == spare else 0)
            if stop.agreed():
                return stop.exit(args, training.step)
    if args.push_to_hub and is_first():
        huggingface_hub.upload_folder(repo_id=args.push_to_hub, folder_path=folder)
    return int(folder == spare)
