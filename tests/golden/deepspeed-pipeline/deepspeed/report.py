"""Learning rates, progress beside what the plan expects, and traces."""

import argparse
import contextlib
import json
import math
import sys
import time
from typing import Any

import torch
from tqdm import tqdm

from settings import (
    EXPECTED_PEAK_GIB,
    EXPECTED_TOKENS_PER_SECOND,
    FLOPS_PER_TOKEN,
    GLOBAL_BATCH_SIZE,
    PEAK_FLOPS_PER_SECOND,
    SEQUENCE_LENGTH,
)


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
            figures["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
            line += f", peak {peak:.2f} GiB on rank 0 (plan {EXPECTED_PEAK_GIB:.2f} on the fullest)"
        self.bar.set_postfix_str(line)
        self.bar.update()
        if step == self.args.steps:
            self.bar.close()
        if self.bar.disable:
            print(f"step {step}/{self.args.steps}: {line}", flush=True)
        self.record(step, figures)

    def record(self, step: int, figures: dict[str, float]) -> None:
        """Write figures of a step to whatever keeps them."""
        if self.args.log:
            sizes = {"tokens_per_step": GLOBAL_BATCH_SIZE * SEQUENCE_LENGTH}
            line = json.dumps({"step": step, **figures, **sizes, "world_size": self.world_size})
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
