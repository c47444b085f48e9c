"""What a run prints first where it goes as planned: for the README."""

import math
from collections.abc import Mapping
from typing import Any

from planner.catalog.configs import model_support
from planner.core.units import GIB, format_duration
from planner.generate.hyperparameters import hyperparameters
from planner.generate.programs import KEPT, save_every
from planner.generate.run_spec import TRIAL_STEPS, RunSpec

_OF_VOCABULARIES = ("causal-lm", "masked-lm", "seq2seq-lm")
_WIDTHS = ("hidden_size", "n_embd", "d_model")
"""What configs call the width of what reaches the head."""
_USUAL_STD = 0.02
"""Of random weights in classes of transformers whose config says no other."""
_TRIAL_SECONDS = 300
"""That a first try may take, beside its two steps."""


def first_lines(spec: RunSpec) -> dict[str, Any]:
    """Return the README's arguments of a run, and what its first lines say."""
    adamw, step = hyperparameters(spec), spec.expected_step_seconds
    speed, peak = spec.expected_tokens_per_second_per_gpu, spec.expected_peak_bytes / GIB
    every, loss = save_every(spec), random_loss(spec.model_config, spec.task)
    return {
        "steps": spec.steps,
        "default_steps": spec.run_steps or TRIAL_STEPS,
        "kept": KEPT,
        "run_arguments": f"--steps {spec.steps} --save-every {every} --keep {KEPT}",
        "trial_steps": min(max(int(_TRIAL_SECONDS / step), 2), 5),
        "all_steps": format_duration(spec.steps * step),
        "start": "pretrained weights of <the model>" if spec.is_pretrained else "random weights",
        "first_rate": f"{adamw.learning_rate / max(round(adamw.warmup_fraction * spec.steps), 1):.2e}",
        "mfu": f"{speed * spec.flops_per_token / spec.peak_flops_per_second:.1%}",
        "planned_peak": f"{peak:.2f}",
        "random_loss": f"{loss:.2f}" if loss else "",
    }


def random_loss(config: Mapping[str, Any], task: str) -> float:
    """Return the loss of a model that knows nothing; 0 where it is not known.

        loss = ln(vocabulary) + hidden * std^2 / 2

    Notation: std of the head's random weights. The last norm leaves `hidden` channels of mean square 1,
    so logits are normal with variance hidden * std^2, and the mean of their exponentials is e to its half.
    Leaves out: embeddings that reach the head, which is tied to them, larger than blocks have made
    anything else: T5's of std 1, Gemma's times sqrt(hidden), Bloom's behind a norm. Of those it is not known.
    """
    words = config.get("vocab_size")
    widths = (config.get(name) for name in _WIDTHS)
    hidden = next((width for width in widths if isinstance(width, int)), 0)
    is_known = task in _OF_VOCABULARIES and config.get("model_type") in model_support().first_loss
    if not is_known or not isinstance(words, int) or words <= 0:
        return 0.0
    spread = config.get("initializer_range", config.get("init_std", _USUAL_STD))
    std = spread if isinstance(spread, float) else _USUAL_STD
    return math.log(words) + hidden * std**2 / 2
