"""What one target is: its files, and the words of its templates; what it refuses is in `planner.targets`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from planner.core.frozen import frozen
from planner.generate.run_spec import RunSpec


def _nothing_more(_spec: RunSpec) -> dict[str, Any]:
    return {}


@frozen
class Target:
    """One way to run a plan: a folder of files in the bundle."""

    name: str
    summary: str
    """One sentence for the README, after the name and a colon; Markdown."""
    templates: Mapping[str, str]
    """File name to the template that writes it."""
    more_templates: Callable[[RunSpec], Mapping[str, str]] = _nothing_more
    """Those of files that only some plans need."""
    context: Callable[[RunSpec], Mapping[str, Any]] = _nothing_more
    """Template variables beside the common ones."""
    launch_template: str = "common/launch.md"
    """The commands that the README shows."""

    @property
    def is_script(self) -> bool:
        """Return whether it has a train.py of this project, with its arguments."""
        return "train.py" in self.templates and self.launch_template == "common/launch.md"


SHARED: Mapping[str, str] = MappingProxyType({"../launcher.py": "common/launcher.py"})
"""What starts train.py by torchrun, beside the folders of all targets that do."""
