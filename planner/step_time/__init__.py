"""How long does a step take: a job and a strategy in, seconds out, term by term."""
