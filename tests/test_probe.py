"""NVML is the only fake: a module with the calls that the probe makes."""

import sys
from types import SimpleNamespace

import pytest

from planner.probe import LocalGpus, local_gpus

H100 = "NVIDIA H100 80GB HBM3"


class FakeNvmlError(Exception):
    """What `pynvml.NVMLError` is to the probe."""


class FakeNvml:
    """A driver with these GPUs, in which the named calls fail."""

    NVMLError = FakeNvmlError

    def __init__(self, names: list[str], failing: tuple[str, ...] = ()) -> None:
        self.names = names
        self.failing = failing
        self.is_open = False

    def _call(self, name: str) -> None:
        if name in self.failing:
            raise FakeNvmlError(name)

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        self._call("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's own name
        self.is_open = False
        self._call("shutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's own name
        self._call("count")
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimpleNamespace:  # noqa: N802 - NVML's own name
        self._call(f"handle {index}")
        return SimpleNamespace(index=index)

    def nvmlDeviceGetName(self, handle: SimpleNamespace) -> str:  # noqa: N802 - NVML's own name
        self._call(f"name {handle.index}")
        index: int = handle.index
        return self.names[index]


def _probe(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> LocalGpus | None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpus = local_gpus()
    assert not nvml.is_open
    return gpus


def test_four_gpus_are_seen_in_index_order(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [H100, H100, "Tesla T4", H100]
    assert _probe(monkeypatch, FakeNvml(names)) == LocalGpus(names=tuple(names))


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _probe(monkeypatch, FakeNvml([H100], failing=("init",))) is None


def test_a_driver_without_gpus_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _probe(monkeypatch, FakeNvml([])) is None


@pytest.mark.parametrize("call", ["count", "handle 1", "name 3"])
def test_a_gpu_that_fails_midway_is_nothing(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    assert _probe(monkeypatch, FakeNvml([H100] * 4, failing=(call, "shutdown"))) is None


def test_a_failing_shutdown_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([H100], failing=("shutdown",))
    assert _probe(monkeypatch, nvml) == LocalGpus(names=(H100,))


def test_the_real_bindings_answer_on_any_machine() -> None:
    gpus = local_gpus()
    assert gpus is None or all(gpus.names)
