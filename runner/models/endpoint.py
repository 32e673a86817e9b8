"""Where a model is and which key opens it, as a job says it: checked, as it is written to the run's files."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def address(value: str) -> str:
    """An address that a job may hold. Raises ValueError for any other."""
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError(f"base_url must look like https://host/v1, not {value!r}")
    if (
        parts.username
        or parts.password
        or re.search(r"(^|&)[^=&]*(key|token|secret|sig)[^=&]*=", parts.query, re.I)
    ):
        raise ValueError(
            "base_url is written to the run's files, so it can hold no user, password or key; put the key into "
            "an environment variable and name that in key_env"
        )
    return value


def variable(value: str) -> str:
    """The name of an environment variable. Raises ValueError for what looks like a key."""
    if value and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "key_env is the name of an environment variable that holds the key, not the key itself"
        )
    return value


class Endpoint(BaseModel):
    """One of several places, or keys, of the same model. What is unset is the model's."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    base_url: Annotated[str, AfterValidator(address)] | None = Field(None, description="Its address.")
    key_env: Annotated[str, AfterValidator(variable)] | None = Field(
        None, description="Environment variable that holds its key."
    )
    weight: float = Field(1.0, gt=0, description="Its share of the calls, relative to the others'.")


def addresses(endpoints: Any) -> list[str]:
    """The endpoints' addresses as a job gives them, "" where one has none."""
    if not isinstance(endpoints, list | tuple):
        return []
    found = [e.get("base_url") if isinstance(e, dict) else getattr(e, "base_url", None) for e in endpoints]
    return [each if isinstance(each, str) else "" for each in found]
