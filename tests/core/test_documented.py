"""What users read of a rule's function."""

from planner.core.documented import documentation, shown_name


def gpus_are_idle() -> None:
    """GPUs wait.

    Why: nothing comes.

    Instead: more of it,
    and sooner.

    Source: a clock.
    """


def undocumented() -> None: ...


def test_a_function_is_named_and_documented_by_itself() -> None:
    assert shown_name(gpus_are_idle) == "gpus-are-idle"
    assert documentation(gpus_are_idle).startswith("GPUs wait.\n\nWhy: nothing comes.")
