"""What whoever runs the service may set, by environment variables: PLANNER_DEADLINE_SECONDS=10."""

import os
from typing import Literal

from limits import parse
from pydantic import Field, SecretStr, field_validator
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
    head_seconds: float = Field(default=10.0, gt=0)
    """For a client to send a request's headers, from when it connects or begins; then it is left."""
    body_seconds: float = Field(default=10.0, gt=0)
    """For a client to send its body; then it is answered 408."""
    answer_seconds: float = Field(default=20.0, gt=0)
    """For a client to read what waits for it, some 64 kB; then it is left."""
    cached_answers: int = Field(default=512, ge=0)
    """Held to be given again; one of them takes up to some 200 kB."""
    cache_seconds: float = Field(default=10 * _MINUTE, gt=0)
    """After which a model of the Hub is looked up anew."""
    redis_url: SecretStr | None = None
    """Of a Redis that several replicas share their answers in, such as redis://redis:6379/0."""
    api_keys: list[SecretStr] = []
    """Of which a request must have one, as JSON; none: it needs none."""
    rate: str = ""
    """Of requests per client, such as 60/minute; "" for any."""
    logs: Literal["json", "text"] = "json"
    trusted_hosts: list[str] = ["*"]
    """That a request may name as its host, as JSON: '["planner.example.org"]'."""

    @field_validator("rate")
    @classmethod
    def _is_a_rate(cls, said: str) -> str:
        """Refuse at the start what no limit could be read from.

        Raises:
            ValueError: it is no rate.
        """
        if said:
            parse(said)
        return said
