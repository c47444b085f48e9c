"""The rule about settings of accelerate's file whose value is none of those that they take."""

from collections.abc import Iterator
from difflib import get_close_matches

from planner.catalog.configs import known_keys
from planner.configs.found import ACCELERATE, Found, Setting, Setup
from planner.configs.meaning import fsdp_version
from planner.configs.rules.base import Fault, set_to

_FSDP = "fsdp_config."
_OF_FSDP_1 = ("fsdp_sharding_strategy", "fsdp_backward_prefetch")
"""That FSDP 2 leaves unread."""
_EXACT = "distributed_type"
"""The only one whose case matters."""
_SAGEMAKER = "AMAZON_SAGEMAKER"


def value_is_not_known(setup: Setup) -> Iterator[Fault]:
    """A setting of accelerate's file that takes one of a few names is given another.

    Why: accelerate raises when it starts, "Invalid auto wrap policy" or "is not a valid DistributedType", or
    a KeyError of an enumeration that does not say which setting it is of.

    Instead: a name that the message gives.

    Source: accelerate.utils.dataclasses, FullyShardedDataParallelPlugin.__post_init__ and DistributedType;
    accelerate.utils.launch (1.15.0); data/configs/accelerate.toml.
    """
    for config in setup.of(ACCELERATE):
        for setting, names in _settings(config):
            if isinstance(setting.value, str) and not _is_known(setting, names):
                yield _fault(setting, names)


def _settings(config: Found) -> Iterator[tuple[Setting, tuple[str, ...]]]:
    """Yield the settings that are read and take names, with these."""
    environment, is_second = config.get("compute_environment"), fsdp_version(config, _FSDP) > 1
    for key, names in known_keys("accelerate").values.items():
        is_unread = is_second and key in _OF_FSDP_1
        is_of_others = environment is not None and environment.text == _SAGEMAKER
        setting = config.get(f"{_FSDP}{key}" if key.startswith("fsdp_") else key)
        if setting is not None and not is_unread and not is_of_others:
            yield setting, names


def _is_known(setting: Setting, names: tuple[str, ...]) -> bool:
    """Return whether a name is known; FSDP's may be the numbers of an enumeration."""
    text = setting.text.strip()
    if not text or setting.name == _EXACT:
        return text in {"", *names}
    is_number = text.isdigit() and setting.name.startswith("fsdp_")
    return is_number or text.upper() in {name.upper() for name in names}


def _fault(setting: Setting, names: tuple[str, ...]) -> Fault:
    near = get_close_matches(setting.text[:60].upper(), [each.upper() for each in names], n=1)
    right = next((each for each in names if [each.upper()] == near), "")
    return Fault(
        at=setting,
        message=f"{setting.name} has no {setting.text[:60]!r}",
        hint="" if right else ", ".join(names[:6]),
        edit=set_to(setting, right) if right else None,
    )
