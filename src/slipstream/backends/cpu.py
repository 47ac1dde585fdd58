"""What the CPU offers."""

from __future__ import annotations

import numpy

__all__ = ["get_cpu_capability"]

# From the widest vectors down: the name that NumPy has for the extension, and PyTorch's.
KNOWN = (("AVX512_SKX", "AVX512"), ("X86_V4", "AVX512"), ("AVX2", "AVX2"), ("X86_V3", "AVX2"),
         ("SVE", "SVE256"))


def get_cpu_capability() -> str:
    """The widest vectors of this CPU: AVX512, AVX2, SVE256, or DEFAULT for what all have."""
    config = numpy.show_config(mode="dicts") or {}
    extensions = config.get("SIMD Extensions", {})
    found = {*extensions.get("found", ()), *extensions.get("baseline", ())}
    return next((name for extension, name in KNOWN if extension in found), "DEFAULT")
