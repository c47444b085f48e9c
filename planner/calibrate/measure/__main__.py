"""`python -m planner.calibrate.measure`, alone or under torchrun."""

from planner.calibrate.measure.program import main

main()
