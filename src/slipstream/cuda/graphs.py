"""Graphs of captured work, and functions and modules that run as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import slipstream as ss
from slipstream.core.api.cuda.graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing",
           "make_graphed_callables"]


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Put the tensors of nested tuples, lists and dicts into ``leaves``; what is around them."""
    if isinstance(value, ss.Tensor):
        leaves.append(value)
        return None
    if isinstance(value, dict):
        return dict, [(key, flatten(each, leaves)) for key, each in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [(0, flatten(each, leaves)) for each in value]
    raise TypeError("make_graphed_callables: arguments and results are tensors in tuples, lists "
                    f"and dicts, not {type(value).__name__}")


def rebuild(shape: Any, leaves: Any) -> Any:
    """The nested value again, of an iterator over its tensors."""
    if shape is None:
        return next(leaves)
    kind, parts = shape
    if kind is dict:
        return {key: rebuild(each, leaves) for key, each in parts}
    values = [rebuild(each, leaves) for _, each in parts]
    # A named tuple takes its fields one by one.
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def wants(tensors: Sequence[Any]) -> list[Any]:
    """The tensors that require a gradient."""
    return [each for each in tensors if each is not None and each.requires_grad]


def card_of(inputs: Sequence[Any], module: Sequence[Any]) -> Any:
    """The card to capture on: that of the inputs, else of a module's tensors; None for neither.

    Raises RuntimeError where they are on several.
    """
    cards = list(dict.fromkeys(each.device for each in (*inputs, *module) if each.is_cuda))
    if len(cards) > 1:
        raise RuntimeError(
            "make_graphed_callables: sample arguments, parameters and buffers are on "
            f"{' and '.join(map(str, cards))}; a graph is captured on one device\n"
            "  mend: move them to one, or graph a callable for each device")
    return cards[0] if cards else None


class Graphed:
    """A callable as two graphs with inputs of their own, forward and backward.

    What a call returns are copies, so that the next one overwrites nothing that somebody holds.
    ``turn`` counts the forward replays: backward needs what the last of them left.
    """

    def __init__(self, function: Callable[..., Any], sample: tuple[Any, ...], unused: bool) -> None:
        given: list[Any] = []
        self.function = function
        self.shape = flatten(sample, given)
        self.inputs = [each.detach().clone().requires_grad_(each.requires_grad)
                       for each in given]
        self.parameters = (tuple(function.parameters())
                           if isinstance(function, ss.nn.Module) else ())
        buffers = function.buffers() if isinstance(function, ss.nn.Module) else ()
        self.card = card_of(self.inputs, (*self.parameters, *buffers))
        self.unused = unused
        self.turn = 0
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()
        self.outputs: list[Any] = []
        self.out_shape: Any = None
        self.kept: list[Any] = []
        self.upstream: list[Any] = []
        self.gradients: list[Any] = []

    def call(self) -> list[Any]:
        """The function's results on the inputs of its own."""
        results: list[Any] = []
        self.out_shape = flatten(self.function(*rebuild(self.shape, iter(self.inputs))), results)
        return results

    def derive(self, outputs: list[Any], upstream: list[Any]) -> list[Any]:
        """The gradients of inputs and parameters, None where there is none."""
        inputs = [*self.inputs, *self.parameters]
        wanted = wants(inputs)
        if not (wanted and upstream):
            return [None] * len(inputs)
        found = iter(ss.autograd.grad(wants(outputs), wanted, grad_outputs=upstream,
                                      allow_unused=self.unused))
        return [next(found) if each.requires_grad else None for each in inputs]

    def warm_up(self, count: int) -> None:
        """Run both directions: plans are made and kernels compiled."""
        with ss.cuda.device(self.card):
            for _ in range(count):
                outputs = self.call()
                # What nobody has written is not read: a checker of memory would say so.
                self.derive(outputs, [ss.zeros_like(each) for each in wants(outputs)])

    def capture_forward(self, pool: Any) -> None:
        """Capture the function."""
        # A capture is on the current card, which may be another one.
        with ss.cuda.device(self.card), graph(self.forward_graph, pool):
            self.kept = self.call()
        self.outputs = [each.detach() for each in self.kept]
        self.differentiable = [each.requires_grad for each in self.kept]

    def capture_backward(self, pool: Any) -> None:
        """Capture its gradient, in the same memory; the history of the capture is let go of."""
        self.upstream = [ss.empty_like(each) for each in wants(self.kept)]
        if not self.upstream:
            # No result has a gradient: there is nothing to capture, and nobody will call `back`.
            self.kept = []
            return
        with ss.cuda.device(self.card), graph(self.backward_graph, pool):
            self.gradients = self.derive(self.kept, self.upstream)
        self.gradients = [None if each is None else each.detach() for each in self.gradients]
        self.kept = []

    def fill(self, targets: Sequence[Any], sources: Sequence[Any], what: str) -> None:
        """Copy into the graphs' own tensors; RuntimeError where a tensor is of another kind."""
        for place, (own, given) in enumerate(zip(targets, sources, strict=True)):
            kinds = [(each.dtype, tuple(each.shape), each.device) for each in (own, given)]
            if kinds[0] != kinds[1]:
                raise RuntimeError(
                    f"graphed callable: {what} {place} is {given.dtype}{list(given.shape)}@"
                    f"{given.device}, and was captured as {own.dtype}{list(own.shape)}@"
                    f"{own.device}\n  mend: call it with the sample's shapes, or capture again")
            own.detach().copy_(given)

    def run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """One forward replay; copies of the results."""
        self.fill(self.inputs, given, "argument")
        self.turn += 1
        self.forward_graph.replay()
        return tuple(each.clone() for each in self.outputs)

    def back(self, turn: int, upstream: Sequence[Any]) -> tuple[Any, ...]:
        """One backward replay; copies of the gradients."""
        if turn != self.turn:
            raise RuntimeError(
                "graphed callable: backward of a call that a later call of the same callable "
                "came after; what it kept for backward is overwritten\n"
                "  mend: run backward before the next call, or graph one callable for each")
        wanted = [each for each, known in zip(upstream, self.differentiable, strict=True) if known]
        self.fill(self.upstream, wanted, "gradient of result")
        self.backward_graph.replay()
        return tuple(None if each is None else each.clone() for each in self.gradients)

    def as_function(self) -> Callable[..., Any]:
        """The callable that replays; with the signature of the captured one."""
        owner = self

        class GraphedStep(ss.autograd.Function):
            """The two graphs as one step of the tape."""

            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                """Replay forward."""
                results = owner.run(given[:len(owner.inputs)])
                ctx.turn = owner.turn
                ctx.mark_non_differentiable(*[each for each, known in zip(
                    results, owner.differentiable, strict=True) if not known])
                return results

            @staticmethod
            @ss.autograd.function.once_differentiable
            def backward(ctx: Any, *upstream: Any) -> Any:
                """Replay backward."""
                return owner.back(ctx.turn, upstream)

        def graphed(*args: Any) -> Any:
            leaves: list[Any] = []
            if flatten(args, leaves) != owner.shape:
                raise RuntimeError("graphed callable: the arguments are nested in another way "
                                   "than the sample's")
            results = GraphedStep.apply(*leaves, *owner.parameters)
            given = results if isinstance(results, tuple) else (results,)
            return rebuild(owner.out_shape, iter(given))

        return graphed


def check_module(module: Any) -> None:
    """Raise RuntimeError for a module that cannot be captured."""
    if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
        raise RuntimeError("Modules must not have hooks registered at the time they are passed. "
                           "However, registering hooks on modules after passing them through "
                           "make_graphed_callables is allowed.")
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError("In any :class:`~torch.nn.Module` passed to "
                           ":func:`~make_graphed_callables`, only parameters may be trainable. "
                           "All buffers must have ``requires_grad=False``.")


def patched(module: Any, graphed: Callable[..., Any]) -> Any:
    """The module, whose forward replays while it is in the mode in which it was captured."""
    training, eager = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training != training or kwargs:
            return eager(*args, **kwargs)
        return graphed(*args)

    module.forward = forward
    return module


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3,
                           allow_unused_input: bool = False, pool: Any = None) -> Any:
    """Functions or modules whose forward and backward run as one graph launch each.

    ``callables``: one, or a tuple; ``sample_args``: for each a tuple of tensors with the shapes,
    dtypes, devices and requires_grad of all later calls.  The graphs have inputs of their own, into
    which arguments are copied, and results and gradients come as copies: nothing that somebody
    holds is overwritten.  A module's forward is replaced, and runs eagerly in the other mode of
    ``train()``.  ``pool``: memory to share with other graphs; then callables run in the order in
    which they are given.  The capture is on the card of the sample arguments, or of the module
    where they are on none.  Raises RuntimeError for modules with hooks or trainable buffers, and
    for tensors of several cards.
    """
    single = not isinstance(callables, tuple)
    each_callable = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    if len(each_callable) != len(samples):
        raise ValueError("make_graphed_callables: one tuple of sample arguments for each callable")
    for each in each_callable:
        if isinstance(each, ss.nn.Module):
            check_module(each)
    made = [Graphed(each, tuple(sample) if isinstance(sample, (tuple, list)) else (sample,),
                    allow_unused_input)
            for each, sample in zip(each_callable, samples, strict=True)]
    for graphed in made:
        graphed.warm_up(num_warmup_iters)
    pools = [graph_pool_handle() if pool is None else pool for _ in made]
    for graphed, own in zip(made, pools, strict=True):
        graphed.capture_forward(own)
    for graphed, own in reversed(list(zip(made, pools, strict=True))):
        graphed.capture_backward(own)
    found = tuple(
        patched(each, graphed.as_function()) if isinstance(each, ss.nn.Module)
        else graphed.as_function() for each, graphed in zip(each_callable, made, strict=True))
    return found[0] if single else found
