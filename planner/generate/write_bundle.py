"""Plan -> files on disk: fills the run's spec, and writes all of it or nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from planner.advice.plan import Plan
from planner.catalog.interconnect import interconnect
from planner.catalog.packages import packages, released_with
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.frozen import frozen
from planner.domain.cluster import Cluster, Provenance
from planner.domain.job import Job
from planner.domain.strategy import FIELDS, Layout
from planner.generate import RunSpec, generate
from planner.generate.adapters import adapters_of
from planner.generate.folder import write_files
from planner.generate.plan_json import OWN, plan_json
from planner.generate.run_spec import ReducedOnce
from planner.generate.wanted import wanted_targets
from planner.hardware.placement import cuda_visible_devices
from planner.memory.evaluation_and_checkpoint import checkpoint_host_bytes
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory
from planner.parallel.activations import gathers_parameters
from planner.parallel.compiled import compiles_head
from planner.parallel.partition import layers_per_stage
from planner.report.flags import flag_words
from planner.report.layout_words import recommendation
from planner.request.files import ALL
from planner.request.sections import FilesRequest
from planner.search.training_run import run_steps
from planner.step_time.compute import training_flops_per_token
from planner.step_time.ledger import estimate_step_time
from planner.targets.common import converted
from planner.targets.optimizers import optimizers

_FLASH_VERSIONS = {"9.0": 3, "10.0": 4, "10.3": 4}
"""Of FlashAttention, by compute capability; the second elsewhere."""

BRIDGE_VERSION = "0.6.0"
"""Of Megatron Bridge, whose classes and their fields were read."""

MEGATRON_COMMIT = "d98e8a6"
"""Of Megatron-LM, whose names of arguments were read. Source: NVIDIA/Megatron-LM, 2026-08-22."""

NANOTRON_COMMIT = "2411b02"
"""Of nanotron, whose configuration was read. Source: huggingface/nanotron, 2026-04-07."""


_NOTHING_SAID = FilesRequest()


def bundle_files(
    plan: Plan, answer: Mapping[str, Any], wanted: FilesRequest = _NOTHING_SAID
) -> dict[str, str]:
    """Return the files of a plan: relative path to text.

    Args:
        plan: what to write.
        answer: the contract's JSON of the same plan, written as plan.json.
        wanted: which targets and launchers.

    Raises:
        PlannerError: the plan asks for what no template can write.
    """
    launch = plan.launch
    if not launch.targets:
        first = next(iter(launch.refused.values()))
        raise InvalidInputError(
            f"no launch files for this plan: {launch.reason}",
            hint=_hint(plan) or first.advice,
            field=first.field,
        )
    targets = wanted_targets(plan, wanted)
    others = [name for name in launch.targets if name not in targets]
    refused = launch.unwritten if wanted.targets == ALL else {}
    spec = _run_spec(plan)
    files = generate(spec, targets, refused, wanted.launchers or (), others)
    return files | {OWN: plan_json(answer, files)}


def _hint(plan: Plan) -> str:
    if not plan.offers:
        return ""
    nearest = plan.offers[0]
    words = [flag_words(name, value=value) for name, value in nearest.changes.items()]
    flags = [" ".join(each) for each in words]
    if nearest.dropped:
        flags.append("no field of the strategy held fixed")
    return f"there are files with {', '.join(flags)}: {nearest.candidate.strategy.family}"


def _run_spec(plan: Plan) -> RunSpec:
    job, chosen = plan.job, plan.chosen
    strategy, recipe = chosen.strategy, job.recipe
    step_seconds, tokens_per_second = _pace(plan)
    setup = plan.rollout.chosen if plan.rollout else None
    return RunSpec(
        model=job.model.folder or job.model.name,
        revision=job.model.revision,
        model_config=_unquantised(job.model.config),
        parameters=job.model.parameters,
        is_pretrained=job.model.is_pretrained,
        task=job.model.task,
        job=recipe.job,
        reference_model=recipe.reference_model,
        rollout=setup.rollout if setup else None,
        generates_on_own_node=bool(setup and setup.has_own_node),
        completions_at_once=setup.generation.at_once if setup else 0,
        framework=job.framework.name,
        nodes=job.cluster.nodes,
        gpus_per_node=job.cluster.gpus_per_node,
        cuda_visible_devices=cuda_visible_devices(job.cluster.gpu_order),
        **{name: getattr(strategy, name) for name in FIELDS},
        layers_per_stage=layers_per_stage(job, strategy.pipeline_parallel_size),
        pipeline_layout=job.pipeline_layout,
        has_peer_to_peer=has_peer_to_peer(job.cluster),
        is_over_pcie=job.cluster.gpus_per_node > 1 and job.cluster.intra_node.medium == "pcie",
        network=network_kind(job.cluster),
        **_instance_words(job.cluster),
        host_bytes=round(float(estimate_host_memory(job, strategy).peak_bytes)),
        checkpoint_bytes=round(checkpoint_host_bytes(job, strategy, is_full=True)),
        global_batch_size=recipe.global_batch_size,
        run_steps=run_steps(job),
        sequence_length=recipe.sequence_length,
        target_length=recipe.target_length or 0,
        precision=recipe.precision,
        fp8_recipe=recipe.fp8_recipe,
        config_dtype=_config_dtype(job),
        vendor=job.cluster.gpu.vendor,
        compute_capability=job.cluster.gpu.compute_capability,
        stored_in=job.model.stored_in if job.model.is_pretrained else "",
        adapters=adapters_of(job),
        attention=recipe.attention,
        flash_version=_FLASH_VERSIONS.get(job.cluster.gpu.compute_capability, 2),
        loss=recipe.loss,
        loss_chunk_tokens=job.loss.chunk_tokens if job.loss else 0,
        compile=recipe.compile,
        compiles_whole=bool(np.all(compiles_head(job, strategy))),
        optimizer=recipe.optimizer,
        optimizer_in_backward=recipe.optimizer_in_backward,
        expected_peak_bytes=round(float(chosen.memory.peak_bytes)),
        expected_reserved_bytes=_taken_bytes(plan),
        expected_step_seconds=_rounded(step_seconds),
        has_experts=job.model.has_experts,
        padding_share=recipe.padding_share,
        expected_tokens_per_second_per_gpu=_rounded(tokens_per_second),
        reduced_once=None if setup else reduced_once(job, strategy),
        flops_per_token=training_flops_per_token(job),
        peak_flops_per_second=job.peak_flops_per_second,
        plan_summary=recommendation(job, chosen),
        versions=_versions(job),
        oldest_versions=_oldest_versions(job),
    )


def _pace(plan: Plan) -> tuple[float, float]:
    """Return the seconds of a step, and the tokens of a second and a GPU that trains: the scripts count padding too."""
    if plan.rollout:
        setup = plan.rollout.chosen
        return setup.step.step_seconds, setup.tokens_per_second / setup.training_gpus
    time = plan.chosen.step_time
    tokens = time.tokens_per_second_per_gpu / (1 - plan.job.recipe.padding_share)
    return float(time.step_seconds), float(tokens)


def _taken_bytes(plan: Plan) -> int:
    """Return what a GPU that trains shows as taken at the most."""
    if not plan.rollout:
        return round(float(plan.chosen.memory.reserved_bytes))
    setup = plan.rollout.chosen
    is_apart = setup.mode == "server"
    return round(max(setup.training_bytes, 0.0 if is_apart else setup.generating_bytes))


_NEVER = 4
"""Above every ZeRO stage."""


def reduced_once(job: Job, layout: Layout) -> ReducedOnce | None:
    """Return the step and the memory of a plan's scripts with --no-sync, None where it changes nothing.

    Every rank holds the whole gradient until the last micro-batch, whose backward reduces it.
    Source: FSDPModule.set_requires_gradient_sync, PyTorch 2.13; measured on an H100, GPT-2 with ZeRO-2, offload
    and 4 micro-batches: 0.54 s in place of 1.32.
    """
    sharding = job.framework.sharding
    waits = sharding.reduces_every_micro_batch_from > layout.zero_stage
    if waits or layout.gradient_accumulation_steps == 1 or not gathers_parameters(job, layout):
        return None
    whole = replace(sharding, reduces_every_micro_batch_from=_NEVER, gradients_sharded_from=_NEVER)
    once = replace(job, framework=replace(job.framework, sharding=whole))
    memory = estimate_memory(once, layout)
    return ReducedOnce(
        step_seconds=float(estimate_step_time(once, layout).step_seconds),
        peak_bytes=round(float(memory.peak_bytes)),
        fits=bool(memory.reserved_bytes <= job.usable_bytes),
    )


def _instance_words(cluster: Cluster) -> dict[str, Any]:
    if cluster.instance is None:
        return {}
    return {
        "sagemaker_type": cluster.instance.sagemaker_type,
        "efa_interfaces": cluster.instance.efa_interfaces,
    }


def _versions(job: Job) -> dict[str, str]:
    framework = job.framework
    if framework.name == "megatron" and job.recipe.lora:
        return {
            "megatron-bridge": BRIDGE_VERSION,
            "megatron-core": framework.capabilities.version,
        }
    if framework.name == "megatron":
        converts = job.model.is_pretrained and job.model.model_type in converted()
        return {
            "Megatron-LM": MEGATRON_COMMIT,
            "megatron-core": framework.capabilities.version,
            **({"megatron-bridge": BRIDGE_VERSION} if converts else {}),
        }
    if framework.name == "nanotron":
        return {"nanotron": NANOTRON_COMMIT}
    if framework.name == "torchtitan":
        beside = released_with("torchtitan")
        return {"torchtitan": packages()["torchtitan"].newest, "torch": beside["torch"]}
    written, lora = optimizers().get(job.recipe.optimizer), job.recipe.lora
    own = {
        "deepspeed": framework.name == "deepspeed",
        "torchtitan": False,
        # They bring releases of the others that they were made with.
        "axolotl": False,
        "llamafactory": False,
        "peft": lora is not None,
        "trl": job.model.task == "causal-lm",
        "bitsandbytes": lora.is_quantised if lora else bool(written and written.package != "torch"),
    }
    return {name: each.newest for name, each in packages().items() if own.get(name, True)}


def _oldest_versions(job: Job) -> dict[str, str]:
    pinned = released_with(job.framework.name)
    return {name: each.oldest for name, each in packages().items() if name not in pinned}


def _config_dtype(job: Job) -> str:
    is_meant = job.is_in_config_dtype and job.recipe.lora is None
    return {"bf16": "bfloat16", "fp16": "float16"}[job.model.weights_dtype] if is_meant else ""


def _unquantised(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _unquantised(value) if name == "text_config" and isinstance(value, Mapping) else value
        for name, value in config.items()
        if name != "quantization_config"
    }


def _rounded(amount: SupportsFloat) -> float:
    """Return seven significant digits: as many as are shown; of seventeen the last ones vary."""
    return float(f"{float(amount):.7g}")


def has_peer_to_peer(cluster: Cluster) -> bool:
    """Return whether the GPUs of a node reach each other without host memory, as far as is known."""
    return cluster.intra_node.medium != "host"


def network_kind(cluster: Cluster) -> str:
    """Return what NCCL talks over between nodes: "infiniband" (RoCE too), "efa", "ethernet" or ""."""
    link, instance = cluster.inter_node, cluster.instance
    if link is None or link.provenance is Provenance.ASSUMED:
        return ""
    if link.transport:
        return link.transport
    efa = interconnect().efa
    if instance is None or instance.name not in link.name or instance.cloud != efa.cloud:
        return ""
    return "efa" if instance.network_bytes_per_second >= efa.least_bytes_per_second else ""


def write_bundle(
    folder: Path,
    plan: Plan,
    answer: Mapping[str, Any],
    wanted: FilesRequest = _NOTHING_SAID,
    *,
    force: bool,
) -> tuple[str, ...]:
    """Write the files of a plan into a folder, and return the names under which edited ones are kept.

    Raises:
        InvalidInputError: see `bundle_files` and `write_files`.
    """
    return write_files(folder, bundle_files(plan, answer, wanted), force=force)


@frozen
class Written:
    """What was written of a plan."""

    targets: tuple[str, ...] = ()
    unwritten: Mapping[str, str]
    """Those that cannot be written, each with the reason."""
    kept: tuple[str, ...] = ()
    """The names of files that were edited since an earlier plan wrote them."""


def write_targets(
    folder: Path,
    plan: Plan,
    answer: Mapping[str, Any],
    wanted: FilesRequest = _NOTHING_SAID,
    *,
    force: bool,
) -> Written:
    """Write what can be written of a plan into a folder, and say what that was.

    Args:
        folder: as for `write_bundle`.
        plan: what to write.
        answer: the contract's JSON of the same plan.
        wanted: which targets and launchers.
        force: whether the plan in an existing folder is replaced.
    """
    launch = plan.launch
    if not launch.targets:
        return Written(unwritten=launch.unwritten)
    try:
        kept = write_bundle(folder, plan, answer, wanted, force=force)
    except PlannerError as error:
        return Written(
            unwritten={**dict.fromkeys(launch.targets, error.message), **launch.unwritten}
        )
    return Written(targets=wanted_targets(plan, wanted), unwritten=launch.unwritten, kept=kept)
