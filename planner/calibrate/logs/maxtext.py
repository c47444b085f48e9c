"""MaxText: a line per completed step, and the configuration that it prints."""

import re

from planner.calibrate.logs.steps import Facts, LineFormat, count, numbered

_CONFIG = Facts(
    pattern=re.compile(r"Config param (?P<name>[a-z_]+): (?P<value>\S+)$"),
    fields={"max_target_length": ("recipe.sequence_length", count)},
)

MAXTEXT = LineFormat(
    name="MaxText",
    mark="completed step: ",
    step=re.compile(r"completed step: (\d{1,12}),"),
    value=numbered(r"seconds:\s{0,20}"),
    facts=(_CONFIG,),
)
"""Steps are timed where they are launched: single ones say little, their median does.

Source: AI-Hypercomputer/maxtext, common/metric_logger.py and its guide to logs.
"""
