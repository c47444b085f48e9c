"""The flags that describe a job, and the wire request that they make."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from planner.cli import typed, wishes
from planner.cli.numbers import FiniteRange
from planner.cli.output import say
from planner.domain.dimensions import DIMENSIONS
from planner.request.typed import read_each, unless_wrong

F = TypeVar("F", bound=Callable[..., Any])

_CLUSTER = (
    "instance",
    "gpu",
    "gpus_per_node",
    "nodes",
    "intra_node",
    "inter_node",
    "nvlink_domain_gpus",
    "gpu_power_watts",
    "peer_to_peer",
)
_RECIPE = (
    "fp8_recipe",
    "optimizer",
    "method",
    "weights_dtype",
    "attention",
    "loss",
    "framework",
    "framework_version",
    "gradient_reduce_dtype",
    "tensor_parallel_overlap",
    "data_parallel_overlap",
    "expert_dispatch",
    "expert_parallel_overlap",
    "optimizer_in_backward",
    "cuda_graphs",
    "task",
    "compile",
    "packed",
    "padding_share",
)
_STRATEGY = (
    "data_parallel_size",
    *(each.field for each in DIMENSIONS),
    "expert_tensor_parallel_size",
    "sequence_parallel",
    "pipeline_schedule",
    "virtual_pipeline_size",
    "pipeline_layout",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "recompute",
    "recompute_layers",
    "recompute_modules",
    "activation_offload_layers",
    "offload",
    "synchronize_every",
)


def job_options(command: F) -> F:
    """Add the flags that describe a job; their names are the fields of the wire contract."""
    options = (
        click.option("--gpus", "gpus_per_node", type=int, help="GPUs per node."),
        click.option("--nodes", type=int, default=1, show_default=True, help="Nodes."),
        click.option(
            "--gpu", metavar="NAME", help="GPU, such as h100, or 3090:2,3060:1 for several."
        ),
        click.option(
            "--instance", metavar="NAME", help="Cloud instance, such as p4d.24xlarge or p5."
        ),
        click.option(
            "--topology",
            type=click.Path(exists=True, dir_okay=False, allow_dash=True),
            help="File with the output of `nvidia-smi topo -m`.",
        ),
        click.option(
            "--intra-node",
            metavar="LINK",
            help="Link between the GPUs of a node: pcie-4-x16, or 20GB/s as measured.",
        ),
        click.option(
            "--inter-node",
            metavar="LINK",
            help="Network of a node: 8x infiniband-ndr, 400Gbit/s, or 45GB/s as measured.",
        ),
        click.option(
            "--nvlink-domain",
            "nvlink_domain_gpus",
            metavar="GPUS",
            type=int,
            help="GPUs that NVLink joins across nodes: 72 in a rack of GB200.",
        ),
        click.option(
            "--gpu-power",
            "gpu_power_watts",
            metavar="WATTS",
            type=int,
            help="The power limit that the GPUs run at, where it is not their own.",
        ),
        click.option(
            "--peer-to-peer/--no-peer-to-peer",
            default=None,
            help="Whether GPUs copy to each other directly, not through host memory.",
        ),
        click.option(
            "--machine",
            metavar="FILE",
            help="What `planner calibrate` measured of this machine: its figures win.",
        ),
        click.option("--revision", help="Branch, tag or commit of the model on the Hub."),
        click.option(
            "--seq-len", "sequence_length", metavar="N", help="Tokens per sequence, such as 128k."
        ),
        click.option(
            "--global-batch-size",
            metavar="N",
            help="Sequences per optimizer step, or tokens: 0.5M, 524288tokens.",
        ),
        click.option("--precision", help="fp32, tf32, fp16-mixed (fp16), bf16-mixed, bf16 or fp8."),
        click.option(
            "--fp8-recipe", help="tensorwise, rowwise, blockwise or mxfp8: scales of fp8."
        ),
        click.option("--optimizer", help="adamw, adamw-8bit, sgd, adafactor, lion, muon ..."),
        click.option("--method", help="full, lora or qlora."),
        click.option("--lora-rank", type=int, help="Rank of the adapters."),
        click.option(
            "--lora-targets", metavar="NAMES", help="Linears with adapters, or all-linear."
        ),
        click.option(
            "--weights", "weights_dtype", help="fp32, or config: as the model's config says."
        ),
        click.option("--attention", help="eager, sdpa or flash."),
        click.option("--loss", help="standard, chunked or fused: how much of the logits exists."),
        click.option(
            "--framework", help="torch, accelerate, deepspeed, megatron, torchtitan, nanotron ..."
        ),
        click.option(
            "--framework-version",
            metavar="VERSION",
            help="Release or date, such as 2022-03; the nearest known record is taken.",
        ),
        click.option(
            "--gradient-reduce-dtype", help="fp32 or bf16: what ranks exchange of gradients."
        ),
        click.option(
            "--tp-overlap/--no-tp-overlap",
            "tensor_parallel_overlap",
            default=None,
            help="Whether exchanges of tensor parallelism hide behind matmuls.",
        ),
        click.option(
            "--dp-overlap/--no-dp-overlap",
            "data_parallel_overlap",
            default=None,
            help="Whether gradients are reduced beside backward.",
        ),
        click.option(
            "--expert-dispatch",
            help="all-to-all: a token goes to each of its experts; or once-per-node (DeepEP, HybridEP).",
        ),
        click.option(
            "--ep-overlap/--no-ep-overlap",
            "expert_parallel_overlap",
            default=None,
            help="Whether the experts' exchange hides behind other micro-batches.",
        ),
        click.option(
            "--optimizer-in-backward/--no-optimizer-in-backward",
            default=None,
            help="Step each parameter as backward reaches it.",
        ),
        click.option("--cuda-graphs/--no-cuda-graphs", default=None, help="Launch layers whole."),
        click.option(
            "--task",
            help="sequence-classification or token-classification, for another head than the model's.",
        ),
        click.option(
            "--compile/--no-compile", default=None, help="Run the model through torch.compile."
        ),
        click.option(
            "--packed/--padded", default=None, help="Texts follow each other, or each is padded."
        ),
        click.option(
            "--padding-share",
            type=FiniteRange(0, 1, max_open=True),
            help="Share of the tokens that are padding, such as 0.3.",
        ),
        click.option(
            "--strategy",
            metavar="NAME",
            help="ddp, zero-1, zero-2, zero-3 (fsdp), hsdp, or several: tp+pp+zero-1; or JSON.",
        ),
        click.option("--dp", "data_parallel_size", type=int, help="Data parallel size."),
        *(
            click.option(
                f"--{each.short_name}",
                each.field,
                type=int,
                help=f"{each.name.capitalize()} parallel size.",
            )
            for each in DIMENSIONS
        ),
        click.option("--sequence-parallel/--no-sequence-parallel", default=None, help="With --tp."),
        click.option("--schedule", "pipeline_schedule", help="gpipe, 1f1b, interleaved-1f1b ..."),
        click.option("--virtual-stages", "virtual_pipeline_size", type=int, help="Per stage."),
        click.option(
            "--pipeline-layout",
            metavar="LAYOUT",
            help="Layers of each stage: 2,3,3,2, or embedding-and-loss-aware.",
        ),
        click.option("--micro-batch-size", type=int, help="Sequences per GPU and pass."),
        click.option("--accumulation-steps", "gradient_accumulation_steps", type=int),
        click.option(
            "--expert-tp",
            "expert_tensor_parallel_size",
            type=int,
            help="Ranks that share each expert's matrices.",
        ),
        click.option("--recompute", help="none, selective or full."),
        click.option(
            "--recompute-layers", type=int, help="Of each stage's layers, how many recompute."
        ),
        click.option("--recompute-modules", metavar="NAMES", help="Such as moe_act,layernorm."),
        click.option(
            "--activation-offload-layers",
            type=int,
            help="Of each stage's layers, how many keep activations in host memory.",
        ),
        click.option("--offload", help="none, optimizer or optimizer+parameters."),
        click.option("--synchronize-every", type=int, help="Local SGD: average every K steps."),
        click.option("--tokens", metavar="N", help="Of the whole run, such as 20B or 1.5T."),
        click.option(
            "--samples",
            type=click.IntRange(1, 10**15),
            help="Sequences of the data set, in place of tokens.",
        ),
        click.option(
            "--epochs",
            type=FiniteRange(0, 10**9, min_open=True),
            help="Times that --samples are seen.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the contract's JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def goal_options(command: F) -> F:
    """Add the flags of a suggestion alone: what is held fixed, what is best, what is asked about."""
    options = (
        click.option(
            "--pin",
            multiple=True,
            metavar="NAME=VALUE",
            help="Hold a size or field of the strategy fixed, such as dp=4.",
        ),
        click.option(
            "--why",
            multiple=True,
            callback=lambda _context, _option, asked: wishes.only(asked),
            metavar="NAME",
            help="Ask why not that, such as tp=16, dp=4 or hsdp.",
        ),
        click.option(
            "--objective", help="time (default), memory, gpus (the fewest) or cost (the cheapest)."
        ),
        click.option("--max-gpus", type=int, help="Plan on any number of GPUs up to that."),
        click.option("--deadline", metavar="T", help="Of the whole run, such as 36h or 7d."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def build_request(model: str, flags: dict[str, Any]) -> Any:
    """Return the wire request that the flags describe."""
    from planner.request.schema import parse_request

    if flags["revision"] is not None:
        model = f"{model}@{flags['revision']}"
    cluster = _given(flags, _CLUSTER)
    if flags["topology"]:
        with click.open_file(flags["topology"], encoding="utf-8", errors="replace") as file:
            cluster["topology"] = file.read(2**17)
    machine = read_machine_option(flags["machine"])
    if machine is None:
        _fill_from_here(cluster)
    elif _is_default("nodes"):
        del cluster["nodes"]
    strategy = wishes.together(
        [
            (f"--strategy {flags['strategy']}", wishes.strategy(flags["strategy"])),
            *wishes.flags(_given(flags, _STRATEGY)),
            *((f"--pin {text}", wishes.read(text, "--pin")) for text in flags.get("pin", ())),
        ]
    )
    recipe, wrong = read_each(typed.of_recipe(flags))
    goal, wrong_goals = read_each(typed.of_goal(flags))
    recipe |= _given(flags, _RECIPE)
    lora = _lora(flags["lora_rank"], flags["lora_targets"])
    if lora:
        recipe["lora"] = lora
    payload = {"model": model, "cluster": cluster, "recipe": recipe, **goal}
    if machine is not None:
        payload["machine"] = machine
    if strategy:
        payload["strategy"] = strategy
    return unless_wrong(lambda: parse_request(payload), [*wrong, *wrong_goals])


def _given(flags: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: flags[name] for name in names if flags[name] is not None}


def _lora(rank: int | None, targets: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if rank is None else {"rank": rank}
    if targets is not None:
        names = [name.strip() for name in targets.split(",")]
        found["targets"] = names[0] if names == ["all-linear"] else names
    return found


def read_machine_option(file: str | None) -> dict[str, Any] | None:
    """Return what a file of --machine holds, as a request has it."""
    if file is None:
        return None
    from planner.machine.reading import read_machine
    from planner.machine.writing import machine_json

    return machine_json(read_machine(file))


def _is_default(flag: str) -> bool:
    source = click.get_current_context().get_parameter_source(flag)
    return source is not ParameterSource.COMMANDLINE


def _fill_from_here(cluster: dict[str, Any]) -> None:
    """Take the GPUs that are here, and how they are wired, where the command names none."""
    if {"gpu", "instance", "topology"} & cluster.keys():
        return
    from planner.hardware.probe import probe

    found = probe()
    if found:
        from planner.hardware.topology import dump

        cluster["topology"] = dump(found.topology)
        names = Counter(found.topology.gpu_names).items()
        kinds = " and ".join(f"{count} x {name}" for name, count in names)
        say([f"found {kinds} here", *(f"{f.message} ({f.code})" for f in found.findings)])
