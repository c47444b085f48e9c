"""A loss that a model or a framework has not is refused by name."""

import pytest

from planner.core.errors import InvalidInputError, InvalidRequestError
from planner.request.schema import Resolved, parse_request, resolve


def resolved(model: str, **recipe: str) -> str:
    request = parse_request({"model": model, "recipe": recipe})
    return resolve(request, allow_paths=False).job.recipe.loss


def test_the_standard_loss_is_the_default() -> None:
    assert resolved("gpt2") == "standard"
    assert resolved("gpt2", loss="fused") == "fused"


LLAMA = "meta-llama/Llama-3.1-8B"


def of_a_run(cluster: dict[str, object], **recipe: object) -> Resolved:
    payload = {"model": LLAMA, "cluster": cluster, "recipe": recipe}
    return resolve(parse_request(payload), allow_paths=False, of_a_run=True)


@pytest.mark.parametrize(
    ("framework", "length", "loss"),
    [
        ("deepspeed", 32_768, "fused"),
        ("accelerate", 65_536, "fused"),
        ("deepspeed", 24_576, "standard"),
        ("megatron", 32_768, "standard"),
    ],
)
def test_runs_on_long_sequences_are_taken_to_fuse_their_loss(
    framework: str, length: int, loss: str
) -> None:
    found = of_a_run({"gpu": "h100"}, framework=framework, sequence_length=length)
    assert found.job.recipe.loss == loss
    assert ("recipe.loss" in {each.field for each in found.assumptions}) == (loss != "standard")


def test_a_loss_that_is_said_is_taken_and_files_are_planned_with_their_own() -> None:
    recipe = {"framework": "deepspeed", "sequence_length": 32_768}
    said = of_a_run({"gpu": "h100"}, **recipe, loss="standard")
    assert said.job.recipe.loss == "standard"
    planned = resolve(parse_request({"model": LLAMA, "recipe": recipe}), allow_paths=False)
    assert planned.job.recipe.loss == "standard"


def test_a_sequence_is_long_by_what_a_rank_has_of_it() -> None:
    payload = {
        "model": LLAMA,
        "cluster": {"gpu": "h100", "gpus_per_node": 4},
        "recipe": {"framework": "deepspeed", "sequence_length": 32_768},
        "strategy": {"context_parallel_size": 4},
    }
    found = resolve(parse_request(payload), allow_paths=False, of_a_run=True)
    assert found.job.recipe.loss == "standard"


@pytest.mark.parametrize("gpu", ["h100", "b200"])
def test_a_run_of_megatron_fuses_its_loss_where_bridge_is_named(gpu: str) -> None:
    unsaid = of_a_run({"gpu": gpu}, framework="megatron").job
    assert (unsaid.recipe.loss, unsaid.precision.gradient_bytes) == ("standard", 4)
    named = of_a_run({"gpu": gpu}, framework="megatron-bridge").job
    assert (named.recipe.loss, named.precision.gradient_bytes) == ("fused", 2)


def test_a_misspelt_loss_names_the_nearest() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"model": "gpt2", "recipe": {"loss": "chunkd"}})
    (problem,) = caught.value.problems
    assert problem.field == "recipe.loss"
    assert problem.hint == "did you mean chunked?"


def test_a_framework_without_that_loss_names_those_that_have_it() -> None:
    with pytest.raises(InvalidInputError, match="not estimated for megatron") as caught:
        resolved("gpt2", loss="chunked", framework="megatron")
    assert "torchtitan" in caught.value.hint


def test_a_classifier_has_no_logits_over_a_vocabulary() -> None:
    with pytest.raises(InvalidInputError, match="language-model head"):
        resolved("google/vit-base-patch16-224", loss="fused")
