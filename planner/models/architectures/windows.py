"""Layers whose queries see only the keys of a sliding window."""

from planner.models.architectures.config import Config


def sliding_layers(config: Config, count: int, period: int, default_window: int) -> tuple[int, int]:
    """Return how many of the layers see only a window, and its size; 0 and 0 without one.

    Args:
        config: the model's; `layer_types` or `sliding_window_pattern` say which layers.
        count: layers in all.
        period: every n-th layer attends to everything where the config does not say; 0 none.
        default_window: of the family where the config does not say.
    """
    window = config.values.get("sliding_window", default_window)
    if window in (None, 0) or not config.flag("use_sliding_window", default=True):
        return 0, 0
    window = config.size("sliding_window", default_window)
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and kinds:
        share = sum(kind == "sliding_attention" for kind in kinds) / len(kinds)
        return round(share * count), window
    period = config.size("sliding_window_pattern", period or 1)
    return count - (count // period if period > 1 else 0), window
