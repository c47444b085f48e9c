import numpy as np
import pytest

from planner.core.term import Term, pick, total


def _parameters(amount: object, count: object) -> Term:
    return Term(
        name="parameters",
        amount=amount,
        formula="{size} B x {count:count}",
        numbers={"size": 4, "count": count},
        source="a paper",
        spread=0.1,
    )


def test_how_is_the_formula_with_its_numbers_in() -> None:
    assert _parameters(8e9, 2e9).how == "4 B x 2.00 B"


def test_a_formula_without_numbers_is_itself() -> None:
    assert Term(name="context", amount=1, formula="measured", source="a paper").how == "measured"


def test_a_formula_that_names_a_missing_number_fails_loudly() -> None:
    with pytest.raises(KeyError):
        _ = Term(name="x", amount=1, formula="{absent}", source="").how


def test_one_row_of_a_table_reads_like_a_single_strategy() -> None:
    table = _parameters(np.array([8.0, 16.0]), np.array([2e9, 4e9]))
    assert table.at(1) == _parameters(16.0, 4e9)


def test_a_picked_entry_is_a_plain_python_number() -> None:
    assert type(pick(np.array([1, 2]), 1)) is int
    assert type(pick(np.array([1.0, 2.0]), 0)) is float
    assert type(pick(np.array([True]), 0)) is bool


def test_what_is_no_column_holds_for_every_row() -> None:
    assert pick(5, 3) == 5
    assert pick("none", 3) == "none"
    assert pick(np.array(7), 3) == 7


def test_the_total_is_per_row() -> None:
    terms = (_parameters(np.array([1, 2]), 1), _parameters(10, 1))
    assert total(terms).tolist() == [11, 12]
    assert total((_parameters(1, 1), _parameters(2, 1))) == 3
    assert total(()) == 0
