"""Whatever is given as a script or a log is read, or refused in words."""

import ast
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.symptoms import symptoms
from planner.core.errors import InvalidInputError
from planner.doctor.diagnosis import diagnose
from planner.doctor.messages import diagnose_log, diagnose_text
from planner.doctor.scripts import look_at
from planner.doctor.texts import log_text, timings_text
from planner.doctor.timings import Fixed, Timings
from planner.report.values import Terminal

PIECES = st.sampled_from(
    [
        *(each.said for each in symptoms()),
        *(each.after for each in symptoms() if each.after),
        "Traceback (most recent call last):",
        "KeyError: 'x'",
        '  File "a.py", line 1, in b',
        "\r",
        "\x1b[31m",
        "\x00",
    ]
)
STATEMENTS = st.sampled_from(
    """
from accelerate import Accelerator
a = Accelerator()
a, b = c.prepare(d, *e)
a.b, (c, d) = a.prepare(a.b, c)
(a := Accelerator()).prepare(b)
x = a.prepare(x)
a.prepare(lambda: y)
for x in enumerate(zip(x, y)): a.backward(x / 2); x.step()
while True: x().backward(); x[0].item()
for x.y in z: (x.y if a else b).backward(); _ = x.y.to('cuda:0')
if x % 2: x.step()
torch.save(x.state_dict(), 'a')
m = DistributedDataParallel(m)
d = DataLoader(d, num_workers=2)
mp.spawn(f)
x: int = nn.DataParallel(x)
def f(a=Accelerator()): return f(f)
class C(a.prepare(b)): pass
async def g():\\n    async for x in y: x.backward()
""".strip().splitlines()
)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=8), st.text(max_size=20))
def test_any_log_has_a_diagnosis(pieces: list[str], between: str) -> None:
    found = diagnose_text(f"{between}\n".join(pieces))
    shown = log_text(found, (), Terminal())
    assert shown
    assert "\x1b" not in shown
    assert "\x00" not in shown


@pytest.mark.parametrize("content", [random.Random(0).randbytes(2000), bytes(range(256))])
def test_what_is_binary_is_called_that(content: bytes) -> None:
    with pytest.raises(InvalidInputError, match="log is binary, no log"):
        diagnose_log(content, "log")
    with pytest.raises(InvalidInputError, match=r"train\.py is binary, no script"):
        look_at(content, "train.py")


def test_a_log_of_powershell_is_read() -> None:
    content = "RuntimeError: CUDA out of memory".encode("utf-16")
    assert diagnose_log(content, "log").main is not None


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(InvalidInputError):
        diagnose_log(content, "log")
    with suppress(InvalidInputError):
        look_at(content, "train.py")


@settings(max_examples=100)
@given(st.lists(STATEMENTS, max_size=10))
def test_any_script_is_looked_at(statements: list[str]) -> None:
    body = [statement.replace("\\n", "\n") for statement in statements]
    text = "\n".join(["import torch", *body])
    last = len(text.splitlines())
    ast.parse(text)
    for fault in look_at(text.encode(), "train.py"):
        assert 1 <= fault.line <= last
        assert fault.message
        assert fault.fix


SECONDS = st.floats(0.001, 1e6, allow_nan=False)


@settings(max_examples=150)
@given(
    st.dictionaries(st.integers(1, 64), SECONDS, min_size=2, max_size=5),
    st.sampled_from(["", "epochs", "steps"]),
    st.one_of(st.none(), SECONDS),
    st.one_of(st.none(), SECONDS),
)
def test_any_times_have_a_diagnosis(
    seconds: dict[int, float], fixed: Fixed, start_up: float | None, loader: float | None
) -> None:
    timings = Timings(
        seconds=dict(sorted(seconds.items())),
        fixed=fixed,
        start_up_seconds=start_up,
        loader_seconds=loader,
    )
    with suppress(InvalidInputError):
        found = diagnose(timings)
        assert timings_text(found, Terminal())
        assert "nan" not in found.message
