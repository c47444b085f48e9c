"""A plan's script without a GPU: its own model, sharding and optimizer take two steps on tensors that have no storage.

`start` starts it and compares the peaks with the plan's; `program` runs in a process of its own, with PyTorch.
"""
