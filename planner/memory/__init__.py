"""Does it fit: a job and a strategy in, the bytes of a rank out, term by term."""
