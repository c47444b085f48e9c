"""The GPUs of this machine, through NVML; the only module that asks it."""

from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpus:
    """What NVML sees: names as it reports them, in index order."""

    names: tuple[str, ...]


def local_gpus() -> LocalGpus | None:
    """Return the GPUs of this machine, or None where there is no driver or no GPU."""
    import pynvml  # noqa: PLC0415 - 20 ms that most commands do not need

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = (
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        )
        names = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return LocalGpus(names=names) if names else None
