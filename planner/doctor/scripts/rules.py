"""The table of what is looked for in a script, by code; and the looking."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from planner.catalog.findings import explained, instead
from planner.core.documented import documentation, shown_name
from planner.core.frozen import frozen
from planner.doctor.scripts import (
    accelerate_rules,
    collective_rules,
    device_rules,
    loop_rules,
    optimizer_rules,
    process_rules,
    sharding_rules,
)
from planner.doctor.scripts.reading import Script, Spot, read_script

_ABOUT = "scripts"
Level = Literal["error", "warning", "advice"]
"""error: the result is wrong, or more GPUs bring nothing; warning: it costs; advice: small."""


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A code, how bad it is, and the function that looks; its docstring is what `data/findings/scripts.toml` explains."""

    code: str
    level: Level
    look: Callable[[Script], Iterator[Spot]]

    @property
    def name(self) -> str:
        """Return what is found, in kebab case."""
        return shown_name(self.look)

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return explained(documentation(self.look), _ABOUT, self.code)

    @property
    def fix(self) -> str:
        """Return what to do instead, on one line."""
        return instead(_ABOUT, self.code)


RULES: tuple[ScriptRule, ...] = (
    ScriptRule("DOC001", "error", accelerate_rules.prepared_object_is_not_used),
    ScriptRule("DOC002", "error", accelerate_rules.scheduler_ends_early),
    ScriptRule("DOC003", "error", loop_rules.accumulation_does_not_divide),
    ScriptRule("DOC004", "warning", loop_rules.accumulation_exchanges_every_time),
    ScriptRule("DOC005", "warning", loop_rules.sampler_never_changes),
    ScriptRule("DOC006", "error", process_rules.model_is_split_by_device_map),
    ScriptRule("DOC007", "warning", process_rules.data_parallel_is_one_process),
    ScriptRule("DOC008", "advice", accelerate_rules.batch_is_moved_by_hand),
    ScriptRule("DOC009", "warning", process_rules.main_is_not_guarded),
    ScriptRule("DOC010", "warning", process_rules.every_rank_tokenises),
    ScriptRule("DOC011", "error", process_rules.every_rank_saves),
    ScriptRule("DOC012", "advice", loop_rules.loss_is_read_every_step),
    ScriptRule("DOC013", "error", process_rules.split_differs_by_rank),
    ScriptRule("DOC014", "error", process_rules.device_is_not_set),
    ScriptRule("DOC015", "error", process_rules.saved_while_wrapped),
    ScriptRule("DOC016", "error", process_rules.all_ranks_use_one_gpu),
    ScriptRule("DOC017", "error", accelerate_rules.backward_without_accelerator),
    ScriptRule("DOC018", "error", loop_rules.every_process_loads_everything),
    ScriptRule("DOC019", "error", loop_rules.loss_is_divided_twice),
    ScriptRule("DOC020", "advice", device_rules.global_rank_names_a_gpu),
    ScriptRule("DOC021", "error", device_rules.half_weights_are_scaled),
    ScriptRule("DOC022", "error", collective_rules.collective_of_some_ranks),
    ScriptRule("DOC023", "error", collective_rules.gradients_are_never_cleared),
    ScriptRule("DOC024", "error", optimizer_rules.optimizer_is_older_than_the_shards),
    ScriptRule("DOC025", "error", optimizer_rules.scaled_gradients_are_clipped),
    ScriptRule("DOC026", "warning", sharding_rules.model_is_made_before_its_arguments),
    ScriptRule("DOC027", "warning", sharding_rules.weights_are_gathered_for_each_token),
    ScriptRule("DOC028", "error", sharding_rules.optimizer_takes_no_dtensors),
)


@frozen
class Fault:
    """One thing that is wrong with a script, and where."""

    code: str
    name: str
    level: Level
    file: str
    line: int
    also: tuple[int, ...]
    """Other lines that belong to it."""
    message: str
    fix: str


def look_at(content: bytes, file: str) -> tuple[Fault, ...]:
    """Return what is wrong with a script, line by line; nothing in it is run.

    Raises:
        InvalidInputError: it cannot be read as Python.
    """
    script = read_script(content, file)
    faults = [
        Fault(
            code=rule.code,
            name=rule.name,
            level=rule.level,
            file=file,
            line=spot.node.lineno,
            also=spot.also,
            message=spot.message,
            fix=spot.fix or rule.fix,
        )
        for rule in RULES
        for spot in rule.look(script)
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.line, fault.code)))
