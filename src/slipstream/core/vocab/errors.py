"""Errors in one format: the op as the user wrote it, the operands, the rule, the mend."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.records import TensorBase

# What stands between the rule that failed and the call.
CALL = "\n  in "


class OutOfMemoryError(RuntimeError):
    """No block of memory could be found for a tensor."""


class MixedDeviceError(RuntimeError):
    """Operands lie on several devices."""


class LinAlgError(RuntimeError):
    """A matrix does not allow what was asked: it is singular, or not positive."""


class SyncError(RuntimeError):
    """The host would have waited for a device where that is refused."""


class CaptureError(RuntimeError):
    """The host would have waited for a device where a stream of it captures a graph."""


class NotSupported(NotImplementedError):
    """What was asked for is known and does not exist here."""


def describe_value(value: Any) -> str:
    """A tensor as dtype[shape]@device; anything else by its repr, shortened."""
    if isinstance(value, TensorBase):
        return repr(value.spec)
    if isinstance(value, (list, tuple)) and any(isinstance(v, TensorBase) for v in value):
        return "[" + ", ".join(describe_value(v) for v in value) + "]"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe_call(name: str, arguments: dict[str, Any]) -> str:
    """``add(self: float32[2]@cpu, other: 3)``."""
    inside = ", ".join(f"{key}: {describe_value(value)}" for key, value in arguments.items())
    return f"{name}({inside})"


def explain(name: str, arguments: dict[str, Any], rule: str, mend: str = "") -> str:
    """The text of an error: the rule that failed, the call with its operands, the mend."""
    text = f"{rule}{CALL}{describe_call(name, arguments)}"
    return f"{text}\n  mend: {mend}" if mend else text


def is_refusal(failure: BaseException) -> bool:
    """Whether an error is one of ours about a call, in the common format."""
    return bool(failure.args) and isinstance(failure.args[0], str) and CALL in failure.args[0]


def late(failure: Exception) -> Exception:
    """The error, marked as one of work that was launched earlier: the call at hand only waited."""
    failure.late = True  # type: ignore[attr-defined]
    return failure


def is_late(failure: BaseException) -> bool:
    """Whether an error tells of work that was launched earlier."""
    return bool(getattr(failure, "late", False))


def restate(failure: Exception, name: str, arguments: dict[str, Any], anew: bool = False) -> None:
    """Let an error in the common format name this call; with ``anew``, one in any format.

    What a device tells late is no fault of this call.
    """
    if is_late(failure):
        return
    if is_refusal(failure):
        rule, _, rest = failure.args[0].partition(CALL)
        tail = "".join(f"\n{line}" for line in rest.split("\n")[1:])
    elif anew and failure.args:
        rule, tail = str(failure.args[0]), ""
    else:
        return
    failure.args = (explain(name, arguments, rule) + tail, *failure.args[1:])


def shortened(failure: Exception) -> Exception:
    """The error without the frames between the door and the check that raised it.

    Its text says what these would; other errors keep every frame, for they are faults of ours.
    """
    told = is_refusal(failure) or is_late(failure)
    return failure.with_traceback(None) if told else failure
