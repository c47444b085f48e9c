import pytest

from planner.catalog import records
from planner.catalog.batches import tuning_batch, usual_batch, usual_tokens_per_step
from planner.catalog.learning_rates import find_recipe
from planner.domain.model import Model
from planner.request.model import load_model


def test_the_published_points_are_met() -> None:
    for parameters, tokens in records.usual_batches():
        assert usual_tokens_per_step(parameters) == pytest.approx(tokens, rel=1e-6)


@pytest.mark.parametrize("parameters", [1, 10**6, 10**9, 30 * 10**9, 10**12])
def test_larger_models_never_have_smaller_batches(parameters: int) -> None:
    assert usual_tokens_per_step(parameters) <= usual_tokens_per_step(2 * parameters)
    known = [tokens for _, tokens in records.usual_batches()]
    assert known[0] <= usual_tokens_per_step(parameters) <= known[-1]


def model(name: str, task: str | None = None) -> Model:
    return load_model(name, allow_paths=False, task=task)[0]


@pytest.mark.parametrize(
    ("name", "task", "has_adapters"),
    [
        ("bert-base-uncased", "sequence-classification", False),
        ("bert-base-uncased", None, False),
        ("google-t5/t5-large", None, False),
        ("facebook/bart-large", None, False),
        ("openai/whisper-tiny", None, False),
        ("microsoft/resnet-50", None, False),
        ("gpt2", None, True),
        ("meta-llama/Llama-2-70b-hf", None, True),
    ],
)
def test_the_rate_of_the_files_is_meant_for_the_usual_batch(
    name: str, task: str | None, *, has_adapters: bool
) -> None:
    trained, length = model(name, task), 512
    usual = usual_batch(
        trained, sequence_length=length, has_adapters=has_adapters, job=None, training_tokens=0
    )
    recipe = find_recipe(
        task=trained.task,
        model_type=trained.model_type,
        is_pretrained=True,
        has_adapters=has_adapters,
        parameters=trained.parameters,
    )
    for sequences in (usual.smallest, usual.largest):
        assert recipe.rate(sequences, sequences * length) == recipe.learning_rate


def test_a_run_with_fewer_tokens_than_anybody_pretrains_with_tunes_weights() -> None:
    """MT-NLG had half a token for each parameter."""
    gpt2 = model("gpt2")
    half = gpt2.parameters / 2
    few, enough = (
        usual_batch(gpt2, sequence_length=1024, has_adapters=False, training_tokens=tokens)
        for tokens in (half - 1, half)
    )
    assert few == tuning_batch(gpt2, 1024)
    assert (few.smallest, few.is_pretraining) == (32, False)
    assert (enough.smallest, enough.is_pretraining) == (512, True)
