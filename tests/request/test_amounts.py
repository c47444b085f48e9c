import pytest

from planner.core.errors import InvalidInputError
from planner.request.amounts import read_batch, read_hours, read_length, read_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("4096", 4096), ("128k", 131_072), ("1M", 1_048_576), ("0.5k", 512), (" 8 K ", 8192)],
)
def test_a_sequence_is_measured_in_units_of_1024(text: str, tokens: int) -> None:
    assert read_length(text) == tokens


@pytest.mark.parametrize(
    ("text", "field", "amount"),
    [
        ("512", "global_batch_size", 512),
        ("512 sequences", "global_batch_size", 512),
        ("0.5M", "global_batch_tokens", 500_000),
        ("4m tokens", "global_batch_tokens", 4_000_000),
        ("524288tokens", "global_batch_tokens", 524_288),
        ("512k tokens", "global_batch_tokens", 512_000),
        ("0.016B", "global_batch_tokens", 16_000_000),
    ],
)
def test_a_batch_is_sequences_or_tokens(text: str, field: str, amount: int) -> None:
    assert read_batch(text) == {field: amount}


@pytest.mark.parametrize("read", [read_length, read_batch, read_tokens, read_hours])
@pytest.mark.parametrize("text", ["", "many", "-4", "1.5", "2k sequences", "1e3", "4 4", "9" * 30])
def test_what_is_no_amount_is_refused_with_examples(read: object, text: str) -> None:
    assert callable(read)
    if read is read_tokens and text == "1.5":
        return
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    assert "such as" in caught.value.hint
    assert caught.value.field


def test_a_run_and_a_deadline_have_units() -> None:
    assert (read_tokens("1.5T"), read_tokens("20b")) == (1_500_000_000_000, 20_000_000_000)
    assert (read_hours("90m"), read_hours("7d")) == (1.5, 168)
