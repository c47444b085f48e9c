"""Which timed products make a curve."""

from planner.machine.document import GemmPoint
from planner.machine.gemm_fit import aligned


def test_rows_that_are_not_aligned_are_no_part_of_the_curve() -> None:
    odd, even = (GemmPoint(m=16384, n=columns, k=768, seconds=0.01) for columns in (50257, 50304))
    assert aligned([odd, even]) == [even]
    assert aligned([odd]) == [odd]
