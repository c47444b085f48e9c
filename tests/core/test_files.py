"""What is read of a user's file."""

from io import BytesIO
from pathlib import Path

import pytest

from planner.core.errors import InvalidInputError
from planner.core.files import read_limited


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1024)
    assert read_limited(file, "it", 1024, hint="", field="FILE") == b"x" * 1024
    assert read_limited(BytesIO(b"y"), "it", 1024, hint="", field="FILE") == b"y"


@pytest.mark.parametrize(("limit", "said"), [(1024, "larger than 1 KiB"), (2**20, "than 1 MiB")])
def test_a_file_that_is_too_large_is_refused(limit: int, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as refused:
        read_limited(BytesIO(b"x" * (limit + 1)), "it", limit, hint="a plan", field="FILE")
    assert (refused.value.hint, refused.value.field) == ("a plan", "FILE")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read it: Is a directory"):
        read_limited(tmp_path, "it", 1024, hint="", field="FILE")
