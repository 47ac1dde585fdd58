"""The seeds that stand for generators in captured graphs."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

# The graphs by the seeds that stood for their generators: a gradient that is captured by itself
# draws again what its forward graph drew.
known_tokens: WeakValueDictionary[int, Any] = WeakValueDictionary()
# Those of captures that go on.
open_tokens: set[int] = set()
