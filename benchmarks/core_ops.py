"""What is timed: statements over tensors, the same for every torch-like module.

As a worker (`--module torch` or `--module slipstream`) it answers requests, a JSON object a line:
{"row": name, "number": n} runs the row's statement n times, REPEATS times over, and answers with
the fastest of these, {"ns": per call}.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
import timeit
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

Space = dict[str, Any]
REPEATS = 5


class Row(NamedTuple):
    """One timed statement, the names it uses, and whether it runs under no_grad."""

    statement: str
    space: Callable[[ModuleType], Space]
    no_grad: bool = False


def vectors(module: ModuleType, count: int = 8) -> Space:
    """Return small operands of the pointwise rows."""
    a = module.arange(1, count + 1, dtype=module.float32)
    names = {"m": module, "F": module.nn.functional}
    return names | {"a": a, "b": a * 0.5, "c": module.zeros(count), "p": a > 3.0}


def one_element(module: ModuleType) -> Space:
    """Return operands of one element."""
    return vectors(module, 1)


def with_gradient(module: ModuleType) -> Space:
    """Return operands that require gradients."""
    space = vectors(module)
    return space | {"a": space["a"].requires_grad_(), "b": space["b"].requires_grad_()}


def matrices(module: ModuleType) -> Space:
    """Return operands of the matrix, image and index rows, 8 elements the largest of each."""
    space = vectors(module)
    a = space["a"]
    return space | {
        "x": a.view(2, 4),
        "y": a.view(4, 2),
        "z": module.zeros(2, 2),
        "image": a.view(1, 1, 2, 4),
        "weight": module.ones(1, 1, 2, 2),
        "rows": module.tensor([3, 0, 2, 1]),
        "index": module.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]),
        "classes": module.tensor([1, 3]),
        "target": module.zeros(8),
    }


def large(module: ModuleType) -> Space:
    """Return operands of ten million float32."""
    return {"a": module.ones(10_000_000), "b": module.ones(10_000_000)}


def training(module: ModuleType) -> Space:
    """Return a step: 8 x (Linear 256, ReLU), batch 64, mean square, AdamW's defaults."""
    module.manual_seed(0)
    nn = module.nn
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = module.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = module.randn(64, 256), module.randn(64, 256)

    def step() -> None:
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return {"step": step}


HEADLINES = {
    "add": Row("a + b", one_element, no_grad=True),
    "mul_number": Row("a * 2.0", vectors),
    "add_grad": Row("a + b", with_gradient),
    "view": Row("a.view(2, 4)", vectors),
    "relu": Row("a.relu()", vectors),
    "sum": Row("a.sum()", vectors),
    "mlp_step": Row("step()", training),
    "add_large": Row("a + b", large, no_grad=True),
}
POINTWISE = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "neg": "-a",
    "exp": "a.exp()", "log": "a.log()", "tanh": "a.tanh()", "relu": "a.relu()",
    "gelu": "F.gelu(a)", "pow": "a ** 2", "pow_tensor": "a ** b", "where": "m.where(p, a, b)",
    "eq": "a == b", "lt": "a < b", "add_": "a.add_(0.0)", "add_out": "m.add(a, b, out=c)",
    "sum": "a.sum()", "mean": "a.mean()", "amax": "a.amax()", "argmax": "a.argmax()",
    "softmax": "a.softmax(0)", "log_softmax": "a.log_softmax(0)",
    "clone": "a.clone()", "contiguous": "a.contiguous()", "to": "a.to(m.float64)",
    "view": "a.view(2, 4)", "reshape": "a.reshape(2, 4)", "squeeze": "a.squeeze(0)",
    "ones": "m.ones(8)", "zeros": "m.zeros(8)", "full": "m.full((8,), 2.0)",
    "arange": "m.arange(8)", "rand": "m.rand(8)", "randn": "m.randn(8)",
}
SHAPED = {
    "sum_dim": "x.sum(1)", "mean_dim": "x.mean(1)", "amax_dim": "x.amax(1)",
    "matmul": "x @ y", "addmm": "m.addmm(z, x, y)", "linear": "F.linear(x, x)",
    "conv2d": "F.conv2d(image, weight)", "max_pool2d": "F.max_pool2d(image, 2)",
    "embedding": "F.embedding(rows, y)", "gather": "x.gather(1, index)",
    "index_put": "y.index_put((classes,), z)", "getitem_index": "y[rows]",
    "getitem_slice": "x[:, 1:3]", "getitem_int": "x[1]", "cat": "m.cat((a, b))",
    "permute": "x.permute(1, 0)", "transpose": "x.transpose(0, 1)", "expand": "a.expand(3, 8)",
    "copy_": "target.copy_(a)", "cross_entropy": "F.cross_entropy(x, classes)",
}
OPS = {name: Row(text, vectors) for name, text in POINTWISE.items()}
OPS |= {name: Row(text, matrices) for name, text in SHAPED.items()}
ROWS = HEADLINES | {f"op {name}": row for name, row in OPS.items()}


class Worker:
    """Times rows in this process, under one module."""

    def __init__(self, module: ModuleType, rows: dict[str, Row]) -> None:
        self.module = module
        self.rows = rows
        self.timers: dict[str, timeit.Timer] = {}

    def time(self, name: str, number: int) -> float:
        """Return the nanoseconds a call takes, over ``number`` calls: the fastest of REPEATS."""
        row = self.rows[name]
        if name not in self.timers:
            self.timers[name] = timeit.Timer(row.statement, globals=row.space(self.module))
        with self.module.no_grad() if row.no_grad else contextlib.nullcontext():
            return min(self.timers[name].repeat(REPEATS, number)) / number * 1e9

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; what goes wrong is an answer too."""
        try:
            if "first" in request:
                return {"samples": FIRST_CALLS[request["first"]](self.module)}
            return {"ns": self.time(request["row"], request["number"])}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:200]}


def first_calls(operands: list[tuple[Callable[..., Any], Any, Any]]) -> list[int]:
    """Return the nanoseconds of each call, everything included that a first call does."""
    samples = []
    for function, a, b in operands:
        started = time.perf_counter_ns()
        function(a, b)
        samples.append(time.perf_counter_ns() - started)
    return samples


def new_shapes(module: ModuleType) -> list[int]:
    """Time ``a + b`` on shapes not met before, of one and two dims, the recipes being known."""
    shapes = [shape for n in range(100, 300) for shape in ((n,), (n // 8, 3 + n % 8))]
    for shape in ((40,), (5, 8), (41,), (6, 9)):
        module.ones(shape) + module.ones(shape)
    return first_calls([(module.add, module.ones(s), module.ones(s)) for s in shapes])


def recipe_calls(module: ModuleType, shapes: tuple) -> list[tuple[Callable[..., Any], Any, Any]]:
    """Return calls of add, sub and mul on every pair of six dtypes, for each shape."""
    names = ("uint8", "int16", "int32", "int64", "float32", "float64")
    dtypes = [getattr(module, name) for name in names]
    functions = (module.add, module.sub, module.mul)
    return [
        (function, module.ones(shape, dtype=first), module.ones(shape, dtype=second))
        for function, shape, first, second in product(functions, shapes, dtypes, dtypes)
    ]


def new_dtypes(module: ModuleType) -> list[int]:
    """Time pairs of dtypes that the op has not met before."""
    return first_calls(recipe_calls(module, ((6,),)))


def new_ranks(module: ModuleType) -> list[int]:
    """Time ranks that the op has not met before, for pairs of dtypes that it has."""
    first_calls(recipe_calls(module, ((6,),)))
    return first_calls(recipe_calls(module, ((2, 3), (1, 2, 3))))


FIRST_CALLS = {"new_shape": new_shapes, "new_dtypes": new_dtypes, "new_rank": new_ranks}


def main(rows: dict[str, Row]) -> None:
    """Answer requests for ``rows`` until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", required=True)
    worker = Worker(importlib.import_module(parser.parse_args().module), rows)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(ROWS)
