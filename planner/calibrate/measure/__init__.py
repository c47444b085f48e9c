"""What this machine does, by measuring it: matmuls, attention, memory, the optimizer, copies, collectives."""
