"""What whoever runs the service may set, by environment variables: PLANNER_DEADLINE_SECONDS=10."""

import os

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_MINUTE = 60.0


class Settings(BaseSettings):
    """The service's limits; each has a default that suits one small machine."""

    model_config = SettingsConfigDict(env_prefix="PLANNER_", extra="forbid", frozen=True)

    processes: int = Field(default=len(os.sched_getaffinity(0)), ge=0, le=256)
    """That plan; 0 plans in threads of the server itself, which nothing can end early."""
    queue: int = Field(default=32, ge=0)
    """Requests that may wait for a process; one more is answered 429."""
    deadline_seconds: float = Field(default=20.0, gt=0)
    """For an answer, waiting included; then it is 504, and its process is ended."""
    body_seconds: float = Field(default=10.0, gt=0)
    """For a client to send its body; then it is answered 408."""
    cached_answers: int = Field(default=512, ge=0)
    """Held to be given again; one of them takes up to some 200 kB."""
    cache_seconds: float = Field(default=10 * _MINUTE, gt=0)
    """After which a model of the Hub is looked up anew."""
    trusted_hosts: list[str] = ["*"]
    """That a request may name as its host, as JSON: '["planner.example.org"]'."""
