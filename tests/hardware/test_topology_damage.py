import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from planner.core.errors import InvalidInputError
from planner.hardware.topology import LARGEST_TEXT, PCIE_CLASSES, Topology, dump, parse_topology

PUBLISHED = Path(__file__).parents[1] / "topologies"
TEXTS = [
    path.read_text(encoding="utf-8")
    for path in sorted(PUBLISHED.rglob("*"))
    if path.suffix in {".txt", ".csv"}
]
MUTATIONS = 20_000
JUNK = "GPUNIC0123456789 XSYODEPBHMLV[]m{}:=,-|/#\t\n\r\x1b\x00\u00a0\u200b\u2028\u0663\u7565\U0001f600"


def _cut(dice: random.Random, text: str) -> str:
    start, end = sorted(dice.choices(range(len(text) + 1), k=2))
    return dice.choice([text[:end], text[start:], text[start:end], text[:start] + text[end:]])


def _garbled(dice: random.Random, text: str) -> str:
    at = dice.randrange(len(text) + 1)
    junk = "".join(dice.choices(JUNK, k=dice.randrange(1, 12)))
    return text[:at] + junk + text[at + dice.randrange(12) :]


def _respaced(dice: random.Random, text: str) -> str:
    old, new = dice.choice(
        [("\t", " "), ("\t", ""), ("\t", "\t\t"), ("  ", " "), (" ", "\t"), ("\n", " "), (" ", "")]
    )
    return text.replace(old, new, dice.choice([-1, dice.randrange(1, 40)]))


def _shuffled(dice: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    dice.shuffle(lines)
    return "".join(lines)


def _without_lines(dice: random.Random, text: str) -> str:
    return "\n".join(line for line in text.splitlines() if dice.random() > 0.2)


def _swapped(dice: random.Random, text: str) -> str:
    words = ["GPU0", "GPU1", "NV4", "NV12", "SYS", " X ", "OK", "NIC0", "N/A", "CPU", "XGMI", "15"]
    return text.replace(dice.choice(words), dice.choice(words), dice.randrange(1, 5))


def _joined(dice: random.Random, text: str) -> str:
    return dice.choice(["\n", "", "\n\n$ nvidia-smi\n"]).join([text, dice.choice(TEXTS)])


DAMAGE: list[Callable[[random.Random, str], str]] = [
    _cut,
    _garbled,
    _respaced,
    _shuffled,
    _without_lines,
    _swapped,
    _joined,
]


def _read_or_refuse(text: str) -> Topology | None:
    try:
        return parse_topology(text)
    except InvalidInputError:
        return None


def _check(topology: Topology) -> None:
    pairs = set(combinations(range(topology.num_gpus), 2))
    assert topology.nvlink.keys() | topology.pcie.keys() | topology.peer_to_peer.keys() <= pairs
    assert not topology.nvlink.keys() & topology.pcie.keys()
    assert set(topology.nvlink.values()) <= set(range(1, 37))
    assert set(topology.pcie.values()) <= set(PCIE_CLASSES)
    assert sorted(sum(topology.islands, ())) == list(range(topology.num_gpus))
    assert max(topology.numa, default=0) < topology.num_gpus
    assert len(topology.gpu_names) in {0, topology.num_gpus}


def test_damaged_pastes_are_read_or_refused_and_never_break() -> None:
    dice = random.Random(20)
    num_read = 0
    for _ in range(MUTATIONS):
        text = dice.choice(TEXTS)
        for _ in range(dice.randrange(1, 4)):
            text = dice.choice(DAMAGE)(dice, text)
        if topology := _read_or_refuse(text):
            _check(topology)
            num_read += 1
    assert MUTATIONS / 10 < num_read < MUTATIONS


def test_what_is_read_from_a_damaged_paste_can_be_written_and_read_again() -> None:
    dice = random.Random(21)
    for _ in range(500):
        topology = _read_or_refuse(dice.choice(DAMAGE)(dice, dice.choice(TEXTS)))
        assert topology is None or parse_topology(dump(topology)) == topology


HUGE = {
    "headers": "GPU0 CPU Affinity\n",
    "matrices": "GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n",
    "different matrices": "".join(
        f"GPU0 GPU1\nGPU0 X NV{links}\nGPU1 NV{links} X\n" for links in range(1, 37)
    ),
    "rows": "GPU0 X\n",
    "spaces": " ",
    "tabs": "\t",
    "margins": "> # * // 1: ",
    "brackets": "[0;",
    "braces": "{",
    "lists": '{"gpus": [',
    "escapes": "\x1b]0;",
    "columns": "GPU0\tGPU1\tNIC0\t",
    "devices": "GPU 0: N (UUID: x)\nLink 0: 25 GB/s\n",
    "fields": "index, name, ",
    "csv": "index, name\n0, A100\n",
    "digits": "9",
    "titles": "topo -topo topology ",
    "rocm": "Link Type between two GPUs\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n",
    "peers": "GPU0 GPU1\nGPU0 X GNS\nGPU1 GNS X\n",
    "unicode": "\u3000\u2028\u0663",
}


@pytest.mark.parametrize("unit", HUGE.values(), ids=list(HUGE))
def test_a_huge_paste_of_one_thing_is_read_or_refused(unit: str) -> None:
    text = (unit * (LARGEST_TEXT // len(unit) + 1))[:LARGEST_TEXT]
    for paste in (text, "GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n" + text[:-40]):
        if topology := _read_or_refuse(paste):
            _check(topology)
