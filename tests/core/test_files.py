"""What is read of a user's file."""

import os
import threading
from io import BytesIO
from pathlib import Path

import pytest

from planner.core.errors import InvalidInputError
from planner.core.files import decode_log, decode_text, open_file, read_limited


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


def test_a_named_pipe_is_refused_and_one_of_the_shell_is_read(tmp_path: Path) -> None:
    """Of the first nothing would ever come."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="cannot read it: it is a named pipe, no file"):
        read_limited(tmp_path / "pipe", "it", 1024, hint="", field="FILE")
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as stream:

        def write() -> None:
            stream.write(b"x" * 9)
            stream.close()

        late = threading.Timer(0.2, write)
        late.start()
        assert read_limited(Path(f"/dev/fd/{reading}"), "it", 9, hint="", field="FILE") == b"x" * 9
        late.join()


def test_what_is_refused_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none"):
        with pytest.raises(OSError, match=r"directory|named pipe"):
            open_file(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("raw", [b"\x80\x81", b"a\0b", "\ufeffa".encode("utf-16-le")])
def test_what_is_no_text_is_called_that(raw: bytes) -> None:
    with pytest.raises(InvalidInputError, match="it is not a text file in UTF-8") as refused:
        decode_text(raw, "it", hint="a plan", field="FILE")
    assert (refused.value.hint, refused.value.field) == ("a plan", "FILE")
    assert decode_text("\ufeffé".encode(), "it", hint="", field="FILE") == "é"


def test_a_log_may_be_damaged_but_not_binary() -> None:
    assert (
        decode_log(b"\xef\xbb\xbfa line\xff of it\0", "it", hint="", field="LOG")
        == "a line\ufffd of it\0"
    )
    assert decode_log("a".encode("utf-16"), "it", hint="", field="LOG") == "a"
    with pytest.raises(InvalidInputError, match="it is binary, no log"):
        decode_log(bytes(range(256)), "it", hint="", field="LOG")
