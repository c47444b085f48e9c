"""Train a causal-lm model on 2 x 4 GPUs, by PyTorch alone.

Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2,
pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.

Start it with launch.sh beside it.
"""

import contextlib
import datetime
import gc
import itertools
import json
import math
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

import settings
from checkpoints import FailedError, Stop, Training, find_starts, remove_older, resume, save_at_last
from data import Samples, batches, read_samples
from model import arrange, read_config
from settings import fail, parse_arguments


def join(args: Namespace) -> torch.device:
    """Join the other processes, or be a group of one; return this process's device."""
    processes, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if gpus < processes and not args.cpu:
        fail(f"found {gpus} of the {processes} GPUs that this needs here; --cpu trains without")
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


def introduce(args: Namespace, starts: list[Path], rank: int, world_size: int) -> None:
    """Say what training starts from, on how many of which device; end it where those do not fit."""
    planned = settings.WORLD_SIZE
    stride = args.micro_batch_size * world_size // settings.MODEL_RANKS
    if world_size % settings.MODEL_RANKS or args.batch_size % stride:
        shares = f"{args.batch_size} sequences a step, {args.micro_batch_size} at a time"
        fail(f"{world_size} processes cannot share {shares}: the plan is for {planned}")
    start = f"pretrained weights of {args.model}" if args.init == "pretrained" else "random weights"
    start = f"checkpoint {starts[0]}" if starts else start
    device = "CPU" if args.cpu else torch.cuda.get_device_name()
    beside = "" if world_size == planned else f" (the plan is for {planned})"
    if rank == 0:
        print(f"starting from {start}, on {world_size} x {device}{beside}", flush=True)


def learning_rate(args: Namespace, step: int) -> float:
    """Rise linearly during the warm-up, then fall to a tenth along a cosine."""
    warmup = round(args.warmup * args.steps if args.warmup < 1 else args.warmup)
    if step < warmup:
        return args.lr * (step + 1) / warmup
    done = (step - warmup) / max(1, args.steps - warmup)
    return args.lr * (0.55 + 0.45 * math.cos(math.pi * done))


class Report:
    """Progress beside what the plan expects: a line per step, and a record wherever one is kept."""

    def __init__(self, args: Namespace, flops: float, world_size: int) -> None:
        self.args, self.flops, self.world_size = args, flops, world_size
        self.board = self.run = None
        if args.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(args.tensorboard)
        if args.wandb:
            import wandb

            self.run = wandb.init(project=args.wandb, config=vars(args))
        self.clock = time.perf_counter()

    def show(self, step: int, loss: float, norm: float) -> None:
        """Show and record one optimizer step."""
        now = time.perf_counter()
        speed = self.args.batch_size * self.args.length / (now - self.clock)
        mfu = speed * self.flops / settings.PEAK_FLOPS_PER_SECOND / self.world_size
        rate = learning_rate(self.args, step - 1)
        figures = {"loss": loss, "learning_rate": rate, "gradient_norm": norm}
        figures |= {"tokens_per_second": speed, "mfu": mfu}
        line = f"loss {loss:.4f}, lr {rate:.2e}, norm {norm:.3g}, {speed:,.0f} tokens/s"
        line += f" (plan {settings.EXPECTED_TOKENS_PER_SECOND * self.world_size:,}), MFU {mfu:.1%}"
        if not self.args.cpu:
            figures["peak_gib"] = peak = torch.cuda.max_memory_allocated() / 2**30
            figures["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
            line += f", peak {peak:.2f} GiB on rank 0"
            line += f" (plan {settings.EXPECTED_PEAK_GIB:.2f} on the fullest)"
        self.record(step, figures, line)

    def record(self, step: int, figures: dict[str, float], line: str = "") -> None:
        """Print figures, and write them to whatever keeps them; the next step is timed from here."""
        line = line or ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(f"step {step}/{self.args.steps}: {line}", flush=True)
        if self.args.log:
            sizes = {"tokens_per_step": self.args.batch_size * self.args.length}
            text = json.dumps({"step": step, **figures, **sizes, "world_size": self.world_size})
            with self.args.log.open("a") as log:
                log.write(f"{text}\n")
        if self.board:
            for name, value in figures.items():
                self.board.add_scalar(f"train/{name}", value, step)
        if self.run:
            self.run.log(figures, step=step)
        self.clock = time.perf_counter()


def flops_per_token(args: Namespace, config: Any) -> float:
    """Return the plan's number; of another model 6 N + 12 layers x width x length."""
    flops: float = settings.FLOPS_PER_TOKEN
    if args.model == settings.MODEL and args.length == settings.SEQUENCE_LENGTH:
        return flops
    text = config.get_text_config()
    attention = 12 * text.num_hidden_layers * text.hidden_size
    if args.model != settings.MODEL:
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        matrices = sum(each.numel() for each in model.parameters() if each.ndim > 1)
        flops = 6 * matrices + attention * settings.SEQUENCE_LENGTH
    return flops + attention * (args.length - settings.SEQUENCE_LENGTH)


def profiler(args: Namespace, rank: int) -> Any:
    """Return what writes a trace of the third to fifth step, or does nothing."""
    if not args.profile:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(args.profile, f"rank-{rank}"),
        profile_memory=True,
    )


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def reduce_gradients(model: Any, mesh: DeviceMesh) -> None:
    """Average the gradients over the processes with the same parameters."""
    for parameter in model.parameters():
        if isinstance(parameter.grad, DTensor):  # of norms, say, each process has a part
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
        gradient = local(parameter.grad)
        gradient /= mesh.size()
        dist.all_reduce(gradient, group=mesh.get_group())


def clip(model: Any, most: float, device: torch.device) -> float:
    """Scale the gradients so that their norm over all processes is `most`, if it is more; return it.

    Each process adds up the squares of its parts, divided by how many processes have the same.
    """
    total = torch.zeros((), device=device)
    for parameter in model.parameters():
        copies = dist.get_world_size() // settings.PIPELINE_PARALLEL_SIZE
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


@torch.no_grad()
def evaluate(
    args: Namespace, training: Training, held_out: Samples, share: tuple[int, int]
) -> dict[str, float]:
    """Return the mean loss over all labels of what is held out; each process computes a part."""
    totals = torch.zeros(2, dtype=torch.double, device=training.device)
    several = len(settings.LAYERS_PER_STAGE)  # micro-batches at once
    span = range(several * math.ceil(held_out.count / (args.micro_batch_size * share[1] * several)))
    training.model.eval()
    following = batches(held_out, args, training.device, span, share)
    while part := [*itertools.islice(following, several)]:
        found = losses(training, part, training.evaluation.eval)
        for batch, loss in zip(part, found, strict=False):  # there are none but of the last stage
            count = (batch["labels"] != -100).sum()
            loss = torch.where(count > 0, loss * count, 0.0)  # a mean over none is no number
            totals += torch.stack([loss.double(), count.double()])
    training.model.train()
    dist.all_reduce(totals)
    loss, labels = totals.tolist()
    return {"eval_loss": loss / labels, "eval_perplexity": math.exp(min(loss / labels, 700.0))}


def losses(training: Training, batches: list[dict[str, Any]], run: Any) -> list[torch.Tensor]:
    """Have a schedule step or evaluate micro-batches; return the losses that the last stage has."""
    found: list[torch.Tensor] = []
    tokens, labels = (
        torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "labels")
    )
    with loss_parallel():
        run(tokens, target=labels, losses=found, return_outputs=False)
    return [local(loss.detach()) for loss in found]


def train_step(args: Namespace, training: Training, batches: list[dict[str, Any]]) -> float:
    """Take one optimizer step; return the loss, averaged over the global batch."""
    model, optimizer = training.model, training.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(args, training.step)
    total = torch.zeros((), device=training.device)
    for loss in losses(training, batches, training.schedule.step):
        total += loss / len(batches)
    reduce_gradients(model, training.mesh["data"])
    training.norm = clip(model, args.clip, training.device)
    optimizer.step()
    group = training.mesh["data"].get_group()
    for parameter, owner in training.owners.items():  # each process has stepped its own
        dist.broadcast(local(parameter.detach()), group=group, group_src=owner)
    model.zero_grad()
    training.step += 1
    dist.all_reduce(total)
    return total.item() / (dist.get_world_size() // settings.PIPELINE_PARALLEL_SIZE)


def train(args: Namespace, device: torch.device) -> int:
    """Take the steps that are left, save the model; return the exit status."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    starts = find_starts(args)
    introduce(args, starts, rank, world_size)
    config = read_config(args)
    dtype = str(config.dtype or settings.MODEL_OPTIONS["dtype"]).removeprefix("torch.")
    args.save_dtype = args.save_dtype or dtype
    flops = flops_per_token(args, config)
    mesh = arrange(device)
    share = (mesh["data"].get_local_rank(), mesh["data"].size())
    samples, held_out = read_samples(args, config.vocab_size)
    training = Training(args, config, mesh, device)
    resume(training, starts)
    report = Report(args, flops, world_size) if rank == 0 else None
    stop = Stop(device)
    several = args.batch_size // (args.micro_batch_size * share[1])
    span = range(training.step * several, args.steps * several)
    following = batches(samples, args, device, span, share)
    with profiler(args, rank) as profile:
        while training.step < args.steps and not stop.signal:
            # Dropout depends on the seed, the step and the rank alone, so a resumed run repeats it.
            # Processes of a tensor-parallel group must drop the same.
            stream = rank // settings.TENSOR_PARALLEL_SIZE
            torch.manual_seed((args.seed * 1_000_003 + training.step) * world_size + stream)
            loss = train_step(args, training, [*itertools.islice(following, several)])
            if report:
                report.show(training.step, loss, training.norm)
            if held_out and (training.step % args.eval_every == 0 or training.step == args.steps):
                metrics = evaluate(args, training, held_out, share)
                if report:
                    report.record(training.step, metrics)
            if profile:
                profile.step()
            is_due = args.save_every and training.step % args.save_every == 0
            if stop.agreed() or is_due:
                training.save(args.output / f"step-{training.step}")
                remove_older(args, training.step)
    following.close()
    if training.step < args.steps:
        return stop.exit(args, training.step)
    status = 0 if args.no_save_model else save_at_last(training, args, stop)
    dist.barrier()
    return status


def main() -> None:
    """Train; what is foreseen ends the run with one line, other errors are left uncaught."""
    args = parse_arguments(__doc__)
    try:
        status = train(args, join(args))
    except FailedError as error:
        fail(str(error))
    gc.collect()  # the model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
