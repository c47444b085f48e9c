"""Messages and logs: each known message has its cause, and the first cause is found among what followed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.symptoms import Symptom, symptoms
from planner.core.errors import InvalidInputError
from planner.core.units import GIB, MIB
from planner.doctor.memory_numbers import (
    MemoryNumbers,
    compare_with_plan,
    number_lines,
    read_numbers,
)
from planner.doctor.messages import MOST_BYTES, diagnose_log, diagnose_text
from planner.doctor.texts import plain
from planner.explain.glossary import explain, find_term

ALL = symptoms()
TYPED = tomllib.loads(Path("tests/facts/typed_messages.toml").read_text(encoding="utf-8"))
"""Messages of logs and forums, by what they are."""
OUT_OF_MEMORY = next(each.said for each in ALL if each.code == "ERR005")
TIMEOUT = next(each.said for each in ALL if each.code == "ERR011")
LAUNCHER = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


def test_no_two_symptoms_have_one_code() -> None:
    free = f"ERR{max(int(each.code.removeprefix('ERR')) for each in ALL) + 1:03}"
    of_file: dict[str, str] = {}
    for path in sorted(Path("data/symptoms").glob("*.toml")):
        for each in tomllib.loads(path.read_text(encoding="utf-8"))["symptom"]:
            taken = of_file.get(each["code"])
            assert not taken, f"{each['code']} is taken by {taken}; the next free one is {free}"
            of_file[each["code"]] = str(path)


def match_message(text: str) -> Symptom | None:
    found = diagnose_text(text)
    return found.main.symptom if found.main else None


def lines_of(symptom: Symptom) -> str:
    return f"{symptom.after}\n{symptom.said}" if symptom.after else symptom.said


@pytest.mark.parametrize("symptom", ALL, ids=lambda each: each.name)
def test_a_message_is_known_as_itself(symptom: Symptom) -> None:
    assert match_message(lines_of(symptom)) is symptom
    assert match_message(f"[rank3]: {lines_of(symptom)}".upper()) is symptom


@pytest.mark.parametrize("symptom", ALL, ids=lambda each: each.name)
def test_a_symptom_is_whole(symptom: Symptom) -> None:
    assert find_term(symptom.page)
    assert symptom.text.isascii()
    assert bool(symptom.near or symptom.beside) == bool(symptom.after)
    for text in (symptom.cause, symptom.first, symptom.confirm, symptom.source):
        assert len(text) > 10
    assert len(symptom.said) > 20


@pytest.mark.parametrize("symptom", ALL, ids=lambda each: each.name)
def test_explain_finds_it_by_code_name_and_message(symptom: Symptom) -> None:
    assert explain(symptom.code).text == symptom.text
    assert explain(symptom.name).text.splitlines()[0]
    if not symptom.after:
        said = explain(symptom.said)
        assert said.text.partition("\n\nNumbers: ")[0] == symptom.text_of(plain(symptom.said))


@pytest.mark.parametrize(
    ("code", "message"), [(code, said) for code, each in TYPED.items() for said in each]
)
def test_a_message_of_a_forum_is_explained(code: str, message: str) -> None:
    assert explain(message).text.startswith(next(each.title for each in ALL if each.code == code))


def test_every_file_is_read_and_no_name_twice() -> None:
    assert len(ALL) >= 40
    assert len({each.name for each in ALL}) == len(ALL)
    files = Path("data/symptoms").glob("*.toml")
    assert sum(file.read_text().count("[[symptom]]") for file in files) == len(ALL)


def test_the_first_traceback_is_the_cause_not_the_watchdog_or_the_launcher() -> None:
    log = "\n".join(
        [
            "step 10",
            TIMEOUT,
            "[rank3]: Traceback (most recent call last):",
            '[rank3]:   File "/home/me/train.py", line 88, in <module>',
            '[rank3]:   File "/venv/lib/python3.11/site-packages/torch/x.py", line 3, in f',
            "[rank3]: KeyError: 'labels'",
            LAUNCHER,
        ]
    )
    diagnosis = diagnose_text(log)
    assert diagnosis.main is not None
    assert (diagnosis.main.line, diagnosis.main.symptom) == (6, None)
    assert diagnosis.main.frame == "/home/me/train.py:88"
    followed = [(each.line, each.symptom and each.symptom.code) for each in diagnosis.others]
    assert followed == [(2, "ERR011"), (7, "ERR032")]


def test_a_general_kind_keeps_the_line_of_the_script() -> None:
    frames = [
        '  File "/home/me/train.py", line 88, in <module>',
        '  File "/v/site-packages/x.py", line 3, in f',
    ]
    said = "ValueError: chunk_length (4096) must be smaller than max_position (2048)"
    found = diagnose_text("\n".join(["Traceback (most recent call last):", *frames, said]))
    assert found.main is not None
    assert found.main.symptom is not None
    assert found.main.symptom.is_general
    assert found.main.frame == "/home/me/train.py:88"
    alone = diagnose_text("\n".join([*frames, said])).main
    assert alone is not None
    assert alone.frame == ""


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("RuntimeError: CUDA error: device-side assert triggered", "ERR110"),
        (
            "Assertion `srcIndex < srcSelectDimSize` failed.\nCUDA error: device-side assert triggered",
            "ERR068",
        ),
        (
            "NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",
            "ERR111",
        ),
        ("NCCL WARN Cuda failure 1 'invalid argument'", "ERR015"),
    ],
)
def test_a_message_of_several_causes_asserts_none(message: str, code: str) -> None:
    symptom = match_message(message)
    assert symptom is not None
    assert symptom.code == code


@pytest.mark.parametrize(
    "prefix", ["", "[rank3]: ", "[default3]:", "3: ", "(train pid=77, ip=10.0.0.1) "]
)
def test_an_exception_is_seen_behind_the_prefix_of_its_launcher(prefix: str) -> None:
    diagnosis = diagnose_text(
        f"{prefix}Traceback (most recent call last):\n{prefix}KeyError: 'x'\n"
    )
    assert diagnosis.main is not None
    assert diagnosis.main.line == 2


def test_bars_colours_and_windows_do_not_move_the_lines() -> None:
    bars = "".join(f" {part}%|##|\r" for part in range(100))
    log = f"one\r\n{bars}two\r\n\x1b[31mtorch.OutOfMemoryError\x1b[0m: CUDA \x1b[1mout of memory\x1b[0m.\r\n"
    diagnosis = diagnose_text(log)
    assert diagnosis.main is not None
    assert diagnosis.main.line == 3
    assert diagnosis.main.text == "torch.OutOfMemoryError: CUDA out of memory."
    assert diagnosis.lines == 3


def test_letters_that_grow_when_lowered_do_no_harm() -> None:
    diagnosis = diagnose_text("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\nCUDA out of memory.\n")
    assert diagnosis.main is not None
    assert diagnosis.main.line == 2


def test_of_exceptions_without_an_entry_the_first_and_the_last_are_named() -> None:
    begin = "Traceback (most recent call last):\n"
    errors = "".join(f"{begin}ValueError: number {number}\n" for number in range(5))
    diagnosis = diagnose_text(errors)
    assert diagnosis.main is not None
    assert diagnosis.main.text == "ValueError: number 0"
    assert [each.text for each in diagnosis.others] == ["ValueError: number 4"]


@pytest.mark.parametrize(
    ("clocks", "line"),
    [
        (("2026-01-02 10:00:09,100", "2026-01-02 10:00:05,100"), 4),
        (("2026-01-02 10:00:05,100", "2026-01-02T10:00:09.100"), 2),
        (("[E0102 10:00:09.100000000 x.cpp:1]", "[E0102 10:00:05.900000000 x.cpp:1]"), 4),
        (("[E0102 10:00:09.100000000 x.cpp:1]", "2026-01-02 10:00:05,100"), 2),  # two clocks
        (("step 9", "step 5"), 2),
    ],
)
def test_of_the_logs_of_two_ranks_the_earlier_cause_is_the_first(
    clocks: tuple[str, str], line: int
) -> None:
    unscaled = "ValueError: Attempting to unscale FP16 gradients."
    diagnosis = diagnose_text("\n".join([clocks[0], OUT_OF_MEMORY, clocks[1], unscaled]))
    assert diagnosis.main is not None
    assert diagnosis.main.line == line


def test_a_message_is_explained_with_its_own_numbers() -> None:
    ours, sample = "20.0 GiB", "22.78 GiB"
    assert sample in OUT_OF_MEMORY
    said = explain(OUT_OF_MEMORY.replace(sample, ours)).text
    assert sample not in said
    assert f"Numbers: {ours} asked for" in said
    assert "GiB" not in explain("RuntimeError: CUDA out of memory.").text


def test_memory_comes_before_what_the_other_ranks_say() -> None:
    log = f"a\n{LAUNCHER}\nb\n[rank1]: {OUT_OF_MEMORY}\n{TIMEOUT}\n"
    diagnosis = diagnose_text(log)
    assert diagnosis.main is not None
    assert diagnosis.main.symptom is not None
    assert (diagnosis.main.line, diagnosis.main.symptom.code) == (4, "ERR005")


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("in evaluation_loop", "ERR001"),
        ("in _save_checkpoint", "ERR002"),
        ("    loss = F.cross_entropy(logits, labels)\n  in cross_entropy", "ERR003"),
        ("  vllm/worker.py", "ERR004"),
        ("in training_step", "ERR005"),
        ("in evaluation_loop" + "\n." * 70, "ERR005"),
    ],
)
def test_where_memory_ran_out_is_read_from_the_lines_before(before: str, code: str) -> None:
    symptom = match_message(f"{before}\n{OUT_OF_MEMORY}")
    assert symptom is not None
    assert symptom.code == code


def test_a_timeout_beside_a_map_is_the_map() -> None:
    symptom = match_message(f"Running tokenizer on dataset:   9%\n{TIMEOUT}")
    assert symptom is not None
    assert symptom.code == "ERR010"


def test_the_numbers_of_a_message() -> None:
    numbers = read_numbers(OUT_OF_MEMORY)
    assert numbers == MemoryNumbers(
        wanted_bytes=round(22.78 * GIB),
        total_bytes=round(31.47 * GIB),
        free_bytes=round(12.73 * GIB),
        process_bytes=round(18.73 * GIB),
        allocated_bytes=round(9.08 * GIB),
        unused_bytes=round(9.35 * GIB),
    )
    # 22.78 - 12.73 = 10.05; 12.73 + 9.35 = 22.08, 0.70 too little
    said = " ".join(number_lines(numbers))
    assert "22.8 GiB asked for, 12.7 GiB free of 31.5 GiB: 10.0 GiB short" in said
    assert "9.35 GiB are reserved and unused" in said
    assert "717 MiB too little still" in said
    assert "another process" not in said


def test_the_numbers_of_an_older_message() -> None:
    said = (
        "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total"
        " capacity; 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)"
    )
    numbers = read_numbers(said)
    assert numbers is not None
    assert numbers.wanted_bytes == round(12.5 * MIB)
    assert numbers.total_bytes == round(10.92 * GIB)
    assert numbers.free_bytes == round(9.28 * GIB)
    # 10.92 - 9.28 - 0.008 = 1.63 GiB that are not tensors; whose they are is not said
    said = " ".join(number_lines(numbers))
    assert "1.63 GiB of the card are not PyTorch's tensors: this process's CUDA context" in said
    assert "held by something else" not in said


def test_a_card_that_another_process_fills() -> None:
    said = (
        "CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 23.64 GiB of"
        " which 64.00 MiB is free. Including non-PyTorch memory, this process has 8.04 GiB memory in"
        " use. Of the allocated memory 7.63 GiB is allocated by PyTorch, and 40.11 MiB is reserved"
        " by PyTorch but unallocated."
    )
    numbers = read_numbers(said)
    assert numbers is not None
    # 23.64 - 0.06 - 8.04 = 15.5
    assert "15.5 GiB of the card are held by something else" in " ".join(number_lines(numbers))


def test_a_message_is_compared_with_a_ledger() -> None:
    terms = [{"name": "activations", "bytes": 6 * GIB}, {"name": "parameters", "bytes": 2 * GIB}]
    memory = {
        "peak_bytes": 8 * GIB,
        "high_bytes": 9 * GIB,
        "usable_bytes": 16 * GIB,
        "terms": terms,
    }
    numbers = MemoryNumbers(
        wanted_bytes=2 * GIB, allocated_bytes=14 * GIB, total_bytes=32 * GIB, free_bytes=GIB
    )
    said = " ".join(compare_with_plan(numbers, {"chosen": {"memory": memory}}))
    assert "8.00 GiB (activations 6.00 GiB, parameters 2.00 GiB)" in said
    assert "16.0 GiB, 2.00 times that" in said
    assert "the plan is for a card of 16.0 GiB" in said
    assert "more than the plan's range" in said
    unreadable: tuple[dict[str, Any], ...] = (
        {},
        {"memory": []},
        {"chosen": {"memory": {"peak_bytes": "x"}}},
        {"chosen": None},
    )
    for broken in unreadable:
        with pytest.raises(InvalidInputError):
            compare_with_plan(numbers, broken)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n" * 100_000,
        b"a" * 1_000_000,
        b"\xff\xfe" * 1000,
        b"Traceback (most recent call last)",
    ],
)
def test_what_says_nothing_has_no_cause(content: bytes) -> None:
    assert diagnose_log(content, "log").main is None


@pytest.mark.parametrize("content", [b"\x00" * 100, b"x" * (MOST_BYTES + 1)])
def test_what_is_no_log_is_a_clean_error(content: bytes) -> None:
    with pytest.raises(InvalidInputError) as refused:
        diagnose_log(content, "log")
    assert refused.value.hint
    assert refused.value.field == "--error"


def test_a_long_log_keeps_its_lines() -> None:
    log = ("step\n" * 200_000 + OUT_OF_MEMORY + "\n").encode() + (LAUNCHER + "\n").encode() * 1000
    diagnosis = diagnose_log(log, "log")
    assert diagnosis.main is not None
    assert diagnosis.main.line == 200_001
    assert diagnosis.numbers is not None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("We tried to avoid CUDA out of memory by setting batch size 4.", None),
        ("note: if you see CUDA out of memory, lower the batch", None),
        (
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "ERR005",
        ),
        ("CUDA out of memory.", "ERR005"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "ERR005"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "ERR071"),
        ("RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float", "ERR072"),
    ],
)
def test_a_line_is_its_message_and_prose_is_none(line: str, code: str | None) -> None:
    symptom = match_message(f"{line}\nTraining completed.\n")
    assert (symptom.code if symptom else None) == code


def test_an_exception_alone_is_an_unknown_one() -> None:
    diagnosis = diagnose_text("step 3\nRuntimeError: it failed in a way of its own\n")
    assert diagnosis.main is not None
    assert (diagnosis.main.line, diagnosis.main.symptom) == (2, None)
    assert diagnose_text("RuntimeError: it went on\nstep 4\n").main is None
