"""Python programs in forks of a process that has imported PyTorch and transformers already."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

CLIENTS = Path(__file__).parent / "execution" / "preloaded"
OFFLINE_ON_CPUS = {
    "ACCELERATE_USE_CPU": "true",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def preloading(socket_path: Path) -> Generator[None]:
    """Listen for programs to run."""
    command = [sys.executable, str(CLIENTS / "server.py"), str(socket_path)]
    environment = {**os.environ, **OFFLINE_ON_CPUS}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert b"ready\n" in server.stdout
            yield
        finally:
            server.terminate()


def pythons() -> dict[str, str]:
    """Return where a command finds Python, preloaded where the test asks for it."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if "PRELOADED" not in os.environ:
        return {"PATH": os.pathsep.join(folders)}
    return {
        "PATH": os.pathsep.join([str(CLIENTS), *folders]),
        "PYTHON_EXEC": str(CLIENTS / "python"),
    }
