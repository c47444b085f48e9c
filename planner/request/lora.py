"""The adapters that a recipe asks for: their wire schema."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.parallel.lora import DEFAULT_RANK, LoraWish


class LoraRequest(BaseModel):
    """Adapters beside frozen weights, in PEFT's words."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    rank: int = Field(default=DEFAULT_RANK, ge=1, le=4096)
    targets: Literal["all-linear"] | list[str] | None = Field(
        default=None, min_length=1, max_length=64, examples=[["q_proj", "v_proj"]]
    )
    alpha: float | None = Field(default=None, gt=0, le=1e6)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    bits: Literal[4, 8] = 4
    double_quantization: bool = False
    dtype: Literal["fp32", "16-bit"] | None = None

    def wish(self) -> LoraWish:
        """Return what was given."""
        return LoraWish(**self.model_dump(exclude_unset=True))
