"""How a node's GPUs are wired: pasted topology or NVML in, links of any group and the order of ranks out."""
