"""The older names of the profiler: `profile` with ``enabled``, and `record_function`."""

from __future__ import annotations

from typing import Any

from slipstream.profiler import EventList, FunctionEventAvg, ProfilerActivity, record_function
from slipstream.profiler.profiling import profile as _profile

__all__ = ["profile", "record_function"]


class profile(_profile):  # noqa: N801
    """`slipstream.profiler.profile` with the older signature; nothing where not ``enabled``."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False,
                 use_device: str | None = None, record_shapes: bool = False,
                 with_flops: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_modules: bool = False) -> None:
        wanted = {ProfilerActivity.CPU}
        if use_cuda or use_device == "cuda":
            wanted.add(ProfilerActivity.CUDA)
        super().__init__(activities=wanted, record_shapes=record_shapes,
                         profile_memory=profile_memory, with_stack=with_stack)
        self.enabled = enabled

    def start(self) -> None:
        """Begin, where it is enabled."""
        if self.enabled:
            super().start()

    @property
    def function_events(self) -> EventList:
        """Every event."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in µs."""
        return self.events().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg | None:
        """Everything as one."""
        return self.events().total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **widths: Any) -> str:
        """The table of events; see `EventList.table`."""
        return self.events().table(sort_by, row_limit, **widths)
