"""Bad input: an error of PyTorch's kind naming the operands; tensors unchanged, process alive."""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import slipstream as ss
from slipstream.core.catalog.table import table

F = ss.nn.functional
HUGE = 2**62

# (call, kind of error, what its text has to say); x is float32[2, 3], i int64[2, 3].
CASES = {
    "shapes": (lambda x, i: x + ss.ones(4), RuntimeError, r"float32\[2, 3\]@cpu.*float32\[4\]@cpu"),
    "matmul": (lambda x, i: x @ x, RuntimeError, r"float32\[2, 3\]@cpu"),
    "matmul of a number": (lambda x, i: x.matmul(3), TypeError, "must be Tensor, not int"),
    "devices": (lambda x, i: x + ss.ones(2, 3, device="delay"), RuntimeError,
                "same device.*cpu and delay"),
    "out on another device": (lambda x, i: ss.add(x, 1, out=x.to("delay")), RuntimeError,
                              r"in add\(.*out: float32\[2, 3\]@delay\) .*move self to"),
    "out of a compound on another device": (
        lambda x, i: ss.mm(x, x.t(), out=ss.empty(2, 2, device="delay")), RuntimeError,
        r"in mm\(.*out: float32\[2, 2\]@delay\).*move self"),
    "one of two outs on another device": (
        lambda x, i: ss.sort(x, out=(ss.empty(2, 3), ss.empty(2, 3, device="delay").long())),
        RuntimeError, r"in sort\(.*out: .*@delay"),
    "out of one place": (lambda x, i: ss.add(x, 1, out=ss.ones(1).expand(2, 3)), RuntimeError,
                         r"single memory location.*out: float32\[2, 3\]"),
    "out of integers": (lambda x, i: ss.add(x, 1, out=i), RuntimeError, r"out: int64\[2, 3\]"),
    "cat of devices": (lambda x, i: ss.cat([x, x.to("delay")]), RuntimeError, "same device"),
    "dim": (lambda x, i: x.sum(2), IndexError, "Dimension out of range"),
    "negative dim": (lambda x, i: x.sum(-3), IndexError, "Dimension out of range"),
    "double dim": (lambda x, i: x.sum((0, 0)), RuntimeError, "dim"),
    "dim of a wrong kind": (lambda x, i: x.sum(dim="a"), TypeError, "dim"),
    "softmax dim": (lambda x, i: x.softmax(5), IndexError, "Dimension out of range"),
    "float for dim": (lambda x, i: x.amax(1.5), TypeError, "dim"),
    "mean of integers": (lambda x, i: i.mean(), RuntimeError, "int64"),
    "in-place cast": (lambda x, i: i.add_(1.5), RuntimeError, "can't be cast"),
    "in-place broadcast": (lambda x, i: x[0].add_(x), RuntimeError, "doesn't match"),
    "in-place on expanded": (lambda x, i: ss.zeros(1).expand(3).add_(1), RuntimeError, "clone"),
    "out dtype": (lambda x, i: ss.add(x, 1.5, out=i), RuntimeError, "can't be cast"),
    "out of a wrong kind": (lambda x, i: ss.add(x, 1, out=3), TypeError, "out"),
    "negative bool": (lambda x, i: -(x > 0), RuntimeError, "bool"),
    "subtract bools": (lambda x, i: (x > 0) - (x > 0), RuntimeError, "bool"),
    "negative power": (lambda x, i: i ** -1, RuntimeError, "power"),
    "index": (lambda x, i: x[2], IndexError, "out of (range|bounds)"),
    "negative index": (lambda x, i: x[-3], IndexError, "out of (range|bounds)"),
    "too many indices": (lambda x, i: x[0, 0, 0], IndexError, "too many indices"),
    "float index": (lambda x, i: x[1.0], (IndexError, TypeError), "ind"),
    "float tensor index": (lambda x, i: x[x], IndexError, "ind"),
    "mask of a wrong shape": (lambda x, i: x[ss.ones(5) > 0], IndexError, "mask|shape"),
    "tensor index out of bounds": (lambda x, i: x[ss.tensor([0, 7])], IndexError, "7"),
    "string index": (lambda x, i: x["a"], (IndexError, TypeError), "ind"),
    "gather bounds": (lambda x, i: x.gather(1, i + 100), (RuntimeError, IndexError), "10"),
    "gather dtype": (lambda x, i: x.gather(1, x), (RuntimeError, TypeError), "int64"),
    "embedding bounds": (lambda x, i: F.embedding(i + 50, x), IndexError, "out of"),
    "embedding dtype": (lambda x, i: F.embedding(x, x), (RuntimeError, TypeError), "."),
    "view": (lambda x, i: x.view(4), RuntimeError, "size|shape"),
    "view of no size": (lambda x, i: x.view(-1, -1), RuntimeError, "-1"),
    "view of strides": (lambda x, i: x.t().view(6), RuntimeError, "view|reshape"),
    "expand": (lambda x, i: x.expand(5, 3), RuntimeError, "."),
    "expand rank": (lambda x, i: x.expand(3), RuntimeError, "."),
    "permute": (lambda x, i: x.permute(0, 0), RuntimeError, "."),
    "transpose": (lambda x, i: x.transpose(0, 7), IndexError, "Dimension out of range"),
    "cat shapes": (lambda x, i: ss.cat([x, x[:, :2]]), RuntimeError, "."),
    "cat of nothing": (lambda x, i: ss.cat([]), (RuntimeError, ValueError), "."),
    "cat of numbers": (lambda x, i: ss.cat([1, 2]), TypeError, "tuple of Tensors"),
    "cat of a tensor": (lambda x, i: ss.cat(x), TypeError, "tuple of Tensors"),
    "item": (lambda x, i: x.item(), RuntimeError, r"6 elements"),
    "bool": (lambda x, i: bool(x), RuntimeError, "ambiguous"),
    "len": (lambda x, i: len(x.sum()), TypeError, "0-d"),
    "iter": (lambda x, i: iter(x.sum()), TypeError, "0-d"),
    "None": (lambda x, i: x.mul(None), TypeError, "other"),
    "a list for a tensor": (lambda x, i: ss.add([1.0], x), TypeError, "self"),
    "a string": (lambda x, i: x + "a", TypeError, "."),
    "missing": (lambda x, i: ss.add(x), TypeError, "missing"),
    "too many": (lambda x, i: ss.exp(x, x, x), TypeError, "positional"),
    "unknown": (lambda x, i: ss.exp(x, nonsense=1), TypeError, "unexpected keyword"),
    "twice": (lambda x, i: ss.add(x, 1, other=2), TypeError, "multiple values"),
    "unhashable": (lambda x, i: x.sum(dim={}), TypeError, "argument"),
    "nested": (lambda x, i: x.permute([[0], [1]]), TypeError, "."),
    "approximate": (lambda x, i: F.gelu(x, approximate="nearly"), RuntimeError, "approximate"),
    "rounding": (lambda x, i: x.div(2, rounding_mode="up"), RuntimeError, "rounding_mode"),
    "dtype": (lambda x, i: x.sum(dtype="float32"), TypeError, "dtype"),
    "negative size": (lambda x, i: ss.zeros(-1), RuntimeError, "negative"),
    "negative size of empty": (lambda x, i: ss.empty(2, -3), RuntimeError, "negative"),
    "huge": (lambda x, i: ss.empty(HUGE), RuntimeError, "overflow"),
    "huge product": (lambda x, i: ss.empty(2**40, 2**40), RuntimeError, "overflow"),
    "beyond 64 bits": (lambda x, i: ss.empty(2**70), (RuntimeError, OverflowError), "."),
    "huge outer sum": (lambda x, i: ss.zeros(1).expand(2**40).unsqueeze(1)
                       + ss.zeros(1).expand(2**40), RuntimeError, "overflow"),
    "more than there is": (lambda x, i: ss.empty(2**50), RuntimeError, "memory"),
    "float size": (lambda x, i: ss.zeros(2.5), TypeError, "."),
    "device": (lambda x, i: ss.zeros(2, device="abacus"), RuntimeError, "device"),
    "ragged": (lambda x, i: ss.tensor([[1, 2], [3]]), ValueError, "equal length"),
    "deeply ragged": (lambda x, i: ss.tensor([1, [2]]), ValueError, "."),
    "words": (lambda x, i: ss.tensor(["a"]), (TypeError, ValueError), "."),
    "an object": (lambda x, i: ss.tensor(object()), TypeError, "object"),
    "large integer": (lambda x, i: ss.tensor(2**80), (ValueError, OverflowError), "."),
    "int8": (lambda x, i: ss.tensor(300, dtype=ss.int8), RuntimeError, "overflow"),
    "backward of many": (lambda x, i: x.clone().requires_grad_().exp().backward(), RuntimeError,
                         "scalar"),
    "backward of nothing": (lambda x, i: x.sum().backward(), RuntimeError, "does not require grad"),
    "grad of integers": (lambda x, i: i.requires_grad_(), RuntimeError, "floating point"),
    "leaf in place": (lambda x, i: ss.ones(2, requires_grad=True).add_(1), RuntimeError, "leaf"),
    "conv rank": (lambda x, i: F.conv2d(x, x), RuntimeError, "."),
    "conv channels": (lambda x, i: F.conv2d(ss.ones(1, 3, 4, 4), ss.ones(2, 5, 3, 3)),
                      RuntimeError, "channels|groups|5"),
    "pool size": (lambda x, i: F.max_pool2d(ss.ones(1, 1, 2, 2), 5), RuntimeError, "."),
    "where": (lambda x, i: ss.where(x, x, x), RuntimeError, "bool"),
    "fill": (lambda x, i: x.fill_(ss.ones(2)), RuntimeError, "0-dim"),
    "masked": (lambda x, i: x.masked_fill(x, 0), RuntimeError, "bool"),
    "cross entropy": (lambda x, i: F.cross_entropy(x, ss.tensor([0, 9])),
                      (IndexError, RuntimeError), "9"),
    "set attribute": (lambda x, i: setattr(x, "shape", (1,)), AttributeError, "."),
    "randn dtype": (lambda x, i: ss.randn(2, dtype=ss.int64), (RuntimeError, NotImplementedError),
                    "."),
    "arange step": (lambda x, i: ss.arange(0, 5, 0), RuntimeError, "step|zero"),
    "arange sign": (lambda x, i: ss.arange(0, 5, -1), RuntimeError, "."),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, kind, text = CASES[name]
    x, i = ss.arange(6.0).reshape(2, 3), ss.arange(6).reshape(2, 3)
    with pytest.raises(kind) as caught:
        call(x, i)
    found = str(caught.value)
    flat = found.replace("\n", " ")
    assert re.search(text, flat), found
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert i.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_format_of_errors():
    with pytest.raises(RuntimeError) as caught:
        ss.ones(2, 3).add(ss.ones(4).double(), alpha=2)
    lines = str(caught.value).splitlines()
    assert lines[1].strip() == ("in add(self: float32[2, 3]@cpu, other: float64[4]@cpu, alpha: 2)")
    assert lines[2].strip().startswith("mend: ")


def test_a_call_that_failed_can_be_made_right():
    a = ss.ones(2)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            a + ss.ones(3)
        assert (a + ss.ones(2)).tolist() == [2.0, 2.0]


def test_zero_sizes_and_dims():
    empty = ss.zeros(0, 3)
    assert (empty + 1).shape == (0, 3)
    assert empty.sum().item() == 0.0
    assert empty.sum(0).tolist() == [0.0] * 3
    assert (empty.t() @ empty).tolist() == [[0.0] * 3] * 3
    for call in (empty.amax, lambda: empty.amax(0), lambda: empty.argmax(0)):
        with pytest.raises((RuntimeError, IndexError)):
            call()
    assert empty.amax(1).shape == (0,)


# -- garbage -------------------------------------------------------------------------------------
ALLOWED = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError, OverflowError)
# Ops whose sizes may rightly be large enough to fill the machine, or that need many arguments.
SKIPPED = {"arange", "linspace", "logspace", "eye", "tril_indices", "triu_indices"}


def garbage() -> st.SearchStrategy:
    shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
    dtypes = st.sampled_from([ss.bool, ss.uint8, ss.int64, ss.float16, ss.bfloat16, ss.float32,
                              ss.float64, ss.complex64])
    tensors = st.builds(made, shapes, dtypes, st.booleans(), st.booleans())
    numbers = st.one_of(st.integers(-4, 4), st.floats(allow_nan=True), st.booleans(),
                        st.sampled_from([2**31, -2**63, 2**64, 1j, 10**30]))
    others = st.one_of(st.none(), st.text(max_size=3), st.lists(st.integers(-3, 3), max_size=3),
                       st.sampled_from([object, {}, set(), [[1], 2], (), "mean", "none", b"x",
                                        ss.float32, ss.int64, "cpu", "meta", ss.device("meta"),
                                        np.float32(2), np.arange(3), lambda: None, ...]),
                       st.lists(tensors, max_size=3), dtypes)
    return st.one_of(tensors, tensors, tensors, numbers, others)


def made(shape, dtype, turned, wants):
    tensor = ss.ones(shape, dtype=dtype)
    if turned and tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    if wants and dtype.is_floating_point:
        tensor = tensor.detach().requires_grad_()
    return tensor


NAMES = sorted(name for name in table if name not in SKIPPED)


@hypothesis.settings(max_examples=400, deadline=None, derandomize=True,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_garbage_raises_what_python_code_may_expect(data):
    op = table[data.draw(st.sampled_from(NAMES))]
    count = data.draw(st.integers(0, min(len(op.names) + 1, 6)))
    args = tuple(data.draw(garbage()) for _ in range(count))
    keywords = {}
    if op.names and data.draw(st.booleans()):
        keywords[data.draw(st.sampled_from([*op.names, "nonsense"]))] = data.draw(garbage())
    run_garbage(op, args, keywords)
    assert (ss.ones(2) + 1).tolist() == [2.0, 2.0]


def run_garbage(op, args, keywords):
    with warnings.catch_warnings(), contextlib.suppress(*ALLOWED):
        warnings.simplefilter("ignore")
        op(*args, **keywords)
    with warnings.catch_warnings(), contextlib.suppress(*ALLOWED):
        warnings.simplefilter("ignore")
        if args and op.entry.inplace and isinstance(args[0], ss.Tensor):
            op.call_inplace(args, keywords)


METHODS = sorted(name for name, value in vars(ss.Tensor).items()
                 if inspect.isfunction(value) and not name.startswith("__")
                 and name not in ("print", "backward", "register_hook"))


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_methods_take_garbage(data):
    tensor = made((2, 3), data.draw(st.sampled_from([ss.float32, ss.int64, ss.bool])), False, False)
    method = getattr(tensor, data.draw(st.sampled_from(METHODS)))
    args = [data.draw(garbage()) for _ in range(data.draw(st.integers(0, 3)))]
    with warnings.catch_warnings(), contextlib.suppress(*ALLOWED):
        warnings.simplefilter("ignore")
        method(*args)


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True,
                     suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_indices_take_garbage(data):
    tensor = ss.arange(24.0).reshape(2, 3, 4)
    index = data.draw(st.one_of(garbage(), st.lists(garbage(), max_size=4).map(tuple),
                                st.builds(slice, garbage(), garbage(), garbage())))
    with warnings.catch_warnings(), contextlib.suppress(*ALLOWED):
        warnings.simplefilter("ignore")
        tensor[index]
    with warnings.catch_warnings(), contextlib.suppress(*ALLOWED):
        warnings.simplefilter("ignore")
        tensor[index] = data.draw(garbage())
