"""What docs/questions.md says of FSDP 1 and 2 is what accelerate's own converter does."""

import re
from importlib import import_module
from pathlib import Path

CONVERTER = import_module("accelerate.commands.to_fsdp2")
PAGE = Path(__file__).parents[2] / "docs/questions.md"


def test_the_page_renames_as_accelerate_does() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## How do I get from FSDP 1")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    strategies = CONVERTER.ARGUMENT_VALUE_MAPPING["fsdp_sharding_strategy"]
    gone: set[str] = set()
    later: set[str] = set()
    said: dict[str, bool] = {}
    for old, new in rows[2:]:
        words = re.findall(r"[A-Z][A-Z_0-9]{4,}", old)
        if "sharding_strategy" in old:
            said |= {word: new.endswith("true`") for word in words}
        elif "gone" in new:
            gone |= set(re.findall(r"fsdp_\w+", old))
        elif "not there yet" in new:
            later |= set(re.findall(r"fsdp_\w+", old))
    assert said == strategies
    statuses: dict[object, set[str]] = {status: set() for status in CONVERTER.ConversionStatus}
    kept: set[str] = set()
    for key, value in CONVERTER.ARGUMENT_KEY_MAPPING.items():
        (statuses[value] if isinstance(value, CONVERTER.ConversionStatus) else kept).add(key)
    assert gone == statuses[CONVERTER.ConversionStatus.REMOVED]
    assert later == statuses[CONVERTER.ConversionStatus.NOT_YET_IMPLEMENTED]
    renamed = {key for key in kept if CONVERTER.ARGUMENT_KEY_MAPPING[key] != key}
    assert renamed == {"fsdp_sharding_strategy"}
