"""Settings of several tools -> what they say together: processes, batch, precision, sharding."""

from collections.abc import Iterator

from planner.catalog.configs import programs
from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    TRAINER,
    Found,
    Setting,
    Setup,
)
from planner.domain.cluster import Gpu

CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")
"""What transformers calls recompute, the newer name first."""

LENGTH = "max_length"
"""Tokens of a sequence."""
BLOCK = "block_size"
"""The same of run_clm.py, which takes no more than the model has positions."""


def learned_positions(setup: Setup) -> int | None:
    """Return how many positions the model has, where it has learned each."""
    model = setup.model
    return model.max_position_embeddings if model and model.has_learned_positions else None


def processes(launch: Found) -> int | None:
    """Return how many processes a command starts in all; None where it does not say."""
    launcher = launch.settings["launcher"].value
    if launcher == "torchrun":
        return _product(launch.get("nproc_per_node"), launch.get("nnodes"))
    if launcher == "deepspeed":
        return _product(launch.get("num_gpus"), launch.get("num_nodes"))
    if launcher == "accelerate":
        return launch.whole("num_processes")
    if launcher == "swift":
        setting = launch.get("environment.NPROC_PER_NODE")
        return 1 if setting is None else setting.whole
    if launcher in programs():
        return None
    return 1 if launch.get("starter") is None else None


def _product(per_node: Setting | None, nodes: Setting | None) -> int | None:
    if per_node is None:
        return None
    count = per_node.whole
    of_nodes = 1 if nodes is None else nodes.whole
    return None if count is None or of_nodes is None else count * of_nodes


def shown_gpus(launch: Found) -> Setting | None:
    """Return the CUDA_VISIBLE_DEVICES that a command sets; None where it sets none."""
    return launch.get("environment.CUDA_VISIBLE_DEVICES")


def has_chosen_gpus(setup: Setup) -> bool:
    """Return whether a command names the GPUs that it takes of the machine."""
    return any(shown_gpus(each) for each in setup.of(LAUNCH))


def world(setup: Setup) -> int | None:
    """Return the processes of the run: as the command starts them, as accelerate is told, or the GPUs."""
    started = [processes(each) for each in setup.of(LAUNCH)]
    told = [each.whole for each in setup.settings(ACCELERATE, "num_processes")]
    known = [each for each in (*started, *told) if each is not None and each > 0]
    if known:
        return known[0]
    return setup.cluster.world_size if setup.cluster else None


def stage(config: Found) -> int:
    """Return the ZeRO stage of a DeepSpeed configuration: 0 where it says none."""
    said = config.whole("zero_optimization.stage")
    return 0 if said is None else said


def stages(setup: Setup) -> tuple[tuple[int, Setting], ...]:
    """Return the ZeRO stages that files ask for, each with where."""
    said = (
        *setup.settings(DEEPSPEED, "zero_optimization.stage"),
        *setup.settings(ACCELERATE, "deepspeed_config.zero_stage"),
        *setup.settings(TRAINER, "zero_stage"),
    )
    return tuple((each.whole, each) for each in said if each.whole is not None)


def offloads(config: Found, what: str) -> Setting | None:
    """Return where a DeepSpeed configuration puts the optimizer or the parameters on the host."""
    device = config.get(f"zero_optimization.{what}.device")
    if device is not None:
        return device if device.text in {"cpu", "nvme"} else None
    # Without a device DeepSpeed takes "none".
    return None


def is_fsdp(setup: Setup) -> bool:
    """Return whether a file asks for FSDP; axolotl takes fsdp_config alone for that."""
    by_accelerate = any(
        each.text == "FSDP" for each in setup.settings(ACCELERATE, "distributed_type")
    )
    by_trainer = any(_is_given(each) for each in setup.settings(TRAINER, "fsdp"))
    by_axolotl = any(
        _is_given(each) or each.value == {}
        for found in setup.of(TRAINER)
        if found.tool == "axolotl" and (each := found.get("fsdp_config")) is not None
    )
    by_flag = any(each.truth("use_fsdp") for each in setup.of(LAUNCH))
    return by_accelerate or by_trainer or by_axolotl or by_flag


def is_deepspeed(setup: Setup) -> bool:
    """Return whether a file asks for DeepSpeed."""
    by_accelerate = any(
        each.text == "DEEPSPEED" for each in setup.settings(ACCELERATE, "distributed_type")
    )
    by_trainer = any(_is_given(each) for each in setup.settings(TRAINER, "deepspeed"))
    by_flag = any(each.truth("use_deepspeed") for each in setup.of(LAUNCH))
    return by_accelerate or by_trainer or by_flag or bool(setup.of(DEEPSPEED))


_NAMING: tuple[tuple[str, tuple[str, ...]], ...] = (
    (TRAINER, ("deepspeed",)),
    (ACCELERATE, ("deepspeed_config.deepspeed_config_file",)),
    (LAUNCH, ("deepspeed_config_file", "told.deepspeed_config")),
    (LAUNCH, ("config_file",)),
    (LAUNCH, ("config",)),
)


def named_files(setup: Setup) -> Iterator[Setting]:
    """Yield the settings that name another configuration: DeepSpeed's, accelerate's, a program's own."""
    for kind, keys in _NAMING:
        for each in setup.settings(kind, *keys):
            if isinstance(each.value, str) and each.text and not each.text.startswith("-"):
                yield each


def unread_file(setup: Setup) -> Setting | None:
    """Return where a file is named that says how the model is divided, where none such is among the files."""
    is_read = {"config_file": ACCELERATE, "config": TRAINER}
    unread = (
        each
        for each in (*named_files(setup), *_told_deepspeed(setup))
        if not setup.of(is_read.get(each.key, DEEPSPEED))
    )
    return next(unread, None)


def _told_deepspeed(setup: Setup) -> Iterator[Setting]:
    """Yield where a command names DeepSpeed's configuration by what only the run knows."""
    told = setup.settings(LAUNCH, "told.deepspeed_config")
    yield from (each for each in told if each.text.startswith("-"))


def written_deepspeed(setup: Setup) -> Setting | None:
    """Return where a program of its own is told to use DeepSpeed, whose configuration it writes itself."""
    said = (
        each
        for found in setup.of(TRAINER)
        if found.is_command and not is_of_others(found) and (each := found.get("deepspeed"))
    )
    is_given = setup.of(DEEPSPEED) or any(setup.settings(LAUNCH, "told.deepspeed_config"))
    return None if is_given else next((each for each in said if each.value is True), None)


def to_nvme(setup: Setup) -> bool:
    """Return whether a file asks for offload to NVMe."""
    return any(
        each.text == "nvme"
        for config in setup.of(DEEPSPEED, ACCELERATE, LAUNCH)
        for key, each in config.settings.items()
        if "offload_" in key and key.endswith("device")
    )


def _is_given(setting: Setting) -> bool:
    return setting.value not in (None, "", False, [])


def fsdp_sections(setup: Setup) -> tuple[tuple[Found, str], ...]:
    """Return who holds options of FSDP, and what stands before their names."""
    places = (
        *((found, "fsdp_config.") for found in setup.of(ACCELERATE, TRAINER)),
        *((found, "") for found in setup.of(LAUNCH)),
    )
    return tuple(
        (found, prefix)
        for found, prefix in places
        if any(key.startswith(prefix or "fsdp_") for key in found.settings)
    )


def fsdp_option(config: Found, prefix: str, name: str) -> Setting | None:
    """Return an option of FSDP, with or without the fsdp_ that both spellings allow."""
    return config.get(f"{prefix}fsdp_{name}", f"{prefix}{name}" if prefix else f"fsdp_{name}")


def fsdp_version(config: Found, prefix: str) -> int:
    """Return which FSDP is meant: 1 by accelerate's default, 2 by the Trainer's; of others' files 1, as theirs.

    0 is of one that only the run knows.
    """
    said = fsdp_option(config, prefix, "version") or config.get("fsdp_version")
    if said is not None and said.is_unread:
        return 0
    if said is not None and said.whole is not None:
        return said.whole
    return 2 if config.kind == TRAINER and not is_of_others(config) else 1


_OF_OTHERS = frozenset({"axolotl", "llamafactory", "swift"})
"""Programs whose files have more of their own, and their releases of transformers."""


def is_of_others(found: Found) -> bool:
    """Return whether a file is another program's, which hands some of it on to the Trainer."""
    return found.tool in _OF_OTHERS


def is_older(gpu: Gpu, capability: str) -> bool:
    """Return whether a GPU is known to have a lower compute capability."""
    return bool(gpu.compute_capability) and _parts(gpu.compute_capability) < _parts(capability)


def _parts(capability: str) -> tuple[int, ...]:
    return tuple(int(number) for number in capability.split("."))


def is_of_sagemaker(found: Found) -> bool:
    """Return whether an accelerate file is for SageMaker, whose launcher reads other keys."""
    where = found.get("compute_environment")
    return where is not None and where.text == "AMAZON_SAGEMAKER"


def said_count(found: Found, key: str) -> int | None:
    """Return a number of nodes: 1 where none is said, None where only the run knows."""
    said = found.get(key)
    return None if said is not None and said.is_unread else found.whole(key) or 1


def model_names(setup: Setup) -> tuple[Setting, ...]:
    """Return the settings that name the model to train."""
    named = (each.get("model_name_or_path") for each in setup.found)
    return tuple(each for each in named if each is not None)


def short(value: object) -> str:
    """Return a value as a message has it."""
    return (str(value).lower() if isinstance(value, bool) else str(value))[:60]
