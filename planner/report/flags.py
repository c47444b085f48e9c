"""The flag of the terminal that sets each field of a request."""

from planner.domain.dimensions import DIMENSIONS

FLAGS = {
    "model": "MODEL",
    "machine": "--machine FILE",
    "cluster.instance": "--instance NAME",
    "cluster.gpu": "--gpu NAME",
    "cluster.gpus_per_node": "--gpus N",
    "cluster.nodes": "--nodes N",
    "cluster.topology": "--topology FILE",
    "cluster.intra_node": "--intra-node LINK",
    "cluster.inter_node": "--inter-node LINK",
    "cluster.nvlink_domain_gpus": "--nvlink-domain GPUS",
    "cluster.gpu_power_watts": "--gpu-power WATTS",
    "cluster.peer_to_peer": "--peer-to-peer",
    "recipe": "--precision, --optimizer, --attention",
    "recipe.sequence_length": "--seq-len N",
    "recipe.global_batch_size": "--global-batch-size N",
    "recipe.global_batch_tokens": "--global-batch-size N",
    "recipe.precision": "--precision NAME",
    "recipe.fp8_recipe": "--fp8-recipe NAME",
    "recipe.optimizer": "--optimizer NAME",
    "recipe.method": "--method NAME",
    "recipe.lora": "--lora-rank, --lora-targets",
    "recipe.lora.rank": "--lora-rank N",
    "recipe.lora.targets": "--lora-targets NAMES",
    "recipe.weights_dtype": "--weights NAME",
    "recipe.attention": "--attention NAME",
    "recipe.loss": "--loss NAME",
    "recipe.framework": "--framework NAME",
    "recipe.framework_version": "--framework-version VERSION",
    "recipe.gradient_reduce_dtype": "--gradient-reduce-dtype NAME",
    "recipe.tensor_parallel_overlap": "--tp-overlap",
    "recipe.data_parallel_overlap": "--dp-overlap",
    "recipe.expert_dispatch": "--expert-dispatch NAME",
    "recipe.expert_parallel_overlap": "--ep-overlap",
    "recipe.optimizer_in_backward": "--optimizer-in-backward",
    "recipe.cuda_graphs": "--cuda-graphs",
    "recipe.task": "--task NAME",
    "recipe.compile": "--compile",
    "recipe.padding_share": "--padding-share X",
    "recipe.training_tokens": "--tokens N",
    "objective": "--objective NAME",
    "max_gpus": "--max-gpus N",
    "deadline_hours": "--deadline T",
    "why": "--why NAME",
    "strategy": "--strategy NAME",
    "strategy.family": "--strategy NAME",
    "strategy.zero_stage": "--strategy NAME",
    "strategy.data_parallel_size": "--dp N",
    **{f"strategy.{dimension.field}": f"--{dimension.short_name} N" for dimension in DIMENSIONS},
    "strategy.expert_tensor_parallel_size": "--expert-tp N",
    "strategy.sequence_parallel": "--sequence-parallel",
    "strategy.pipeline_schedule": "--schedule NAME",
    "strategy.virtual_pipeline_size": "--virtual-stages N",
    "strategy.pipeline_layout": "--pipeline-layout LAYOUT",
    "strategy.offload": "--offload NAME",
    "strategy.synchronize_every": "--synchronize-every K",
    "strategy.micro_batch_size": "--micro-batch-size N",
    "strategy.gradient_accumulation_steps": "--accumulation-steps N",
    "strategy.recompute": "--recompute NAME",
    "strategy.recompute_layers": "--recompute-layers N",
    "strategy.recompute_modules": "--recompute-modules NAMES",
    "strategy.activation_offload_layers": "--activation-offload-layers N",
}
"""The flag that sets each field of a request."""


def flag_words(field: str, *, value: str | bool) -> list[str]:
    """Return the words of a command line that set a field."""
    name, _, wants = FLAGS[field].partition(" ")
    if wants:
        return [name, str(value)]
    return [name if value else name.replace("--", "--no-", 1)]
