"""What every generated script must pass, and texts that try to leave their place in one."""

import sys
from pathlib import Path

TOOLS = Path(sys.executable).parent
MODULES = [
    *("answers", "arguments", "checkpoints", "data", "division", "evaluation", "gradients"),
    *(
        "launcher",
        "model",
        "progress",
        "report",
        "settings",
        "stages",
        "start",
        "training",
        "weights",
    ),
]
"""What stands beside a train.py."""
FORMAT = (f"{TOOLS}/ruff", "format", "--isolated", "--no-cache", "--line-length=100", "--diff")
LINT = (
    f"{TOOLS}/ruff",
    "check",
    "--isolated",
    "--no-cache",
    "--line-length=100",
    "--select=E4,E7,E9,F,I,B,UP,D1,ANN",
    "--ignore=D105,D107,ANN401",
    f"--config=lint.isort.known-first-party={MODULES}",
)
HOSTILE = (
    "$(reboot)",
    "`reboot`; rm -rf ~ #",
    "'; reboot; '",
    '"""\nimport os; os.system("reboot")\n"""',
    "a\nreboot\n",
    "a\r\x0breboot\u2028reboot\x85",
    "../../etc/passwd",
    "{{ 7*7 }}{% raw %}",
    "back\\slash\\",
    "a'b\"c",
    "\u202egnp.exe\x00\ud800",
    "# shellcheck disable=all",
    "-*- coding: utf-7 -*-",
    "[click](http://example.com)<script>alert(1)</script>|`x`",
)
