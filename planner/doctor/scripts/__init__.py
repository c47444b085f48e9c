"""A training script -> what is wrong with it, by code and line; it is parsed, never run."""

from planner.doctor.scripts.rules import RULES, Fault, ScriptRule, look_at

__all__ = ["RULES", "Fault", "ScriptRule", "look_at"]
