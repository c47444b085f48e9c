"""The GPUs of this machine, through NVML or `nvidia-smi`; the only room that asks them."""

import os

from planner.hardware.probe import driver
from planner.hardware.probe.machine import Machine, MigInstance, ProbedGpu
from planner.hardware.probe.machine_text import describe, to_wire

__all__ = [
    "Machine",
    "MigInstance",
    "ProbedGpu",
    "describe",
    "probe",
    "to_wire",
    "why_none",
]


def probe() -> Machine | None:
    """Return this machine as CUDA will see it, or None where it has no usable NVIDIA GPU.

    NVML answers first; where it cannot be opened, `nvidia-smi` is read. CUDA_VISIBLE_DEVICES is
    respected.
    """
    machine = _look()
    return machine if isinstance(machine, Machine) else None


def why_none() -> str:
    """Return why `probe` finds nothing, or an empty string where it finds a machine."""
    machine = _look()
    return "" if isinstance(machine, Machine) else f"no NVIDIA GPU here: {machine}"


def _look() -> Machine | str:
    """Return the machine, or the reason for there being none."""
    if not (driver.has_library() or driver.program()):
        return f"{driver.NO_LIBRARY} and {driver.NO_PROGRAM}"
    from planner.hardware.probe.nvml import read_machine
    from planner.hardware.probe.visible import restrict

    machine = read_machine()
    return restrict(machine, os.environ) if isinstance(machine, Machine) else machine
