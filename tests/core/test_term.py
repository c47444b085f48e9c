import numpy as np
import pytest

from planner.core.term import (
    NOTHING,
    Amount,
    RowChoice,
    Term,
    add,
    bytes_each,
    choose,
    count,
    either,
    gpus,
    greatest,
    largest,
    micro_batches,
    only_where,
    pick,
    plain,
    ranks,
    seconds,
    size,
    smallest,
    total,
)


def parameters(number: Amount, shards: Amount = 1) -> Term:
    return Term(
        name="parameters",
        arithmetic=bytes_each(4) * count(number, "parameters") / ranks(shards),
        note=("fp32, ", size(number)),
        source="a paper",
        spread=0.1,
    )


def test_the_amount_is_what_the_line_says() -> None:
    term = parameters(2e9, 8)
    assert term.amount == 1e9
    assert term.how == "4 B x 2,000,000,000 parameters / 8 ranks; fp32, 1.86 GiB"


def test_parentheses_stand_where_they_are_needed_and_nowhere_else() -> None:
    a, b, c = plain(2), plain(3), plain(5)
    assert (a + b + c).text == "2 + 3 + 5"
    assert (a * (b + c)).text == "2 x (3 + 5)"
    assert ((a + b) * c).text == "(2 + 3) x 5"
    assert (a * b / c).text == "2 x 3 / 5"
    assert (a / (b * c)).text == "2 / (3 x 5)"
    assert (a / (b / c)).text == "2 / (3 / 5)"
    assert (a - (b + c)).text == "2 - (3 + 5)"
    assert (a - (b - c)).text == "2 - (3 - 5)"
    assert (a + (b - c)).text == "2 + 3 - 5"
    assert largest(a, b + c).text == "max(2, 3 + 5)"
    assert (smallest(a, b) * c).text == "min(2, 3) x 5"


def test_sums_leave_out_what_is_zero() -> None:
    a, b, none = plain(2), plain(3), plain(0)
    assert (a + none).text == (none + a).text == (a - none).text == "2"
    assert (b * (a + none)).text == "3 x 2"
    assert (none - a).text == "0 - 2"
    assert (none + none).text == "0"


def test_units_and_words() -> None:
    assert (micro_batches(8) * seconds(0.0035, "of matmuls")).text == (
        "8 micro-batches x 3.50 ms of matmuls"
    )
    assert size(1536, "/token").text == "1.50 KiB/token"


def test_a_term_of_nothing_needs_no_note() -> None:
    assert Term(name="x", arithmetic=NOTHING, note=("why",), source="").how == "0"


def test_one_layout_shows_its_own_of_several_ways() -> None:
    one, other = plain(2, "of one"), plain(3, "of another")
    holds, fails = np.array([True, False])
    assert either(holds, one, other) is one
    assert either(fails, one, other) is other
    assert only_where(fails, one) is NOTHING
    assert choose(np.array([0, 1]), (one, one)) is one


def test_a_table_looks_each_row_up_and_spells_out_rows_alone() -> None:
    one, other = plain(np.array([2.0, 4.0]), "of one"), plain(3.0, "of another")
    choice = either(np.array([True, False]), one, other)
    assert isinstance(choice, RowChoice)
    assert np.asarray(choice.value).tolist() == [2, 3]
    assert choice.at(0).text == "2 of one"
    assert choice.at(1).text == "3 of another"
    with pytest.raises(TypeError):
        _ = choice.text


def test_one_row_of_a_table_reads_like_a_single_strategy() -> None:
    table = parameters(np.array([8.0, 16.0]), np.array([1, 2]))
    assert table.at(1) == parameters(16.0, 2)


def test_a_picked_entry_is_a_plain_python_number() -> None:
    assert type(pick(np.array([1, 2]), 1)) is int
    assert type(pick(np.array([1.0, 2.0]), 0)) is float
    assert type(pick(np.array([True]), 0)) is bool


def test_what_is_no_column_holds_for_every_row() -> None:
    assert pick(5, 3) == 5
    assert pick("none", 3) == "none"
    assert pick(np.array(7), 3) == 7


def test_the_total_is_per_row() -> None:
    terms = (parameters(np.array([1.0, 2.0])), parameters(10.0))
    assert np.asarray(total(terms)).tolist() == [44, 48]
    assert total((parameters(1.0), parameters(2.0))) == 12
    assert total(()) == 0


def test_sums_and_the_greatest_of_several() -> None:
    assert add([plain(1), plain(2), plain(3)]).value == 6
    assert np.asarray(greatest([np.array([1.0, 5.0]), 3.0])).tolist() == [3, 5]
    assert greatest([]) == 0


def test_what_is_alike_in_all_rows_is_the_same_expression_in_each() -> None:
    alike = bytes_each(4) * count(1024, "parameters")
    table = alike / ranks(np.array([1, 8]))
    assert alike.at(1) is alike
    assert [table.at(row).value for row in (0, 1)] == [4096, 512]
    assert table.at(1).text == "4 B x 1,024 parameters / 8 ranks"


def test_one_gpu_is_singular() -> None:
    assert [gpus(number).text for number in (1, 8)] == ["1 GPU", "8 GPUs"]
