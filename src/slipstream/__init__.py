"""Slipstream: a tensor runtime with PyTorch's names and semantics, at the speed of a CUDA graph."""

from __future__ import annotations

from typing import Any

# First: it decides whether compiled modules are used.
from slipstream import _uncompiled
from slipstream.core import wiring
from slipstream.core.api import namespace
from slipstream.core.api.namespace import *  # noqa: F403
from slipstream.core.vocab.optional import load as _load
from slipstream.core.vocab.settings import settings as _settings

__version__ = "0.1.0"

# Packages that are loaded when they are first used.
_LATER = ("amp", "autograd", "backends", "cli", "cuda", "library", "linalg", "nn", "optim",
          "profiler", "random", "return_types", "serialization", "special", "testing", "utils",
          "version")
# Names that live in such a package.
_FUNCTIONAL = (
    "adaptive_max_pool1d alpha_dropout avg_pool1d bilinear channel_shuffle conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity "
    "ctc_loss dropout1d embedding_bag feature_alpha_dropout hinge_embedding_loss kl_div "
    "margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool3d pairwise_distance "
    "pixel_shuffle pixel_unshuffle poisson_nll_loss rrelu triplet_margin_loss "
    "celu_ rrelu_ selu_ threshold_").split()
_ELSEWHERE = {"autocast": "amp", "GradScaler": "amp",
              "save": "serialization", "load": "serialization",
              "memory_report": "core.api.memory", "no_sync": "core.api.waits",
              "sync_report": "core.api.waits",
              **dict.fromkeys(("explain", "describe_plan", "time_shares"), "core.api.explain"),
              **dict.fromkeys(_FUNCTIONAL, "nn.functional")}

__all__ = [*namespace.__all__, *_LATER, *_ELSEWHERE]


def __getattr__(name: str) -> Any:
    """Load a package, or a name of one, at its first use."""
    if name in _LATER:
        return _load(name)
    if name in _ELSEWHERE:
        return getattr(_load(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'slipstream' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_CORE = (_uncompiled, wiring)

if _settings.debug:
    _load("core.api.ladder").install()
