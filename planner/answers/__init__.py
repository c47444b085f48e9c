"""The answer as JSON: a Plan or an estimate in, the contract's objects out; batches and replicas aside."""

from planner.answers.envelope import SCHEMA_VERSION, answer_error, describe_error
from planner.answers.estimate import (
    answer_batch,
    answer_each,
    answer_estimate,
    estimate_request,
    request_id,
)
from planner.answers.known import answer_instance, answer_model
from planner.answers.memory import answer_memory, memory_request
from planner.answers.suggestion import (
    answer_plan,
    answer_suggestion,
    ask_why,
    suggest,
    suggest_layout,
)

__all__ = [
    "SCHEMA_VERSION",
    "answer_batch",
    "answer_each",
    "answer_error",
    "answer_estimate",
    "answer_instance",
    "answer_memory",
    "answer_model",
    "answer_plan",
    "answer_suggestion",
    "ask_why",
    "describe_error",
    "estimate_request",
    "memory_request",
    "request_id",
    "suggest",
    "suggest_layout",
]
