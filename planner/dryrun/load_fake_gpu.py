"""Lets PyTorch carry tensors of a GPU that is not there; before torch is imported."""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from platformdirs import user_cache_path

from planner.core.errors import UnsupportedError

_SOURCE = Path(__file__).with_name("fake_gpu.cpp")
_LIBRARIES = ("libc10.so", "libtorch_cpu.so")
_COMPILE_SECONDS = 300


def load_fake_gpu() -> None:
    """Load what stands in for the device, and PyTorch: a build with CUDA sees none of the machine's GPUs.

    Raises:
        UnsupportedError: there is no PyTorch, or no compiler.
    """
    torch = _torch_folder()
    library = _compiled(torch)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name in _LIBRARIES:
        ctypes.CDLL(str(torch / "lib" / name), ctypes.RTLD_GLOBAL)
    stand_in = ctypes.CDLL(str(library))
    import torch as _  # noqa: F401 - sets its own guard of the device

    stand_in.guard_no_gpu()


def _torch_folder() -> Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise UnsupportedError("a dry run needs PyTorch", hint="pip install 'trainplan[torch]'")
    return Path(found.origin).parent


def _compiled(torch: Path) -> Path:
    """Return the compiled library; it is kept for this PyTorch and this source."""
    version = (torch / "version.py").read_bytes()
    key = hashlib.sha256(version + _SOURCE.read_bytes()).hexdigest()[:16]
    library = user_cache_path("planner") / f"fake-gpu-{key}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise UnsupportedError(
            "what stands in for a GPU must be compiled, and there is no g++",
            hint="install g++, with apt-get or dnf: it compiles once, for seconds",
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(f".{os.getpid()}")
    words = [
        *(compiler, "-O1", "-shared", "-fPIC", "-std=c++20", f"-I{torch / 'include'}"),
        *(str(_SOURCE), "-o", str(unfinished)),
        *(f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"),
    ]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_COMPILE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(
            f"{compiler} did not compile what stands in for a GPU within {_COMPILE_SECONDS} s",
            hint="try again when the machine is less busy",
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").partition("error:")[2].strip()[:200]
        raise UnsupportedError(
            f"{compiler} could not compile what stands in for a GPU: {said}",
            hint="the headers of another release of PyTorch may fit: pip install 'trainplan[torch]'",
        )
    unfinished.replace(library)
    return library
