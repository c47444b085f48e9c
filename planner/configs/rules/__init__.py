"""What is wrong with a configuration, as coded rules; each says in whose code it was read."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from planner.catalog.configs import tabled_rules
from planner.configs.found import Setup
from planner.configs.rules import (
    batch,
    engines,
    keys,
    launch,
    ranges,
    shape,
)
from planner.configs.rules.base import ERROR, WARNING, Edit, Fault, Rule
from planner.configs.rules.tabled import faults_of

__all__ = ["ERROR", "RULES", "WARNING", "Edit", "Fault", "Rule", "faults"]


_WRITTEN: Mapping[str, Callable[[Setup], Iterator[Fault]]] = MappingProxyType(
    {
        "CFG001": batch.batch_does_not_multiply,
        "CFG002": batch.deepspeed_and_trainer_disagree,
        "CFG010": engines.both_half_precisions,
        "CFG025": engines.shards_of_hpz_do_not_divide,
        "CFG026": engines.two_engines_at_once,
        "CFG027": engines.section_is_ignored,
        "CFG030": engines.wrap_class_is_not_the_models,
        "CFG040": launch.one_process_is_started,
        "CFG041": launch.processes_are_not_the_gpus,
        "CFG042": launch.processes_do_not_divide,
        "CFG046": launch.started_twice,
        "CFG047": launch.flags_after_the_script,
        "CFG048": launch.fewer_gpus_are_visible,
        "CFG051": launch.config_file_says_one_process,
        "CFG053": keys.flag_is_another_launchers,
        "CFG054": launch.job_is_not_what_is_launched,
        "CFG060": engines.saves_do_not_meet_evaluations,
        "CFG062": engines.warm_up_outlasts_the_run,
        "CFG070": shape.heads_do_not_divide,
        "CFG071": shape.layers_do_not_divide,
        "CFG072": shape.sizes_do_not_fill_the_gpus,
        "CFG073": shape.global_batch_does_not_divide,
        "CFG074": shape.micro_batches_are_fewer_than_stages,
        "CFG077": shape.sequence_exceeds_positions,
        "CFG078": shape.experts_do_not_divide,
        "CFG085": shape.sequence_does_not_divide,
        "CFG088": ranges.number_is_out_of_range,
        "CFG090": keys.key_is_not_known,
        "CFG091": keys.key_is_ignored,
        "CFG092": keys.key_is_gone,
        "CFG093": keys.key_stands_twice,
        "CFG094": keys.torchtitan_reads_no_toml,
        "CFG097": batch.generations_do_not_divide,
    }
)
"""What is looked for by a function; the record says the rest."""
RULES: tuple[Rule, ...] = tuple(
    Rule(
        each.code,
        each.severity,
        _WRITTEN.get(each.code, partial(faults_of, each)),
        each.name,
        each.text,
    )
    for each in tabled_rules()
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
