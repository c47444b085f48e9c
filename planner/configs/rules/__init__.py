"""What is wrong with a configuration, as coded rules; each says in whose code it was read."""

from collections.abc import Callable, Iterator
from functools import partial

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
from planner.configs.rules.base import ERROR, WARNING, Edit, Fault, Rule, Severity
from planner.configs.rules.tabled import faults_of
from planner.core.documented import documentation, shown_name

__all__ = ["ERROR", "RULES", "WARNING", "Edit", "Fault", "Rule", "faults"]


def _written(code: str, severity: Severity, find: Callable[[Setup], Iterator[Fault]]) -> Rule:
    """Return the rule of a function: its name and docstring are the rule's."""
    return Rule(code, severity, find, shown_name(find), documentation(find))


_WRITTEN = (
    _written("CFG001", ERROR, batch.batch_does_not_multiply),
    _written("CFG002", ERROR, batch.deepspeed_and_trainer_disagree),
    _written("CFG010", ERROR, engines.both_half_precisions),
    _written("CFG025", ERROR, engines.shards_of_hpz_do_not_divide),
    _written("CFG026", ERROR, engines.two_engines_at_once),
    _written("CFG027", ERROR, engines.section_is_ignored),
    _written("CFG030", ERROR, engines.wrap_class_is_not_the_models),
    _written("CFG040", ERROR, launch.one_process_is_started),
    _written("CFG041", ERROR, launch.processes_are_not_the_gpus),
    _written("CFG042", ERROR, launch.processes_do_not_divide),
    _written("CFG046", ERROR, launch.started_twice),
    _written("CFG047", ERROR, launch.flags_after_the_script),
    _written("CFG048", ERROR, launch.fewer_gpus_are_visible),
    _written("CFG051", ERROR, launch.config_file_says_one_process),
    _written("CFG053", ERROR, keys.flag_is_another_launchers),
    _written("CFG054", ERROR, launch.job_is_not_what_is_launched),
    _written("CFG060", ERROR, engines.saves_do_not_meet_evaluations),
    _written("CFG062", WARNING, engines.warm_up_outlasts_the_run),
    _written("CFG070", ERROR, shape.heads_do_not_divide),
    _written("CFG071", ERROR, shape.layers_do_not_divide),
    _written("CFG072", ERROR, shape.sizes_do_not_fill_the_gpus),
    _written("CFG073", ERROR, shape.global_batch_does_not_divide),
    _written("CFG074", WARNING, shape.micro_batches_are_fewer_than_stages),
    _written("CFG077", ERROR, shape.sequence_exceeds_positions),
    _written("CFG078", ERROR, shape.experts_do_not_divide),
    _written("CFG085", ERROR, shape.sequence_does_not_divide),
    _written("CFG088", ERROR, ranges.number_is_out_of_range),
    _written("CFG090", ERROR, keys.key_is_not_known),
    _written("CFG091", WARNING, keys.key_is_ignored),
    _written("CFG092", WARNING, keys.key_is_gone),
    _written("CFG093", ERROR, keys.key_stands_twice),
    _written("CFG094", WARNING, keys.torchtitan_reads_no_toml),
    _written("CFG097", ERROR, batch.generations_do_not_divide),
)
_TABLED = (
    Rule(each.code, each.severity, partial(faults_of, each), each.name, each.text)
    for each in tabled_rules()
)
RULES: tuple[Rule, ...] = tuple(sorted((*_WRITTEN, *_TABLED), key=lambda rule: rule.code))


def faults(setup: Setup) -> tuple[tuple[Rule, Fault], ...]:
    """Return everything that is wrong, by file and line."""
    found = [(rule, fault) for rule in RULES for fault in rule.find(setup)]
    order = {file: number for number, file in enumerate(setup.texts)}
    return tuple(
        sorted(
            found, key=lambda each: (order.get(each[1].at.file, 0), each[1].at.line, each[0].code)
        )
    )
