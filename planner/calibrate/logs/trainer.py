"""transformers' Trainer: what it prints at the start and the end, trainer_state.json; and bars of other loops."""

import json
import re
from collections.abc import Sequence
from typing import Any

from planner.calibrate.logs.bars import (
    EVALUATED,
    can_be_timed,
    is_of_a_bar,
    last_run,
    take_mean,
    take_stretches,
    training_bar,
)
from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import NUMBER, StepLog, count, number
from planner.core.units import format_seconds

_END = re.compile(rf"'train_runtime': '?(?P<rate>{NUMBER})'?", re.IGNORECASE)
_STEPS_PER_SECOND = re.compile(rf"'train_steps_per_second': '?(?P<rate>{NUMBER})'?", re.IGNORECASE)
_SAMPLES_PER_SECOND = re.compile(
    rf"'train_samples_per_second': '?(?P<rate>{NUMBER})'?", re.IGNORECASE
)
_EPOCHS = re.compile(rf"'epoch': '?(?P<rate>{NUMBER})'?", re.IGNORECASE)
_ROUNDED = 0.0005
"""Of a rate, which has three decimals."""
_SAID = re.compile(
    r"(?P<name>Instantaneous batch size per device"
    r"|Total train batch size \(w\. parallel, distributed & accumulation\)"
    r"|Gradient Accumulation steps|Total optimization steps|Number of trainable parameters) = (?P<value>[\d,]+)"
)
_FIELDS = {
    "Instantaneous batch size per device": "strategy.micro_batch_size",
    "Gradient Accumulation steps": "strategy.gradient_accumulation_steps",
    "Total train batch size (w. parallel, distributed & accumulation)": "recipe.global_batch_size",
    "Number of trainable parameters": "model.trained",
}
_START = "***** Running training *****"
_LATEST = 10
"""Starts of runs, from the last, that are looked at: those of a run that begins again and again need not be."""
_OF_STEPS = (
    "its train_samples_per_second counts optimizer steps, not samples, as Trainer did before 4.7:"
    " times the global batch it is samples"
)
_DONE = re.compile(r"\b(?P<done>\d+)/(?P<all>\d+) \[")
_EVALUATED = "eval_runtime"
_SPEED = re.compile(rf"train_speed\((?P<unit>iter/s|s/it)\)\W{{1,4}}(?P<rate>{NUMBER})")
"""Of ms-swift: steps so far over seconds so far, or the inverse."""
_RESERVED = re.compile(rf"memory\(GiB\)\W{{1,4}}(?P<rate>{NUMBER})")
_AT = re.compile(r"(?:global_step/max_steps|iteration)\W{1,5}(?P<step>\d{1,12})/\d")
_BAR_OF_BATCHES = "v_num="
"""What Lightning's bar has, which counts batches."""
_BAR_OF_STEPS = "|Loss: "
"""What torchtune's bar has, which counts optimizer steps."""


class Trainer:
    """Reads what `Trainer.train` prints: stretches of its progress bar, else the run's seconds over its steps.

    Its lines of loss have no time. The bar leaves out the warm-up, and evaluations are taken off, which say how long
    they took; of the run's seconds they are taken off too, and the warm-up is part of the mean. A bar
    in the log tells how many steps there were, where the start does not, and times those of a run that has
    not ended. Releases before 4.7 printed steps per second under the name of samples, and no other rate.
    Source: huggingface/transformers, trainer.py, trainer_utils.py `speed_metrics`; #11818.
    """

    name = "transformers' Trainer"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether the end of a run is there, or lines of loss by epoch."""
        return any("'train_runtime'" in line or _is_loss(line) for line in lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = StepLog(kind=self.name, is_mean=True)
        lines = _of_last_run(lines, log)
        steps, evaluated = _steps(lines), 0.0
        bar = last_run(training_bar(lines, steps), log)
        take_stretches(bar, log)
        for line in lines:
            if _is_loss(line):
                log.understood.add(line)
            if done := EVALUATED.search(line):
                evaluated += number(done["seconds"]) or 0.0
                log.understood.add(line)
            _take_said(line, log)
            _take_reserved(line, log)
            if _END.search(line):
                _take_end(line, steps, evaluated, log)
        if not log.values and not log.damaged and not _take_speed(lines, log):
            take_mean(bar, log)
        return log


def _of_last_run(lines: Sequence[str], log: StepLog) -> Sequence[str]:
    """Return the lines of the last run of several, one after the other; one that ended at once leaves those before it."""
    starts = [place for place, line in enumerate(lines) if _START in line]
    ends = [place for place, line in enumerate(lines) if _END.search(line)]
    first = 0
    if len(starts) > 1:
        first = next((place for place in starts[:-_LATEST:-1] if _has_steps(lines[place:])), 0)
    elif len(ends) > 1:
        first = ends[-2] + 1
    if _has_steps(lines[:first]):
        log.notes.append("another run before the last is left out")
        log.understood.update(line for line in lines[:first] if is_of_a_bar(line))
    return lines[first:]


def _has_steps(lines: Sequence[str]) -> bool:
    return any(_is_loss(line) or _END.search(line) for line in lines) or can_be_timed(lines)


def _is_loss(line: str) -> bool:
    line = line.replace('"', "'")
    return "{'loss':" in line and ("'epoch':" in line or "train_speed(" in line)


def _take_reserved(line: str, log: StepLog) -> None:
    if memory := _RESERVED.search(line):
        amount = number(memory["rate"])
        log.memory(line, reserved=-1.0 if amount is None else amount * 2**30)


def _take_speed(lines: Sequence[str], log: StepLog) -> bool:
    """Take the last mean speed of ms-swift; return whether there is one."""
    for line in reversed(lines):
        speed, at = _SPEED.search(line), _AT.search(line)
        rate = number(speed["rate"]) if speed else None
        if speed and at and rate:
            log.step(int(at["step"]), repr(1 / rate if speed["unit"] == "iter/s" else rate), line)
            return True
    return False


def _take_said(line: str, log: StepLog) -> None:
    """Take what the start of a run says of its batch, and how much of the model is trained."""
    if said := _SAID.search(line):
        path = _FIELDS.get(said["name"])
        if path is not None:
            log.say(path, count(said["value"]), line)


def _steps_said(lines: Sequence[str]) -> int | None:
    said = (_SAID.search(line) for line in lines)
    named = (each for each in said if each and each["name"] == "Total optimization steps")
    return next((count(each["value"]) for each in named), None)


def _steps(lines: Sequence[str]) -> int | None:
    """Return how many optimizer steps the run had: as its start says it, else its longest bar."""
    if (said := _steps_said(lines)) is not None:
        return said
    bars = (_DONE.search(line) for line in lines)
    ended = (int(bar["all"][:12]) for bar in bars if bar and bar["done"] == bar["all"])
    return max(ended, default=None)


def _rate(line: str, pattern: re.Pattern[str] = _STEPS_PER_SECOND) -> float | None:
    match = pattern.search(line)
    return None if match is None else number(match["rate"])


def _per_step(
    samples: float | None, rate: float | None, steps: int, epochs: float | None
) -> tuple[PerStep, ...]:
    """Return samples per step: both rates are of the whole run; the last step of each epoch may hold fewer."""
    if not samples or not rate or not steps:
        return ()
    apart = 0.01 + _ROUNDED / rate + _ROUNDED / samples + 2 * (epochs or 1.0) / steps
    return (PerStep(amount=samples / rate, of="sequences", apart=apart),)


def _take_end(line: str, steps: int | None, evaluated: float, log: StepLog) -> None:
    """Take what the end of a run says: its samples per step and, where no bar timed them, the mean step.

    mean step = (seconds of the run - of its evaluations) / steps, which are counted, else by their rounded rate
    """
    rate, samples = _rate(line), _rate(line, _SAMPLES_PER_SECOND)
    if rate is None and samples is not None:
        rate, samples = samples, None
        log.notes.append(_OF_STEPS)
    total = _rate(line, _END)
    by_rate = round(total * rate) if total and rate else None
    if steps is None or (by_rate and abs(steps - by_rate) > max(1.0, 0.05 * by_rate)):
        steps = by_rate if by_rate and by_rate < 2**40 else None
    log.per_step = _per_step(samples, rate, steps or 0, _rate(line, _EPOCHS))
    if log.is_of_stretches:
        log.understood.add(line)
    elif total is None or not steps:
        log.step(0, "nan", line)
    else:
        log.step(steps, repr(_without(evaluated, total, log) / steps), line)


def _without(evaluated: float, total: float, log: StepLog) -> float:
    if not 0 < evaluated < total:
        return total
    log.notes.append(
        f"evaluations took {format_seconds(evaluated)} of its {format_seconds(total)}: they are left out"
    )
    return total - evaluated


class TrainerState:
    """Reads trainer_state.json, where the run has ended: its last record has the run's seconds."""

    name = "transformers' trainer_state.json"

    def recognises_object(self, value: dict[str, Any]) -> bool:
        """Return whether a JSON object is a Trainer's state."""
        return isinstance(value.get("log_history"), list) and "global_step" in value

    def read_object(self, value: dict[str, Any]) -> StepLog:
        """Return what the state says."""
        log, evaluated = StepLog(kind=self.name, is_mean=True), 0.0
        for record in value["log_history"]:
            line = json.dumps(record, default=str)[:200]
            if not isinstance(record, dict):
                log.damaged.append(line)
            elif "train_runtime" in record:
                total, step = number(str(record["train_runtime"])), count(str(record.get("step")))
                mean = None
                if total is not None and step is not None:
                    mean = _without(evaluated, total, log) / step
                log.step(step or 0, "nan" if mean is None else repr(mean), line)
                rates = [
                    number(str(record.get(f"train_{name}_per_second")))
                    for name in ("samples", "steps")
                ]
                epochs = number(str(record.get("epoch")))
                log.per_step = _per_step(rates[0], rates[1], step or 0, epochs)
            else:
                evaluated += number(str(record.get(_EVALUATED))) or 0.0
                log.understood.add(line)
        if not log.values and not log.damaged:
            log.notes.append("the run has not ended: only its last record has its seconds")
        return log


class ProgressBar:
    """Reads a bar alone, of training, that goes on for longest: of plain PyTorch, Accelerate, Lightning or torchtune.

    Source: tqdm, std.py `format_meter`; Lightning, callbacks/progress/tqdm_progress.py; transformers,
    examples/pytorch/language-modeling/run_clm_no_trainer.py; torchtune, recipes/full_finetune_distributed.py.
    """

    name = "a progress bar"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether a bar is there that goes on for long enough to be timed."""
        return can_be_timed(lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = StepLog(kind=self.name, is_mean=True)
        lines = _of_last_run(lines, log)
        for line in lines:
            _take_said(line, log)
        steps = _steps_said(lines)
        parts = last_run(training_bar(lines, steps), log)
        if not take_stretches(parts, log):
            take_mean(parts, log)
        bar = parts[0][0].line
        if _BAR_OF_BATCHES in bar:
            log.accumulates = True
        elif _BAR_OF_STEPS not in bar and not (steps and f"/{steps} [" in bar):
            log.accumulates = None
        return log


TRAINER = Trainer()
TRAINER_STATE = TrainerState()
PROGRESS_BAR = ProgressBar()
