"""What C++ calls back: tensors by number, ops by name, launches of kernels through the one door."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import slipstream as ss
from slipstream.core.api.cuda.hosting import address_in, tensor_at
from slipstream.core.vocab import dtypes

NONE, TENSOR, INTEGER, NUMBER, TRUTH, TEXT, LIST, POINTER, UNSIGNED = range(9)
WORD, INT, TEXT_TYPE = ctypes.c_int64, ctypes.c_int, ctypes.c_char_p
MOST_DIMS = 64
LIKE = ("empty_like", "zeros_like", "ones_like")


class Value(ctypes.Structure):
    """slip::value."""


Value._fields_ = [
    ("kind", WORD), ("integer", WORD), ("number", ctypes.c_double), ("text", TEXT_TYPE),
    ("items", ctypes.POINTER(Value)),
]


class Facts(ctypes.Structure):
    """slip::facts."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("numel", WORD), ("ndim", WORD), ("dtype", WORD),
        ("device", WORD), ("itemsize", WORD), ("contiguous", WORD),
        ("sizes", WORD * MOST_DIMS), ("strides", WORD * MOST_DIMS),
    )


WORDS = ctypes.POINTER(WORD)
# The callbacks of slip::table, in order.
CALLBACKS = (
    ("describe", ctypes.PYFUNCTYPE(INT, WORD, ctypes.POINTER(Facts))),
    ("release", ctypes.PYFUNCTYPE(None, WORD)),
    ("make", ctypes.PYFUNCTYPE(INT, TEXT_TYPE, WORDS, WORD, WORD, WORD, ctypes.c_double, WORDS)),
    ("method", ctypes.PYFUNCTYPE(INT, TEXT_TYPE, WORD, WORDS, WORD, WORDS)),
    ("launch", ctypes.PYFUNCTYPE(INT, TEXT_TYPE, WORDS, ctypes.POINTER(Value), WORD)),
    ("wait", ctypes.PYFUNCTYPE(INT)),
)


class Table(ctypes.Structure):
    """slip::table."""

    _fields_ = CALLBACKS


class Calls(threading.local):
    """Per thread: the error that a callback met, and the tensors of the running call."""

    error: BaseException | None = None
    seen: dict[int, Any]

    def __init__(self) -> None:
        self.seen = {}


class Bridge:
    """The tensors that C++ holds, by number, and the functions that it calls.

    ``kernels``: the kernels of the extension by name.
    """

    def __init__(self, kernels: dict[str, Any]) -> None:
        self.kernels = kernels
        self.held: dict[int, Any] = {}
        self.calls = Calls()
        self.next = 0
        self.table = Table(*(kind(self._guarded(getattr(self, name)))
                             for name, kind in CALLBACKS))

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A callback that keeps an exception for the caller: none may cross C++."""
        def guarded(*args: Any) -> int:
            try:
                function(*args)
            except BaseException as error:
                self.calls.error = error
                return 1
            return 0

        return guarded

    def hold(self, tensor: Any) -> int:
        """A number for a tensor."""
        self.next += 1
        self.held[self.next] = self.calls.seen[self.next] = tensor
        return self.next

    def begin(self) -> Any:
        """Start a call; returns what `end` takes."""
        before, self.calls.seen, self.calls.error = self.calls.seen, {}, None
        return before

    def end(self, before: Any) -> None:
        """End a call: its tensors that C++ let go are let go."""
        self.calls.seen = before

    # -- callbacks --

    def describe(self, number: int, facts: Any) -> None:
        """Fill in what a tensor is."""
        tensor = self.calls.seen[number]
        self.held[number] = tensor
        spec, out = tensor.spec, facts.contents
        if spec.device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"a C++ function takes tensors of the CPU or a card, not {spec!r}")
        # The CPU's bytes are read at once: what is to write them has to be done.
        out.data = tensor.data_ptr() if spec.device.type == "cpu" else address_in(tensor)
        out.numel, out.ndim, out.dtype = spec.numel, spec.ndim, spec.dtype.code
        out.device = -1 if spec.device.type == "cpu" else spec.device.index
        out.itemsize, out.contiguous = spec.itemsize, spec.contiguous
        out.sizes[:spec.ndim] = spec.shape
        out.strides[:spec.ndim] = spec.strides

    def release(self, number: int) -> None:
        """C++ lets a tensor go."""
        self.held.pop(number, None)

    def make(self, how: bytes, sizes: Any, ndim: int, dtype: int, *more: Any) -> None:
        """A new tensor: empty, zeros, ones or full."""
        device, fill, made = more
        shape = tuple(sizes[:ndim])
        options: dict[str, Any] = {"dtype": dtypes.ALL[dtype] if dtype >= 0 else None,
                   "device": "cpu" if device == -1 else "cuda" if device < 0 else f"cuda:{device}"}
        name = how.decode()
        tensor = ss.full(shape, fill, **options) if name == "full" else (
            getattr(ss, name)(shape, **options))
        made[0] = self.hold(tensor)

    def method(self, name: bytes, number: int, numbers: Any, count: int, made: Any) -> None:
        """What an op makes of a tensor and integers."""
        tensor, word, given = self.calls.seen[number], name.decode(), tuple(numbers[:count])
        if word in LIKE:
            result = getattr(ss, word)(tensor)
        elif word == "to_dtype":
            result = tensor.to(dtypes.ALL[given[0]])
        elif word in ("view", "reshape"):
            result = getattr(tensor, word)(given)
        else:
            result = getattr(tensor, word)(*given)
        made[0] = self.hold(result)

    def launch(self, name: bytes, shape: Any, arguments: Any, count: int) -> None:
        """Launch a kernel: pointers become the tensors that they point into."""
        word = name.decode()
        kernel = self.kernels.get(word)
        if kernel is None:
            known = ", ".join(self.kernels) or "none"
            raise ValueError(f"there is no kernel named {word}; there are: {known}")
        values = [self._argument(word, place, arguments[place]) for place in range(count)]
        kernel[tuple(shape[0:3]), tuple(shape[3:6]), shape[6]](*values)

    def wait(self) -> None:
        """Wait for the card."""
        ss.cuda.synchronize()

    def _argument(self, kernel: str, place: int, given: Any) -> Any:
        if given.kind == POINTER:
            dtype = dtypes.BY_NAME[given.text.decode()] if given.text else dtypes.uint8
            return self._pointed(f"argument {place + 1} of {kernel}", given.integer, dtype)
        return {NONE: None, NUMBER: given.number, TRUTH: bool(given.integer),
                UNSIGNED: given.integer % (1 << 64)}.get(given.kind, given.integer)

    def _pointed(self, what: str, address: int, dtype: Any) -> Any:
        for tensor in self.calls.seen.values():
            found = tensor_at(tensor, address, dtype)
            if found is not None:
                return found
        raise ValueError(f"{what} points into no tensor of this call: pass the data_ptr() of a "
                         "tensor that the function was given or made")
