"""What Python's reader of JSON takes and the standard does not."""

import pytest

from planner.core.strict_json import parse_json


def test_json_is_read() -> None:
    value = {"a": [1, 2.5, None, True], "b": {"a": "text"}}
    text = '{"a": [1, 2.5, null, true], "b": {"a": "text"}}'
    assert parse_json(text) == parse_json(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        (b"\xff\xfe\xff", "decode"),
        ("[NaN]", "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('[{"a": 1, "b": 2, "b": 2}]', "'b' twice in one object"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "^a number of 5,000 digits, more than 640$"),
    ],
)
def test_what_is_no_json_says_why(text: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)
