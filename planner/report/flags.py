"""The flag of the terminal that sets each field of a request."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.fields import words

_TOGETHER = {
    "recipe": "--precision, --optimizer, --attention",
    "recipe.lora": "--lora-rank, --lora-targets",
    "recipe.global_batch_tokens": "--global-batch-size N",
    "strategy": "--strategy NAME",
    "strategy.zero_stage": "--strategy NAME",
}
"""What sets a section, or a field that another's flag sets, too."""


@cache
def flags() -> Mapping[str, str]:
    """Return the flag that sets each field of a request, with the word that stands for its value."""
    return {path: said.flag for path, said in words().items() if said.flag} | _TOGETHER


def names_of_switch(flag: str) -> tuple[str, str]:
    """Return the two flags of a switch: for yes and for no."""
    yes, _, no = flag.partition("/")
    return yes, no or yes.replace("--", "--no-", 1)


def flag_words(field: str, *, value: str | bool) -> list[str]:
    """Return the words of a command line that set a field."""
    name, _, wants = flags()[field].partition(" ")
    if wants:
        return [name, str(value)]
    return [names_of_switch(name)[not value]]
