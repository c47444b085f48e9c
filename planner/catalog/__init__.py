"""What is known: a name in, its record of `data/` out, in base units."""
