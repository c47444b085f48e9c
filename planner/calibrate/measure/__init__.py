"""What this machine does, by measuring it: matmuls, attention, memory, the optimizer, copies, collectives.

`planner calibrate --measure` starts it; on several nodes torchrun starts `python -m planner.calibrate.measure` on each.
`tasks` and `start` know no torch; the other modules need it, and are imported by the measuring program alone.
"""
