"""Flags of products and attention on CUDA."""

from __future__ import annotations

from typing import Any

from slipstream.core.api.precision import allow_tf32
from slipstream.core.vocab.settings import settings

__all__ = ["cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
           "enable_mem_efficient_sdp", "flash_sdp_enabled", "is_built", "math_sdp_enabled",
           "matmul", "mem_efficient_sdp_enabled"]

# Flags of products that change nothing: sums are float32 whatever they say.
REDUCTIONS = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction",
              "allow_fp16_accumulation")


class Matmul:
    """How products are computed.

    ``allow_tf32``: float32 products may be computed in TF32, about three digits, several times as
    fast; False by default.  ``fp32_precision``: the same as "tf32" or "ieee".
    ``allow_bf16_reduced_precision_reduction`` and its kin are kept and change nothing: float16 and
    bfloat16 are summed in float32.
    """

    def __init__(self) -> None:
        self.flags = dict.fromkeys(REDUCTIONS, False)

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may be computed in TF32."""
        return settings.allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        allow_tf32(allowed)

    @property
    def fp32_precision(self) -> str:
        """``tf32`` or ``ieee``."""
        return "tf32" if settings.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("tf32", "ieee", "none"):
            raise RuntimeError(f"Invalid precision {precision!r} of products on CUDA: one of "
                               "'tf32', 'ieee' and 'none'")
        allow_tf32(precision == "tf32")

    def __getattr__(self, name: str) -> Any:
        if name in REDUCTIONS:
            return self.flags[name]
        raise AttributeError(f"Unknown attribute {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in REDUCTIONS:
            self.flags[name] = bool(value)
        elif name in ("flags", "allow_tf32", "fp32_precision"):
            object.__setattr__(self, name, value)
        else:
            raise AttributeError(f"Unknown attribute {name}")


matmul = Matmul()
# Attention has one road here; the flags are kept for those who ask.
attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """Whether CUDA is a part of this installation: always; a driver need not be there."""
    return True


def flash_sdp_enabled() -> bool:
    """Whether the flag is set; attention has one road."""
    return attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Set the flag, which changes nothing."""
    attention["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether the flag is set; attention has one road."""
    return attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Set the flag, which changes nothing."""
    attention["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """Whether the flag is set; attention has one road."""
    return attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Set the flag, which changes nothing."""
    attention["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether the flag is set; attention has one road."""
    return attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Set the flag, which changes nothing."""
    attention["cudnn"] = bool(enabled)
