"""Profiling in PyTorch's shape, with a page of text that says what a program is bound by.

``with ss.profiler.profile() as p: ...`` then ``print(p.report())``; or from the command line,
``slipstream profile script.py``.
"""

from __future__ import annotations

from slipstream.profiler.averages import EventList, FunctionEvent, FunctionEventAvg
from slipstream.profiler.diagnosis import Diagnosis, diagnose
from slipstream.profiler.page import page, summary
from slipstream.profiler.profiling import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "Diagnosis", "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction",
    "ProfilerActivity", "diagnose", "page", "profile", "record_function", "schedule", "summary",
    "supported_activities", "tensorboard_trace_handler",
]
