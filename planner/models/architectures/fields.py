"""Fields of a config.json that hold more than one number: nested configs, pairs, lists, labels."""

from collections.abc import Callable, Mapping, Sequence

from planner.core.errors import InvalidInputError
from planner.models.architectures.config import MOST_LAYERS, Config

LONGEST_LIST = 64
"""No model has more stages; a longer list is an error or an attack."""
_LARGEST_RATIO = 1000


def nested(config: Config, key: str) -> Config:
    """Return the config under a key, empty where it is missing.

    Raises:
        InvalidInputError: the field holds something else than an object.
    """
    value = config.values.get(key)
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise invalid(config, key, "an object")
    return Config(config.name, value)


def sizes(config: Config, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return a list of sizes, each a positive whole number. A null counts as missing.

    Raises:
        InvalidInputError: the field is no list, is empty, too long, or holds something else.
    """
    value = config.values.get(key)
    if value is None:
        return default
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= LONGEST_LIST:
        raise invalid(config, key, f"a list of 1 to {LONGEST_LIST} sizes")
    return tuple(Config(config.name, {key: item}).size(key) for item in value)


def pair(config: Config, key: str, default: int) -> tuple[int, int]:
    """Return height and width, of which a single number gives both.

    Raises:
        InvalidInputError: the field is neither a size nor a list of two.
    """
    if not isinstance(config.values.get(key), list | tuple):
        side = config.size(key, default)
        return side, side
    match sizes(config, key, ()):
        case (side,):
            return side, side
        case (height, width):
            return height, width
        case _:
            raise invalid(config, key, "a size, or height and width")


def labels(config: Config, default: int = 2) -> int:
    """Return the number of classes: of `id2label`, else `num_labels`, else transformers' default, which is 2 of most.

    Raises:
        InvalidInputError: id2label holds something else than an object.
    """
    names = config.values.get("id2label")
    if names is None:
        return config.size("num_labels", default)
    if not isinstance(names, Mapping):
        raise invalid(config, "id2label", "an object")
    return len(names) or config.size("num_labels", default)


def ratio(config: Config, key: str, default: float) -> float:
    """Return a positive number up to 1000. A null counts as missing.

    Raises:
        InvalidInputError: the field holds something else.
    """
    value = config.values.get(key)
    if value is None:
        value = default
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= _LARGEST_RATIO
    ):
        raise invalid(config, key, f"a number above 0 and up to {_LARGEST_RATIO}")
    return float(value)


def said(config: Config, keys: Sequence[str]) -> str:
    """Return the first of the names of a field under which the config says something, else the first."""
    return next((key for key in keys if config.values.get(key) is not None), keys[0])


def count(config: Config, key: str, default: int) -> int:
    """Return a whole number that may be missing, zero or negative: 0 for all of these.

    Raises:
        InvalidInputError: the field holds something else, or a number too large.
    """
    value = config.values.get(key)
    if value is None:
        value = default
    if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
        return 0
    return config.size(key, default)


def layer_kinds(
    config: Config, key: str, layers: int, otherwise: Callable[[int], str]
) -> tuple[str, ...]:
    """Return the kind of each layer: of a list as long as the model, else by its index.

    Raises:
        InvalidInputError: the list holds something else than words, or there are too many layers.
    """
    if layers > MOST_LAYERS:
        raise invalid(config, "num_hidden_layers", f"at most {MOST_LAYERS:,}")
    value = config.values.get(key)
    if not isinstance(value, list | tuple) or len(value) != layers:
        return tuple(otherwise(index) for index in range(layers))
    if not all(isinstance(word, str) for word in value):
        raise invalid(config, key, "a list of words")
    return tuple(value)


def texts(config: Config, key: str) -> tuple[str, ...]:
    """Return a list of words, which may be one string with bars between them.

    Raises:
        InvalidInputError: the field holds something else.
    """
    value = config.values.get(key) or []
    if isinstance(value, str):
        value = [word.strip() for word in value.lower().split("|")]
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise invalid(config, key, "a list of words")
    return tuple(value)


def invalid(config: Config, key: str, wanted: str) -> InvalidInputError:
    """Return the error of a field that holds something else than what is wanted."""
    return InvalidInputError(f"{config.where}: {key} must be {wanted}", field="model")
