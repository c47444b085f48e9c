"""What is wrong with a configuration, as a table of coded rules; each says in whose code it was read."""

from planner.configs.found import Setup
from planner.configs.rules import (
    accelerate_values,
    batch,
    deepspeed,
    deepspeed_values,
    fsdp,
    keys,
    launch,
    launch_values,
    precision,
    shape,
    slurm,
    trainer,
    trainer_values,
)
from planner.configs.rules.base import ERROR, WARNING, Edit, Fault, Rule

__all__ = ["ERROR", "RULES", "WARNING", "Edit", "Fault", "Rule", "faults"]

RULES: tuple[Rule, ...] = (
    Rule("CFG001", ERROR, batch.batch_does_not_multiply),
    Rule("CFG002", ERROR, batch.deepspeed_and_trainer_disagree),
    Rule("CFG003", ERROR, batch.auto_is_left_to_deepspeed),
    Rule("CFG004", ERROR, deepspeed_values.value_is_mistyped),
    Rule("CFG005", ERROR, deepspeed_values.old_and_new_name_stand_together),
    Rule("CFG010", ERROR, precision.both_half_precisions),
    Rule("CFG011", WARNING, precision.card_has_no_bf16),
    Rule("CFG012", ERROR, precision.card_has_no_tf32),
    Rule("CFG013", ERROR, precision.card_has_no_fp8),
    Rule("CFG014", ERROR, precision.card_has_no_flash_attention),
    Rule("CFG015", ERROR, precision.precisions_of_two_tools_differ),
    Rule("CFG016", ERROR, precision.precision_is_a_truth_value),
    Rule("CFG020", ERROR, deepspeed.parameters_are_offloaded_before_stage_3),
    Rule("CFG021", ERROR, deepspeed.optimizer_is_offloaded_without_zero),
    Rule("CFG022", ERROR, deepspeed.stage_does_not_exist),
    Rule("CFG023", WARNING, deepspeed.checkpoint_has_no_weights),
    Rule("CFG024", WARNING, deepspeed.key_has_a_newer_name),
    Rule("CFG025", ERROR, deepspeed.shards_of_hpz_do_not_divide),
    Rule("CFG026", ERROR, deepspeed.two_engines_at_once),
    Rule("CFG027", ERROR, deepspeed.section_is_ignored),
    Rule("CFG028", ERROR, deepspeed.sections_beside_a_config_file),
    Rule("CFG029", ERROR, deepspeed.batch_is_searched_under_stage_3),
    Rule("CFG030", ERROR, fsdp.wrap_class_is_not_the_models),
    Rule("CFG031", WARNING, fsdp.option_is_of_the_other_version),
    Rule("CFG032", ERROR, fsdp.option_is_refused_by_fsdp2),
    Rule("CFG033", WARNING, fsdp.weights_are_saved_in_shards),
    Rule("CFG034", ERROR, fsdp.weights_are_read_but_not_spread),
    Rule("CFG035", ERROR, fsdp.recomputed_twice),
    Rule("CFG036", WARNING, fsdp.model_is_one_unit),
    Rule("CFG037", ERROR, fsdp.fsdp_config_is_ignored),
    Rule("CFG038", WARNING, fsdp.version_is_going),
    Rule("CFG039", ERROR, fsdp.name_is_of_another_tool),
    Rule("CFG040", ERROR, launch.one_process_is_started),
    Rule("CFG041", ERROR, launch.processes_are_not_the_gpus),
    Rule("CFG042", ERROR, launch.processes_do_not_divide),
    Rule("CFG043", ERROR, launch.rendezvous_is_missing),
    Rule("CFG044", ERROR, launch.every_node_is_the_first),
    Rule("CFG045", ERROR, launch.standalone_with_several_nodes),
    Rule("CFG046", ERROR, launch.started_twice),
    Rule("CFG047", ERROR, launch.flags_after_the_script),
    Rule("CFG048", ERROR, launch.fewer_gpus_are_visible),
    Rule("CFG049", ERROR, launch.modes_exclude_each_other),
    Rule("CFG050", ERROR, launch.nodes_without_a_hostfile),
    Rule("CFG051", ERROR, launch.config_file_says_one_process),
    Rule("CFG052", ERROR, launch_values.value_cannot_be),
    Rule("CFG053", ERROR, launch_values.flag_is_another_launchers),
    Rule("CFG054", ERROR, slurm.job_is_not_what_is_launched),
    Rule("CFG060", ERROR, trainer.saves_do_not_meet_evaluations),
    Rule("CFG061", WARNING, trainer.epochs_are_overruled),
    Rule("CFG062", WARNING, trainer.warm_up_outlasts_the_run),
    Rule("CFG063", ERROR, trainer.prefetch_without_workers),
    Rule("CFG064", WARNING, trainer.batches_are_made_between_steps),
    Rule("CFG065", ERROR, trainer.reentrant_recompute_with_unused_parameters),
    Rule("CFG066", WARNING, trainer.cache_is_kept_while_recomputing),
    Rule("CFG067", WARNING, trainer.recompute_gathers_again),
    Rule("CFG068", ERROR, trainer.best_model_cannot_be_loaded),
    Rule("CFG069", ERROR, trainer.plateau_is_never_measured),
    Rule("CFG070", ERROR, shape.heads_do_not_divide),
    Rule("CFG071", ERROR, shape.layers_do_not_divide),
    Rule("CFG072", ERROR, shape.sizes_do_not_fill_the_gpus),
    Rule("CFG073", ERROR, shape.global_batch_does_not_divide),
    Rule("CFG074", WARNING, shape.micro_batches_are_fewer_than_stages),
    Rule("CFG075", WARNING, shape.sequence_parallel_without_tensor),
    Rule("CFG076", ERROR, shape.replicas_beside_tensor_parallelism),
    Rule("CFG077", ERROR, shape.sequence_exceeds_positions),
    Rule("CFG078", ERROR, shape.experts_do_not_divide),
    Rule("CFG079", ERROR, trainer_values.value_is_not_known),
    Rule("CFG080", ERROR, deepspeed.nvme_has_no_path),
    Rule("CFG081", ERROR, accelerate_values.value_is_not_known),
    Rule("CFG090", ERROR, keys.key_is_not_known),
    Rule("CFG091", WARNING, keys.key_is_ignored),
    Rule("CFG092", ERROR, keys.key_is_gone),
    Rule("CFG093", ERROR, keys.key_stands_twice),
    Rule("CFG094", WARNING, keys.torchtitan_reads_no_toml),
)


def faults(setup: Setup) -> tuple[tuple[Rule, Fault], ...]:
    """Return everything that is wrong, by file and line."""
    found = [(rule, fault) for rule in RULES for fault in rule.find(setup)]
    order = {file: number for number, file in enumerate(setup.texts)}
    return tuple(
        sorted(
            found, key=lambda each: (order.get(each[1].at.file, 0), each[1].at.line, each[0].code)
        )
    )
