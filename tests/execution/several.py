"""Run inside one launch of torchrun: train several written plans, one after the other.

Importing PyTorch and transformers takes longer than training a tiny model does.
"""

import gc
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import torch.distributed as dist


def load(script: Path) -> ModuleType:
    """Import a generated train.py, as a namespace that has what the modules beside it have too."""
    programs = {"train", "launcher"}
    beside = [path.stem for path in script.parent.glob("*.py") if path.stem not in programs]
    for name in beside:  # of another plan
        sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    importlib.invalidate_caches()
    sys.path.insert(0, str(script.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(script.parent))
    for name in beside:
        for key, value in vars(sys.modules[name]).items():
            vars(module).setdefault(key, value)
    return module


def main() -> None:
    """Train a target in each folder named before the first `--`, with the arguments after it.

    In those, FOLDER is its path, and NAME its last part. After another `--` come the arguments of
    another round through the folders.
    """
    sections = [
        list(section)
        for is_separator, section in itertools.groupby(sys.argv[1:], "--".__eq__)
        if not is_separator
    ]
    (target, *folders), *rounds = sections
    device = None
    for arguments, folder in itertools.product(rounds, folders):
        module = load(Path(folder) / target / "train.py")
        name = Path(folder).name
        sys.argv[1:] = [a.replace("FOLDER", folder).replace("NAME", name) for a in arguments]
        args = module.parse_arguments()
        device = device or module.join(args)
        module.train(args, device)
        gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
