"""``torch`` in a process that a script under ``slipstream run`` spawned: Slipstream again."""

from __future__ import annotations

from slipstream import torch_names

torch_names.install()
