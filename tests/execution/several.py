"""Run inside one launch of torchrun: train several written plans, one after the other.

Importing PyTorch and transformers takes longer than training a tiny model does.
"""

import gc
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch.distributed as dist


def load(script: Path) -> ModuleType:
    """Import a generated train.py."""
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Train in each folder named before `--`, with the arguments after it.

    In those, FOLDER is its path, and NAME its last part.
    """
    split = sys.argv.index("--")
    folders, arguments = sys.argv[1:split], sys.argv[split + 1 :]
    device = None
    for folder in folders:
        module = load(Path(folder) / "torchrun" / "train.py")
        device = device or module.join()
        name = Path(folder).name
        sys.argv[1:] = [a.replace("FOLDER", folder).replace("NAME", name) for a in arguments]
        module.train(module.parse_arguments(), device)
        gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
