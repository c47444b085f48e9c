"""What whoever runs the service may set, by environment variables: PLANNER_DEADLINE_SECONDS=10."""

import json
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from limits import parse
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

_MINUTE = 60.0
_PREFIX = "PLANNER_"
_OF_OTHERS = ("cache_dir",)
"""What the planner itself reads under the same prefix."""
_NEAR = 0.85
"""From which a name is taken for a misspelt one: an orchestrator sets names such as PLANNER_SERVICE_HOST itself."""
_LONGEST = 60


class Settings(BaseSettings):
    """The service's limits; each has a default that suits one small machine."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

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
    """Held to be given again; one counts again for each 200 kB that it takes."""
    cache_seconds: float = Field(default=10 * _MINUTE, gt=0)
    """After which a model of the Hub is looked up anew."""
    redis_url: SecretStr | None = None
    """Of a Redis that several replicas share their answers in, such as redis://redis:6379/0."""
    api_keys: Annotated[list[SecretStr], NoDecode] = []
    """Of which a request must have one, with commas between or as JSON; none: it needs none."""
    rate: str = ""
    """Of requests per client, such as 60/minute; "" for any."""
    searches: int = Field(default=0, ge=0)
    """Of a client at once, in each process that answers, a batch being one; 0 for any."""
    jobs: int = Field(default=64, ge=0)
    """Of /v1/jobs that go on, in each process that answers; one more is answered 429."""
    job_seconds: float = Field(default=10 * _MINUTE, gt=0)
    """For the plan of one of them."""
    logs: Literal["json", "text"] = "json"
    trusted_hosts: Annotated[list[str], NoDecode] = ["*"]
    """That a request may name as its host, with commas between or as JSON."""

    origins: Annotated[list[str], NoDecode] = []
    """Whose pages may ask from a browser, such as https://wiki.example.org; with commas between or as JSON."""

    @field_validator("api_keys", "trusted_hosts", "origins", mode="before")
    @classmethod
    def _is_a_list(cls, said: object) -> object:
        """Return the entries of a text.

        Raises:
            ValueError: it begins as JSON does and is none, or has an empty entry.
        """
        entries = _entries(said) if isinstance(said, str) else said
        if isinstance(entries, list) and "" in entries:
            raise ValueError("should have no empty entry")
        return entries

    @field_validator("trusted_hosts")
    @classmethod
    def _are_hosts(cls, hosts: list[str]) -> list[str]:
        """Refuse a wildcard that is not the first part of a name.

        Raises:
            ValueError: there is one.
        """
        for host in hosts:
            if host != "*" and "*" in host.removeprefix("*."):
                raise ValueError("should be hosts, such as planner.example.org or *.example.org")
        return hosts

    @field_validator("rate")
    @classmethod
    def _is_a_rate(cls, said: str) -> str:
        """Refuse at the start what no limit could be read from.

        Raises:
            ValueError: it is no rate.
        """
        try:
            return said if not said or parse(said) else ""
        except ValueError:
            raise ValueError("should be a rate, such as 60/minute") from None


def read_settings() -> Settings:
    """Return what the environment says.

    Raises:
        SystemExit: it says what cannot be, or a name that is nearly one of these: a line for each.
    """
    wrong = list(_misspelt(os.environ))
    try:
        settings = Settings()
    except ValidationError as error:
        wrong += _faults(error)
    if wrong:
        raise SystemExit("\n".join(wrong))
    return settings


def _entries(text: str) -> object:
    if not text.lstrip().startswith("["):
        return [entry.strip() for entry in text.split(",")]
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("should be a list in JSON, or entries with commas between") from None


def _misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    known = (*Settings.model_fields, *_OF_OTHERS)
    for name in sorted(environment):
        short = name.lower().removeprefix(_PREFIX.lower())
        if name.upper().startswith(_PREFIX) and short not in known:
            for near in get_close_matches(short[:_LONGEST], known, n=1, cutoff=_NEAR):
                yield f"{name[:_LONGEST]} is no setting: did you mean {_PREFIX}{near.upper()}?"


def _faults(error: ValidationError) -> Iterator[str]:
    """Yield what is wrong with each value, and the value where it is no secret."""
    for each in error.errors(include_context=False, include_url=False):
        field = str(each["loc"][0])
        said = each["msg"].removeprefix("Value error, ").removeprefix("Input ")
        yield f"{_PREFIX}{field.upper()} {said}{_given(field, each['input'])}"


def _given(field: str, value: Any) -> str:
    is_secret = "SecretStr" in str(Settings.model_fields[field].annotation)
    return "" if is_secret else f", not {str(value)[:_LONGEST]!r}"
