"""The MLP's training step beside JAX: one compiled function that takes over its parameters."""

from __future__ import annotations

import importlib
import os
from typing import Any

import slipstream as ss
from gpu.models import Step, mlp_step
from gpu.timing import Row, loop, ours_wait, ratio

LAYERS, WIDTH, BATCH = 8, 256, 64
RATE, FIRST, SECOND, SMALLEST = 1e-3, 0.9, 0.999, 1e-8
JAX_BAR = 0.40


def jax() -> list[Row]:
    """MLP 8 x 256, batch 64, Adam: our eager step beside JAX's jit."""
    ours = loop(mlp_step(ss), ours_wait)[1]
    try:
        step, wait = compiled()
    except ImportError as missing:
        print(f"no row beside JAX: {missing}")
        return []
    peer = loop(step, wait)[1]
    return [ratio("MLP 8 x 256, batch 64, Adam: one eager step / JAX jit, parameters donated", ours,
                  peer, JAX_BAR)]


def compiled() -> tuple[Step, Step]:
    """JAX's step, compiled at its first call, and what waits for it.

    ImportError where JAX is not installed.
    """
    # The card is shared with us.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    lib: Any = importlib.import_module("jax")
    numpy: Any = importlib.import_module("jax.numpy")
    keys = lib.random.split(lib.random.key(0), LAYERS + 2)
    bound = WIDTH ** -0.5
    parameters = [(lib.random.uniform(key, (WIDTH, WIDTH), minval=-bound, maxval=bound),
                   numpy.zeros(WIDTH)) for key in keys[:LAYERS]]
    x, y = (lib.random.normal(key, (BATCH, WIDTH)) for key in keys[LAYERS:])

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        for weight, bias in parameters:
            x = lib.nn.relu(x @ weight + bias)
        return ((x - y) ** 2).mean()

    def update(state: Any, x: Any, y: Any) -> Any:
        parameters, first, second, count = state
        loss, gradients = lib.value_and_grad(loss_of)(parameters, x, y)
        count = count + 1
        each = lib.tree.map
        first = each(lambda m, g: FIRST * m + (1 - FIRST) * g, first, gradients)
        second = each(lambda v, g: SECOND * v + (1 - SECOND) * g * g, second, gradients)
        parameters = each(lambda p, m, v: p - RATE * (m / (1 - FIRST ** count)) / (
            numpy.sqrt(v / (1 - SECOND ** count)) + SMALLEST), parameters, first, second)
        return (parameters, first, second, count), loss

    run = lib.jit(update, donate_argnums=0)
    nothing = lib.tree.map(numpy.zeros_like, parameters)
    held = [(parameters, nothing, lib.tree.map(numpy.zeros_like, parameters),
             numpy.zeros((), "float32")), None]

    def step() -> Any:
        held[:] = run(held[0], x, y)
        return held[1]

    return step, lambda: lib.block_until_ready(held)
