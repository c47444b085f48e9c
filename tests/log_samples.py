"""A small log of every kind, as its program prints it; times are made up."""

import json
from typing import Any

STEPS = 12
SLOW = 4.0
"""Times a steady step that the first takes."""


def _seconds(step: int) -> float:
    return (SLOW if step == 1 else 1.0) * 0.5 + 0.001 * (step % 3)


def script(ranks: int = 2, device: str = "NVIDIA L40S") -> str:
    tokens = 16 * 512
    lines = [f"starting from random weights, on {ranks} x {device}"]
    for step in range(1, STEPS + 1):
        speed = tokens / _seconds(step)
        lines.append(
            f"step {step}/{STEPS}: loss 4.1234, lr 1.00e-04, norm 1.23, {speed:,.0f} tokens/s"
            f" (plan 67,892), MFU 7.0%, peak 8.0{step % 3} GiB (plan 7.43)"
        )
    return "\n".join(lines)


def script_records(step_seconds: float = 0.5, peak_gib: float = 7.4, **more: Any) -> str:
    records = []
    for step in range(1, STEPS + 1):
        speed = 16 * 512 / (step_seconds * (SLOW if step == 1 else 1.0))
        figures = {"loss": 4.1, "tokens_per_second": speed, "mfu": 0.1, "peak_gib": peak_gib}
        records.append(json.dumps({"step": step, **figures, **more, "world_size": 2}))
    return "\n".join(records)


def megatron() -> str:
    arguments = {
        "context_parallel_size": 1,
        "global_batch_size": 128,
        "micro_batch_size": 1,
        "pipeline_model_parallel_size": 2,
        "recompute_granularity": None,
        "seq_length": 2048,
        "sequence_parallel": True,
        "tensor_model_parallel_size": 2,
        "use_distributed_optimizer": True,
        "virtual_pipeline_model_parallel_size": None,
        "world_size": 8,
    }
    lines = ["using world size: 8, data-parallel size: 2", "-------- arguments --------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    lines.append("-------- end of arguments ---------")
    lines += [
        f" [2026-11-01 10:00:{step:02}] iteration {step * 10:8}/     120 | consumed samples: {step * 1280:12} |"
        f" elapsed time per iteration (ms): {_seconds(step) * 1000:.1f} | learning rate: 1.0E-04 |"
        " global batch size:   128 | lm loss: 7.4E+00 | loss scale: 1.0 | grad norm: 2.9 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
        for step in range(1, STEPS + 1)
    ]
    lines += [
        f"[Rank {rank}] (after 10 iterations) memory (MB) | allocated: 1400.5 |"
        f" max allocated: {1500 + rank}.5 | reserved: 2000.0 | max reserved: {2048 + rank}.0"
        for rank in (0, 4)
    ]
    return "\n".join(lines)


def deepspeed() -> str:
    head = "[2026-11-01 10:00:00,000] [INFO] [config.py:1003:print]"
    config: dict[str, Any] = {"gradient_accumulation_steps": 2, "train_batch_size": 16}
    config |= {"train_micro_batch_size_per_gpu": 4}
    config |= {"zero_optimization_stage": "ZeroStageEnum.weights"}
    lines = [f"{head}   {name} {'.' * (29 - len(name))} {value}" for name, value in config.items()]
    lines += [
        "[2026-11-01 10:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/"
        f"global_step={step}, RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec={16 / _seconds(step)},"
        f" MemAllocated=3.01GB, MaxMemAllocated=7.{step:02}GB"
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(lines)


def nemo() -> str:
    lines = ["    num_nodes: 1", "    devices: 8", "    micro_batch_size: 1"]
    lines += ["    global_batch_size: 128", "    tensor_model_parallel_size: 4"]
    lines += ["    pipeline_model_parallel_size: 1", "    encoder_seq_length: 4096"]
    bar = "\r".join(
        f"Epoch 0: :  {step}%|███       | {step}/{STEPS} [00:{step:02}<00:10, v_num=,"
        f" reduced_train_loss=6.130, global_step={step - 1}.000, consumed_samples={step * 128}.0,"
        f" train_step_timing in s={_seconds(step):.3f}]"
        for step in range(1, STEPS + 1)
    )
    return "\n".join([*lines, bar])


def nemo_2() -> str:
    return "\n".join(
        f"Training epoch 0, iteration {step - 1}/{STEPS - 1} | lr: 6.897e-06 | global_batch_size: 128 |"
        f" global_step: {step - 1} | max_memory_reserved: 127785762816 |"
        " max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 |"
        f" train_step_timing in s: {_seconds(step):.4g} | consumed_samples: {step * 128}"
        for step in range(1, STEPS + 1)
    )


def torchtitan() -> str:
    head = "[rank0]:[titan] 2026-11-01 10:00:00,000 - root - INFO -"
    lines = [
        f"{head} CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
        (
            f"{head} Building device mesh with parallelism:"
            " pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1"
        ),
        (
            f"{head} Trainer is initialized with local batch size 2, global batch size 8, gradient"
            " accumulation steps 1, sequence length 8192, total steps 12 (warmup 2)"
        ),
    ]
    lines += [
        f"{head} \x1b[31mstep: {step:2}  \x1b[32mloss:  8.16610  \x1b[38;2;180;60;0mgrad_norm:  3.6855"
        f"  \x1b[36mmemory: 40.{step:02}GiB(50.6%)  \x1b[34mtps: {round(8 * 8192 / 8 / _seconds(step)):,}"
        "  \x1b[36mtflops: 190.01  \x1b[35mmfu: 19.21%\x1b[39m"
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(lines)


def nanotron() -> str:
    head = "11/01/2026 10:00:00 [INFO|DP=0|PP=0|TP=0|node-1]:"
    lines = [
        f"{head}  parallelism=ParallelismArgs(dp=2,",
        "   pp=1,",
        "   tp=4,",
        (
            f"{head} mbs: 2 | grad_accum: 4 | cp: 1 | sequence_length: 4096 | global_batch_size: 16 |"
            " train_steps: 12 | start_iteration_step: 0 | consumed_tokens_total: 0"
        ),
        f"{head}  Memory usage: 1400.50MiB. Peak allocated 1500.25MiB. Peak reserved: 2000.00MiB",
    ]
    lines += [
        f"{head} iteration: {step} / 12 | consumed_tokens: 65.5K |"
        f" time_per_iteration_ms: {'2K' if step == 1 else f'{_seconds(step) * 1000:.3g}'} | tokens_per_sec: 131K |"
        " tokens_per_sec_per_gpu: 16.4K | global_batch_size: 65.5K | lm_loss: 10.8 | lr: 0.0003"
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(lines)


def maxtext() -> str:
    lines = ["Config param max_target_length: 2048", "Config param per_device_batch_size: 4.0"]
    lines += [
        f"completed step: {step - 1}, seconds: {_seconds(step):.3f}, TFLOP/s/device: 87.349,"
        " Tokens/s/device: 2117.382, total_weights: 2945, loss: 10.888"
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(lines)


def _event(key: str, value: Any, time_ms: int, **metadata: Any) -> str:
    kind = {"start": "INTERVAL_START", "_stop": "INTERVAL_END"}.get(key[-5:], "POINT_IN_TIME")
    event = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key}
    place = {"file": "/workspace/train.py", "lineno": 129}
    return f"0: :::MLLOG {json.dumps({**event, 'value': value, 'metadata': {**place, **metadata}})}"


def mlperf() -> str:
    lines = [_event("global_batch_size", 8, 0), _event("max_sequence_length", 8192, 0)]
    for block in range(4):
        start, samples = 1_721_026_000_000 + block * 250_000, block * 384
        lines.append(_event("block_start", None, start, samples_count=samples))
        lines.append(_event("block_stop", None, start + 200_000, samples_count=samples + 384))
    return "\n".join(lines)


def mlperf_tracked() -> str:
    stats = [{"throughput": 0.4}, *({"throughput": 1.92} for _ in range(6))]
    tracked = (_event("tracked_stats", each, 0, step=384 * n) for n, each in enumerate(stats))
    return "\n".join([_event("global_batch_size", 8, 0), *tracked])


def trainer() -> str:
    lines = [
        "***** Running training *****",
        "  Num examples = 1,000",
        "  Instantaneous batch size per device = 8",
        "  Total train batch size (w. parallel, distributed & accumulation) = 16",
        "  Gradient Accumulation steps = 1",
        "  Total optimization steps = 30",
        "{'loss': '4.21', 'grad_norm': '1.5', 'learning_rate': '5e-05', 'epoch': '0.5'}",
        "\r 50%|#####     | 15/30 [00:07<00:07,  2.00it/s]\r100%|##########| 30/30 [00:15<00:00]",
        (
            "{'train_runtime': '15.0', 'train_samples_per_second': '32', 'train_steps_per_second': '2',"
            " 'train_loss': '4.1', 'epoch': '1'}"
        ),
    ]
    return "\n".join(lines)


def swift(unit: str = "iter/s", seconds: float = 5.0) -> str:
    """ms-swift's lines of loss: the mean so far, with its first step in it; its last is the run's."""
    lines = []
    for step in (1, 10, 20, 40):
        mean = seconds * (1 + (SLOW - 1) / step)
        speed = 1 / mean if unit == "iter/s" else mean
        lines.append(
            f"{{'loss': 0.42, 'grad_norm': 3.7, 'memory(GiB)': {70 + step / 10}, 'train_speed({unit})': {speed:.6f},"
            f" 'epoch': 0.2, 'global_step/max_steps': '{step}/400', 'elapsed_time': '25m 15s'}}"
        )
    return "\n".join(lines)


def bars(each: float = 4.0, steps: int = 60, start: str = "", end: str = "") -> str:
    """A bar of training as tqdm redraws it; the first iteration takes longer."""
    lines = []
    for step in range(steps + 1):
        seconds = round(step * each + (SLOW - 1) * each * (step > 0))
        clock = f"{seconds // 60:02}:{seconds % 60:02}"
        lines.append(
            f"{start} {100 * step // steps:3}%|##        | {step}/{steps} [{clock}<01:00,  {each:.2f}s/it{end}]"
        )
    return "\r".join(lines)


def nanogpt() -> str:
    lines = ["tokens per iteration will be: 8,192", "number of parameters: 123.59M"]
    lines += [
        f"iter {step * 10}: loss 3.9123, time {_seconds(step) * 1000:.2f}ms, mfu 38.21%"
        for step in range(1, STEPS + 1)
    ]
    return "\n".join(lines)


def accelerate_example() -> str:
    head = "11/01/2026 10:00:00 - INFO - __main__ - "
    lines = [f"{head}***** Running training *****", f"{head}  Total optimization steps = 60"]
    lines.append(f"{head}  Instantaneous batch size per device = 8")
    return "\n".join([*lines, bars()])


def trainer_state() -> str:
    history: list[dict[str, Any]] = [{"loss": 4.2, "epoch": 0.5, "step": 15}]
    history.append({"train_runtime": 15.0, "train_steps_per_second": 2.0, "step": 30, "epoch": 1.0})
    state = {"global_step": 30, "max_steps": 30, "train_batch_size": 8, "log_history": history}
    return json.dumps(state, indent=2)


def trace(step_seconds: float = 0.1) -> str:
    """Three steps: 60 % compute, 30 % NCCL of which half is hidden, 25 % idle."""
    length = round(step_seconds * 1e6)
    events: list[dict[str, Any]] = []
    for step in range(3):
        start = 1_000_000 + step * length
        for category, name, at, share, stream in (
            ("user_annotation", f"ProfilerStep#{step + 2}", 0, 1, None),
            ("kernel", "ampere_bf16_gemm", 0, 0.6, 7),
            ("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 0.45, 0.3, 20),
        ):
            arguments = {} if stream is None else {"stream": stream, "device": 0}
            event: dict[str, Any] = {"ph": "X", "cat": category, "name": name}
            event |= {"ts": start + at * length, "dur": share * length}
            events.append({**event, "pid": 0, "tid": stream or 1, "args": arguments})
    totals = {"Device Type": 1, "Device Id": 0, "Bytes": 512}
    totals |= {"Total Allocated": 2**30, "Total Reserved": 2**31}
    events.append({"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "args": totals})
    return json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA L40S"}],
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
            "traceEvents": events,
        }
    )


def nccl_tests(name: str = "all_reduce", hosts: int = 2, *, has_name: bool = True) -> str:
    ranks = 4 * hosts
    factor = 2 * (ranks - 1) / ranks if name == "all_reduce" else (ranks - 1) / ranks
    redop = "none" if name in {"all_gather", "alltoall"} else "sum"
    lines = [f"# Collective test starting: {name}_perf"] if has_name else []
    lines += ["# nThread 1 nGpus 1 minBytes 1048576 maxBytes 16777216", "#", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid {900 + rank:6} on     node-{rank // 4} device  {rank % 4}"
        f" [0000:{rank:02x}:00] NVIDIA A100-SXM4-80GB"
        for rank in range(ranks)
    ]
    lines += ["NCCL version 2.27.3+cuda12.9", "#"]
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    ]
    for power in range(20, 25):
        size = 2**power
        microseconds = 30 + size / 1e5
        speed = size / microseconds / 1e3
        half = f"{microseconds:8.2f} {speed:7.2f} {speed * factor:7.2f}      0"
        lines.append(f"{size:12} {size // 4:13}     float {redop:>7}      -1 {half} {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.0"]
    return "\n".join(lines)


SAMPLES = {
    "the planner's script": (script, script_records),
    "Megatron-LM": (megatron,),
    "DeepSpeed": (deepspeed,),
    "NeMo": (nemo, nemo_2),
    "torchtitan": (torchtitan,),
    "nanotron": (nanotron,),
    "MaxText": (maxtext,),
    "MLPerf": (mlperf, mlperf_tracked),
    "transformers' Trainer": (trainer, swift),
    "transformers' trainer_state.json": (trainer_state,),
    "a profiler's trace": (trace,),
    "nccl-tests": (nccl_tests,),
    "nanoGPT": (nanogpt,),
    "a progress bar": (accelerate_example, bars),
}
"""By kind, as a reading names it."""
