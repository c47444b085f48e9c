"""machine.json: what was measured of one machine, and what it changes in the records of one like it."""
