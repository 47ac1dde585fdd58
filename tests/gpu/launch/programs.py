"""Random programs of the CUDA road: made from a seed, free of races, run on any devices."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import slipstream as ss

SIZES = (16, 36, 300)
STREAMS = 3
DEVICES = 2
ROUNDS = 2


class Step(NamedTuple):
    """What happens: on a stream of a device, from tensors to a new one (or none)."""

    kind: str
    device: int
    stream: int
    sources: tuple[int, ...] = ()
    result: int = -1
    number: int = 0




def replayed(work: Callable[[], Any], device: Any) -> Any:
    """Work that runs twice: on a card captured on the current stream and replayed."""
    if device.type == "cpu":
        work()
        return work()
    graph = ss.cuda.CUDAGraph()
    graph.capture_begin()
    result = work()
    graph.capture_end()
    graph.replay()
    graph.replay()
    # The graph goes while its replays may still run.
    return result + 0.0


# Each makes a new tensor from tensors of one size and a small number.
FRESH: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, n: x + y, "mul": lambda x, y, n: x * y, "sub": lambda x, y, n: x - y,
    "maximum": lambda x, y, n: ss.maximum(x, y),
    "scale": lambda x, n: x * (0.5 + n), "tanh": lambda x, n: ss.tanh(x),
    "relu": lambda x, n: ss.relu(x - 0.25), "softmax": lambda x, n: ss.softmax(x, -1),
    "center": lambda x, n: x - x.mean(), "total": lambda x, n: ss.tanh(x.sum()) + x,
    "rows": lambda x, n: x.view(-1, 4).sum(1, keepdim=True).expand(x.numel() // 4, 4).reshape(-1),
    "product": lambda x, n: (x.view(-1, 4) @ x.view(-1, 4)[:4]).reshape(-1),
    "turned": lambda x, n: (x.view(-1, 4).t() * 1.5).reshape(-1),
    "tail": lambda x, n: ss.cat([x[1:], x[:1]]),
    "stepped": lambda x, n: x[::2].repeat(2),
    "picked": lambda x, n: x[(x > 0).to(ss.int64)],
    "cast": lambda x, n: x.to(ss.float16).to(ss.float32),
    "captured": lambda x, n: replayed(lambda: ss.tanh(x) * (0.5 + n) - (x + n), x.device),
    "shared": lambda x, n: ss.from_dlpack(x) * 0.5,
}
# Each writes its first tensor, or a part of it.
WRITES: dict[str, Callable[..., Any]] = {
    "add_": lambda x, y, n: x.add_(y), "mul_": lambda x, n: x.mul_(0.75),
    "tail_": lambda x, n: x[1:].add_(1.0), "even_": lambda x, n: x[::2].zero_(),
    "copy_": lambda x, y, n: x.copy_(y), "half_": lambda x, y, n: x[:6].copy_(y[-6:]),
    "fill_": lambda x, n: x.view(-1, 4)[:, 1].fill_(float(n)),
    "captured_": lambda x, n: replayed(lambda: x.mul_(0.5).add_(x), x.device),
    "put_": lambda x, n: x.index_put_((ss.tensor([1, 5, 1]).to(x.device),),
                                      ss.tensor([1.0, 2.0, 3.0]).to(x.device)),
}
# Each lets somebody else see the tensor.
SIGHTS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x[0].item(), "numpy": lambda x: x.cpu().numpy().tobytes(),
    "pointer": lambda x: x.data_ptr() and None,
    "dlpack": lambda x: ss.from_dlpack(x).cpu().numpy().tobytes(),
}
TWO = {"add", "mul", "sub", "maximum", "add_", "copy_", "half_"}


class Maker:
    """Makes a program; it keeps the order of streams, so that every use waits for what it must.

    ``touched``: for each tensor the last (write, use) of each stream; ``covers``: for each stream
    how many steps of every other one are before its next.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.steps: list[Step] = []
        self.sizes: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self.touched: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        self.counts: dict[tuple[int, int], int] = {}
        self.covers: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        self.made = 0

    def make(self) -> list[Step]:
        """The steps: 20 to 60 of them, waits not counted."""
        for device in range(DEVICES):
            for _ in range(2):
                self.start(device)
        for _ in range(self.draw.randrange(20, 61)):
            self.add()
        return self.steps

    def start(self, device: int) -> None:
        """A tensor from nothing: counted up, or random."""
        stream = self.draw.randrange(STREAMS)
        size = self.draw.choice(SIZES)
        kind = self.draw.choice(("arange", "uniform"))
        self.keep(Step(kind, device, stream, (), self.made, size), size)

    def keep(self, step: Step, size: int) -> None:
        """A step that makes a tensor."""
        self.sizes[self.made], self.places[self.made] = size, step.device
        self.touched[self.made] = {}
        self.made += 1
        self.use(step, written=True)
        self.steps.append(step)

    def use(self, step: Step, written: bool) -> None:
        """Note which tensors a step reads and writes."""
        own = (step.device, step.stream)
        count = self.counts[own] = self.counts.get(own, 0) + 1
        target = step.result if step.result >= 0 else (step.sources[0] if written else -1)
        for tensor in (*step.sources, target):
            if tensor >= 0:
                write, _ = self.touched[tensor].get(own, (0, 0))
                self.touched[tensor][own] = (count if tensor == target else write, count)

    def order(self, step: Step, written: bool) -> None:
        """Wait for the streams whose work on a step's tensors comes before it."""
        own = (step.device, step.stream)
        for place, tensor in enumerate(step.sources):
            for other, (write, use) in self.touched[tensor].items():
                last = use if written and place == 0 else write
                if other != own and last > self.covers.setdefault(own, {}).get(other, 0):
                    self.wait(own, other)

    def wait(self, own: tuple[int, int], other: tuple[int, int]) -> None:
        """A step that lets a stream wait for another of its device."""
        kind = self.draw.choice(("wait stream", "event", "synchronize"))
        self.steps.append(Step(kind, own[0], own[1], (), -1, other[1]))
        known = self.covers.setdefault(own, {})
        known[other] = self.counts.get(other, 0)
        for third, count in self.covers.get(other, {}).items():
            known[third] = max(known.get(third, 0), count)

    def add(self) -> None:
        """One more step on tensors that live."""
        kind = self.draw.choices(("fresh", "write", "sight", "free", "move", "start"),
                                 (12, 6, 2, 4, 1, 2))[0]
        device = self.draw.randrange(DEVICES)
        alive = [each for each, place in self.places.items() if place == device]
        if kind == "start" or len(alive) < 2:
            self.start(device)
        elif kind == "free":
            self.free(self.draw.choice(alive))
        else:
            getattr(self, kind)(device, self.draw.choice(alive))

    def free(self, tensor: int) -> None:
        """Let a tensor go, whoever still uses it."""
        self.steps.append(Step("free", self.places.pop(tensor), 0, (tensor,)))

    def operands(self, name: str, first: int) -> tuple[int, ...]:
        """The tensors of an op: of one size and device."""
        if name not in TWO:
            return (first,)
        alike = [each for each, place in self.places.items()
                 if place == self.places[first] and self.sizes[each] == self.sizes[first]]
        return first, self.draw.choice(alike)

    def fresh(self, device: int, tensor: int) -> None:
        """An op that makes a tensor."""
        name = self.draw.choice(list(FRESH))
        step = Step(name, device, self.draw.randrange(STREAMS), self.operands(name, tensor),
                    self.made, self.draw.randrange(3))
        self.order(step, False)
        self.keep(step, self.sizes[tensor])

    def write(self, device: int, tensor: int) -> None:
        """An op in place."""
        name = self.draw.choice(list(WRITES))
        step = Step(name, device, self.draw.randrange(STREAMS), self.operands(name, tensor),
                    -1, self.draw.randrange(3))
        self.order(step, True)
        self.use(step, True)
        self.steps.append(step)

    def sight(self, device: int, tensor: int) -> None:
        """Something is read."""
        step = Step(self.draw.choice(list(SIGHTS)), device, self.draw.randrange(STREAMS),
                    (tensor,))
        self.order(step, False)
        self.use(step, False)
        self.steps.append(step)

    def move(self, device: int, tensor: int) -> None:
        """A copy on the other device."""
        stream = self.draw.randrange(STREAMS)
        read = Step("move", device, stream, (tensor,))
        self.order(read, False)
        self.use(read, False)
        self.steps.append(read)
        # A copy arrives on the other device's current stream, which is the default one.
        self.keep(Step("arrive", 1 - device, 0, (), self.made), self.sizes[tensor])


class Runner:
    """Runs programs; ``device`` is cuda or cpu, where all streams are one."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.names = [f"cuda:{n}" if self.cuda else "cpu" for n in range(DEVICES)]
        self.streams = [[ss.cuda.default_stream(n), *(ss.cuda.Stream(n) for _ in range(
            STREAMS - 1))] for n in range(DEVICES)] if self.cuda else []
        self.tensors: dict[int, Any] = {}
        self.moved: Any = None
        self.draws: list[Any] = []

    def run(self, steps: list[Step]) -> list[bytes]:
        """What a program gives: all that is seen, and every tensor that is left."""
        seen: list[bytes] = []
        self.draws = [ss.Generator(name).manual_seed(5 + n) for n, name in enumerate(self.names)]
        for _ in range(ROUNDS):
            for step in steps:
                self.step(step, seen)
            if self.cuda:
                ss.cuda.synchronize(0)
                ss.cuda.synchronize(1)
            seen += [self.tensors[each].cpu().numpy().tobytes() for each in sorted(self.tensors)]
            self.tensors.clear()
        return seen

    def step(self, step: Step, seen: list[bytes]) -> None:
        """Do one step on its stream."""
        if step.kind in ("wait stream", "event", "synchronize"):
            self.wait(step)
        elif step.kind == "free":
            del self.tensors[step.sources[0]]
        else:
            scope = (ss.cuda.stream(self.streams[step.device][step.stream]) if self.cuda
                     else contextlib.nullcontext())
            with scope:
                self.do(step, seen)

    def wait(self, step: Step) -> None:
        """Let a stream wait for another."""
        if not self.cuda:
            return
        mine = self.streams[step.device][step.stream]
        other = self.streams[step.device][step.number]
        if step.kind == "event":
            event = ss.cuda.Event()
            event.record(other)
            event.wait(mine)
        elif step.kind == "synchronize":
            other.synchronize()
        else:
            mine.wait_stream(other)

    def do(self, step: Step, seen: list[bytes]) -> None:
        """An op, or a look at a tensor."""
        values = [self.tensors[each] for each in step.sources]
        if step.kind in FRESH:
            self.tensors[step.result] = FRESH[step.kind](*values, step.number)
        elif step.kind in WRITES:
            WRITES[step.kind](*values, step.number)
        elif step.kind in SIGHTS:
            found = SIGHTS[step.kind](values[0])
            seen += [] if found is None else [np.float32(found).tobytes() if isinstance(
                found, float) else found]
        elif step.kind == "move":
            self.moved = values[0].to(self.names[1 - step.device])
        else:
            self.tensors[step.result] = self.begin(step)

    def begin(self, step: Step) -> Any:
        """A tensor from nothing, or from the other device."""
        if step.kind == "arrive":
            moved, self.moved = self.moved, None
            # On the stream that it arrives on.
            return moved + 0.0
        if step.kind == "arange":
            return ss.arange(float(step.number), device=self.names[step.device]) / step.number
        return ss.rand(step.number, device=self.names[step.device],
                       generator=self.draws[step.device])
