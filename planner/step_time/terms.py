"""The terms that a step's ledger has, by the names that every door shows."""

from enum import StrEnum


class StepTerm(StrEnum):
    """What an optimizer step spends its seconds on."""

    FORWARD = "forward"
    BACKWARD = "backward"
    REFERENCE_FORWARD = "reference_forward"
    TENSOR_EXCHANGE = "tensor_parallel_exchange"
    CONTEXT_EXCHANGE = "context_parallel_exchange"
    EXPERT_EXCHANGE = "expert_parallel_exchange"
    PIPELINE_BUBBLE = "pipeline_bubble"
    PIPELINE_TRANSFER = "pipeline_transfer"
    GRADIENT_REDUCTION = "gradient_reduction"
    PARAMETER_GATHER = "parameter_gather"
    OVERLAP_SLOWDOWN = "overlap_slowdown"
    OPTIMIZER = "optimizer"
    OFFLOAD = "offload"
    ACTIVATION_OFFLOAD = "activation_offload"


EXPOSED = (StepTerm.GRADIENT_REDUCTION, StepTerm.PARAMETER_GATHER, StepTerm.PIPELINE_TRANSFER)
"""Communication between micro-batches and around them, as far as nothing hides it."""

INSIDE = (StepTerm.TENSOR_EXCHANGE, StepTerm.CONTEXT_EXCHANGE, StepTerm.EXPERT_EXCHANGE)
"""Communication within each micro-batch."""

COMMUNICATION = (*EXPOSED, *INSIDE, StepTerm.OVERLAP_SLOWDOWN)
"""All that a step would be spared without exchanges: what waits for them, and what they slow."""
