"""Recipes of published runs: which one fits, and how its rate follows the batch."""

import pytest

from planner.catalog.learning_rates import Recipe, find_recipe, recipes, scaling

TASKS = (
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "sequence-classification",
    "image-classification",
    "automatic-speech-recognition",
)
SMALLEST = {"dpo": 1e-7, "reward": 5e-6, "grpo": 1e-6}
"""Rates of jobs on answers, which move a tuned model a little further."""
LARGEST_RATE = 1e-3


def recipe(task: str, parameters: float, *, kind: str = "", start: str = "pretrained") -> Recipe:
    return find_recipe(
        task=task,
        model_type=kind,
        is_pretrained=start == "pretrained",
        has_adapters=start == "adapters",
        parameters=parameters,
    )


@pytest.mark.parametrize(
    ("task", "parameters", "start", "rate"),
    [
        ("causal-lm", 124e6, "random", 6e-4),
        ("causal-lm", 8e9, "random", 1.2e-4),
        ("causal-lm", 405e9, "random", 0.6e-4),
        ("causal-lm", 124e6, "pretrained", 6.25e-5),
        ("causal-lm", 8e9, "pretrained", 2e-5),
        ("causal-lm", 69e9, "pretrained", 1e-5),
        ("causal-lm", 8e9, "adapters", 2e-4),
        ("causal-lm", 69e9, "adapters", 1e-4),
        ("masked-lm", 110e6, "random", 1e-4),
        ("sequence-classification", 110e6, "pretrained", 2e-5),
        ("sequence-classification", 8e9, "adapters", 2e-4),
        ("seq2seq-lm", 400e6, "pretrained", 3e-5),
        ("image-classification", 86e6, "random", 1e-3),
        ("automatic-speech-recognition", 242e6, "pretrained", 1e-5),
        ("a-task-of-tomorrow", 1e9, "pretrained", 2e-5),
        ("a-task-of-tomorrow", 1e9, "random", 1e-4),
    ],
)
def test_the_run_that_is_nearest_gives_the_rate(
    task: str, parameters: float, start: str, rate: float
) -> None:
    assert recipe(task, parameters, start=start).learning_rate == rate


def test_a_model_type_of_its_own_comes_first() -> None:
    assert recipe("seq2seq-lm", 400e6, kind="t5").learning_rate == 1e-4
    assert recipe("seq2seq-lm", 400e6, kind="bart").learning_rate == 3e-5


def test_a_rate_follows_the_square_root_of_the_batch_outside_of_its_range() -> None:
    adapters = recipe("causal-lm", 8e9, start="adapters")
    rates = [adapters.rate(batch, 0) for batch in (4, 16, 64, 128, 512, 10_000)]
    assert rates == pytest.approx([1e-4, 2e-4, 2e-4, 2e-4, 4e-4, 4e-4])
    pretraining = recipe("causal-lm", 125e6, start="random")
    assert pretraining.rate(1, 0.5e6 / 16) == pytest.approx(1.5e-4)


def test_a_record_stays_within_what_anybody_trains_with() -> None:
    for each in recipes():
        low, high = each.batch
        assert 0 < low <= high
        smallest = min((SMALLEST[task] for task in each.tasks if task in SMALLEST), default=1e-5)
        assert smallest <= each.learning_rate <= LARGEST_RATE
        assert each.beta2 in {0.95, 0.98, 0.999}
        assert 0 <= each.weight_decay <= 0.1
        assert 0 < each.warmup_fraction <= 0.1
        assert set(each.tasks) <= {*TASKS, *SMALLEST}
    assert scaling().exponent == 0.5
