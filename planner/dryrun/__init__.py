"""A plan's script without a GPU: its own model, sharding and optimizer take two steps on tensors that have no storage."""
