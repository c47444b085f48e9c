"""A progress bar alone, as loops of plain PyTorch, Accelerate's examples, Lightning and torchtune show one."""

from collections.abc import Sequence

from planner.calibrate.logs.bars import (
    can_be_timed,
    last_run,
    take_mean,
    take_stretches,
    training_bar,
)
from planner.calibrate.logs.steps import StepLog
from planner.calibrate.logs.trainer import of_last_run, steps_said, take_said

_OF_BATCHES = "v_num="
"""What Lightning's bar has, which counts batches."""
_OF_STEPS = "|Loss: "
"""What torchtune's bar has, which counts optimizer steps."""


class ProgressBar:
    """Reads the bar of training, that goes on for longest.

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
        lines = of_last_run(lines, log)
        for line in lines:
            take_said(line, log)
        steps = steps_said(lines)
        parts = last_run(training_bar(lines, steps), log)
        if not take_stretches(parts, log):
            take_mean(parts, log)
        bar = parts[0][0].line
        if _OF_BATCHES in bar:
            log.accumulates = True
        elif _OF_STEPS not in bar and not (steps and f"/{steps} [" in bar):
            log.accumulates = None
        return log


PROGRESS_BAR = ProgressBar()
