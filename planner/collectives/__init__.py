"""How long an exchange takes: an operation, a group of ranks and bytes in, seconds out."""
