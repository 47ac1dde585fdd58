"""The ``delay`` device: CPU memory whose work runs only at waits.

It exists for tests: nothing in the core may assume that work is done when a call returns.  Two
streams hold the work in order; at a wait they are run in turn, in an order that a seed decides,
never breaking the order within a stream.  An edge (`wait_stream`) keeps order across streams.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any

from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.optional import standard
from slipstream.core.vocab.records import Backend, Memory, Plan, TensorBase, owners
from slipstream.core.vocab.settings import settings


class DelayStream:
    """A queue of work of the delay device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[Any] = deque()

    def wait_stream(self, other: DelayStream) -> None:
        """Let later work here start only after what ``other`` holds now."""
        self.queue.append(("after", other, len(other.queue) + other.done))

    done = 0


class DelayBackend(Backend):
    """Queues plans; runs them on the CPU's kernels when somebody waits."""

    def __init__(self, name: str, memory: Memory) -> None:
        self.name = name
        self.memory = memory
        self.has_data = True
        self.on_host = True
        self.immediate = False
        self.owner = len(owners)
        owners.append(memory)
        self.streams = (DelayStream(0), DelayStream(1))
        self.failure: BaseException | None = None

    @cached_property
    def order(self) -> Any:
        """What chooses the stream that runs next."""
        return standard("random").Random(settings.delay_seed)

    def stream(self) -> DelayStream:
        """The running thread's current stream."""
        chosen = modes.current().stream
        return chosen if isinstance(chosen, DelayStream) else self.streams[0]

    def submit(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Queue the plan; the queue keeps the storages alive, not the tensors."""
        bare = tuple(_bare(operand) for operand in operands)
        self.stream().queue.append((plan, bare, numbers))

    def wait(self) -> None:
        """Run everything that is queued; an error of a kernel is raised here."""
        while True:
            ready = [stream for stream in self.streams if self._ready(stream)]
            if not ready:
                break
            self._run(self.order.choice(ready))
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def _ready(self, stream: DelayStream) -> bool:
        while stream.queue and stream.queue[0][0] == "after":
            _, other, place = stream.queue[0]
            if other.done < place:
                return False
            stream.queue.popleft()
            stream.done += 1
        return bool(stream.queue)

    def _run(self, stream: DelayStream) -> None:
        plan, operands, numbers = stream.queue.popleft()
        stream.done += 1
        try:
            plan.kernel.run(plan, operands, numbers)
        except Exception as failure:
            # The first error is reported at the wait; later work still runs.
            self.failure = self.failure or failure


def _bare(tensor: TensorBase) -> TensorBase:
    bare = TensorBase()
    bare.spec = tensor.spec
    bare.storage = tensor.storage
    bare.offset = tensor.offset
    return bare
