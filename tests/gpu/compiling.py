"""What NVRTC is asked for by tests that read what its assembler says."""

from __future__ import annotations

from typing import Any

# NVRTC keeps results since this version: of a text that it knows the assembler says nothing.
KEEPS = (12, 9)


def uncached(nvrtc: Any) -> list[bytes]:
    """The option that has a text compiled anew, where there is one."""
    _, *version = nvrtc.nvrtcVersion()
    return [b"--no-cache"] if tuple(version) >= KEEPS else []
