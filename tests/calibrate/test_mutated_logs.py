"""Ten thousand damaged logs: each ends in a clean error or in a reading whose figures can be."""

import contextlib
import gzip
import math
import random
from collections.abc import Callable

from log_samples import SAMPLES

from planner.calibrate.logs.layout import measured_run
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.calibrate.logs.steps import LARGEST_MEMORY, LONGEST_STEP
from planner.core.errors import InvalidInputError, PlannerError

MUTATED = 10_000
LAYOUT = {
    "model": "gpt2",
    "cluster": {"gpu": "l40s"},
    "recipe": {"sequence_length": 512, "global_batch_size": 16},
    "strategy": {"micro_batch_size": 1},
}
STRANGE = (
    *(b"nan", b"-nan", b"inf", b"-1", b"0", b"1e999", b"9" * 400, b"1,2,3", b"0x10", b"", b"None"),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\x1b[31m",
        b"\r",
        b"\n",
        b"{",
        b"}",
        b'"',
        b"[" * 3000,
        b"\xe2\x80\xa8",
    ),
    "\N{ARABIC-INDIC DIGIT THREE}".encode(),
)
LOGS = [make().encode() for made in SAMPLES.values() for make in made]


def _at(dice: random.Random, raw: bytes) -> int:
    return dice.randrange(len(raw) + 1)


def insert(dice: random.Random, raw: bytes) -> bytes:
    at = _at(dice, raw)
    return raw[:at] + dice.choice(STRANGE) + raw[at:]


def replace_number(dice: random.Random, raw: bytes) -> bytes:
    digits = [index for index, byte in enumerate(raw) if 48 <= byte < 58]
    start = end = dice.choice(digits) if digits else 0
    while end < len(raw) and raw[end : end + 1] in b"0123456789.,":
        end += 1
    return raw[:start] + dice.choice(STRANGE) + raw[end:]


def cut(dice: random.Random, raw: bytes) -> bytes:
    first, second = sorted((_at(dice, raw), _at(dice, raw)))
    return dice.choice((raw[:first], raw[first:], raw[:first] + raw[second:]))


def flip(dice: random.Random, raw: bytes) -> bytes:
    damaged = bytearray(raw)
    for _ in range(dice.randrange(1, 20)):
        if damaged:
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def shuffle(dice: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    dice.shuffle(lines)
    return b"\n".join(lines)


def interleave(dice: random.Random, raw: bytes) -> bytes:
    other = dice.choice(LOGS)
    at, there = _at(dice, raw), _at(dice, other)
    return raw[:at] + other[there:] + raw[at:]


def ranks(dice: random.Random, raw: bytes) -> bytes:
    return b"\n".join(b"[rank%d]: %s" % (dice.randrange(4), line) for line in raw.split(b"\n"))


def pack(dice: random.Random, raw: bytes) -> bytes:
    packed = gzip.compress(raw, 1, mtime=0)
    return packed if dice.random() < 0.5 else cut(dice, packed)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(insert, replace_number, replace_number, cut, flip, shuffle, interleave, ranks, pack),
)


def check(reading: Reading) -> None:
    for curve in reading.collectives:
        assert curve.ranks >= 2
        assert curve.nodes >= 1
        assert all(0 < p.seconds <= LONGEST_STEP and p.bytes > 0 for p in curve.points)
    if reading.log is None or reading.steady is None:
        return
    assert 0 < reading.steady.value < math.inf
    assert reading.steady.left_out >= 0
    assert reading.steady.steps >= 1
    run, _ = measured_run(reading, LAYOUT)
    assert run.step_seconds is not None
    assert 0 < run.step_seconds < math.inf
    for amount in (run.peak_bytes, reading.log.reserved_bytes):
        assert amount is None or 0 < amount <= LARGEST_MEMORY


def test_ten_thousand_damaged_logs_end_cleanly() -> None:
    dice, read, refused = random.Random(20), 0, list[str]()
    for _ in range(MUTATED):
        raw = dice.choice(LOGS)
        for _ in range(dice.randrange(1, 4)):
            raw = dice.choice(MUTATIONS)(dice, raw)
        try:
            reading = read_log_bytes("run.log", raw)
        except InvalidInputError as error:
            refused.append(error.message)
            continue
        with contextlib.suppress(PlannerError):
            check(reading)
        assert all(map(str.isprintable, (*reading.damaged, *reading.notes, reading.first_unread)))
        assert (reading.gpu + reading.nccl).isprintable()
        read += 1
    assert all(map(str.isprintable, refused))
    assert read > MUTATED / 2
