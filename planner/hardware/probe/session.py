"""An open NVML: every call may fail alone, and none of them may spoil the others."""

from dataclasses import field
from typing import Any

from planner.core.frozen import frozen

NO_PERMISSION = 4
LOST = frozenset({15, 16})
"""GPU_IS_LOST and RESET_REQUIRED."""


@frozen
class Failure:
    """One call that NVML refused."""

    call: str
    code: int
    text: str


@frozen
class Session:
    """NVML's bindings between nvmlInit and nvmlShutdown."""

    nvml: Any
    failures: list[Failure] = field(default_factory=list)

    def ask(self, call: str, *arguments: Any) -> Any:
        """Return the call's answer, or None where the driver or the GPU has none."""
        try:
            return getattr(self.nvml, call)(*arguments)
        except self.nvml.NVMLError as error:
            self.failures.append(Failure(call=call, code=error.value, text=str(error)))
            return None

    def ask_text(self, call: str, *arguments: Any) -> str:
        """Return the call's answer as text, empty where there is none."""
        return as_text(self.ask(call, *arguments))


def as_text(answer: Any) -> str:
    """Return a name as text: old bindings hand out bytes."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", errors="replace")
    return "" if answer is None else str(answer)
