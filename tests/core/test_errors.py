import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core import errors
from planner.core.errors import InvalidRequestError, PlannerError, Problem, did_you_mean


def test_an_error_says_what_happened_what_to_do_and_where() -> None:
    error = PlannerError("no", hint="yes", field="model")
    assert (str(error), error.message, error.hint, error.field) == ("no", "no", "yes", "model")


def test_hint_and_field_may_be_left_out() -> None:
    error = PlannerError("no")
    assert (error.hint, error.field) == ("", "")


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        (errors.InvalidRequestError, errors.InvalidInputError),
        (errors.UnknownNameError, errors.InvalidInputError),
        (errors.ModelAccessError, errors.ModelNotFoundError),
        (errors.HubUnreachableError, errors.ModelNotFoundError),
        (errors.NothingFitsError, errors.PlannerError),
        (errors.UnsupportedError, errors.PlannerError),
    ],
)
def test_the_doors_can_tell_kinds_apart(
    child: type[PlannerError], parent: type[PlannerError]
) -> None:
    assert issubclass(child, parent)


def test_one_problem_is_the_error_itself() -> None:
    problem = Problem(field="cluster.gpu", message="unknown GPU", hint="did you mean a100?")
    error = InvalidRequestError((problem,))
    assert str(error) == "unknown GPU"
    assert (error.hint, error.field) == ("did you mean a100?", "cluster.gpu")


def test_of_several_problems_the_first_speaks_and_all_are_listed() -> None:
    problems = tuple(Problem(field=f, message=f"bad {f}", hint="") for f in ("a", "b", "c"))
    error = InvalidRequestError(problems)
    assert str(error) == "bad a (and 2 more)"
    assert error.problems == problems


def test_the_nearest_names_are_listed_in_their_own_case() -> None:
    assert did_you_mean("meta-lama/llama-2-7b", ["meta-llama/Llama-2-7b", "gpt2"]) == (
        "did you mean meta-llama/Llama-2-7b?"
    )
    assert did_you_mean("h10", ["h100", "h200"]) == "did you mean h100 or h200?"


def test_nothing_near_is_no_hint() -> None:
    assert did_you_mean("zzzzzz", ["gpt2", "bert"]) == ""
    assert did_you_mean("", ["gpt2"]) == ""
    assert did_you_mean("gpt2", []) == ""


@settings(deadline=None)
@given(st.text(max_size=3000))
def test_any_text_gets_a_hint_or_none(name: str) -> None:
    assert did_you_mean(name, ["gpt2", "h100"]) in {
        "",
        "did you mean gpt2?",
        "did you mean h100?",
        "did you mean gpt2 or h100?",
        "did you mean h100 or gpt2?",
    }


def test_what_would_fit_travels_between_processes() -> None:
    remedy = errors.Remedy(text="8 GPUs would fit (--nodes 8)", field="cluster.nodes", value="8")
    error = errors.NothingFitsError("too much", "a hint", "cluster", (remedy,))
    again = copy.copy(error)
    assert again.remedies == (remedy,)
    assert (again.message, again.hint, again.field) == ("too much", "a hint", "cluster")
