"""Printing: texts that PyTorch 2.13 printed for the same values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from slipstream.core.api import printing
from slipstream.core.api.printing import Facts

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _default_options():
    printing.set_printoptions(profile="default")
    yield
    printing.set_printoptions(profile="default")


def show(values, dtype="float32", **facts):
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = np.asarray(values).astype(numpy_dtype)
    return printing.format_tensor(array, Facts(dtype, **facts))


@pytest.mark.parametrize(("values", "dtype", "text"), [
    (1.5, "float32", "tensor(1.5000)"),
    (1.0, "float32", "tensor(1.)"),
    (1e10, "float32", "tensor(1.0000e+10)"),
    (2, "int64", "tensor(2)"),
    (True, "bool", "tensor(True)"),
    (NAN, "float32", "tensor(nan)"),
    (1 + 2j, "complex64", "tensor(1.+2.j)"),
    ([1.0, 2.0], "float32", "tensor([1., 2.])"),
    ([1.0, INF], "float32", "tensor([1., inf])"),
    ([NAN], "float32", "tensor([nan])"),
    ([-0.0], "float32", "tensor([-0.])"),
    ([-INF, NAN, 2.0, 30.0], "float32", "tensor([-inf, nan,  2., 30.])"),
    ([-INF, 0.5], "float32", "tensor([  -inf, 0.5000])"),
    ([1e-5, 1.0], "float32", "tensor([1.0000e-05, 1.0000e+00])"),
    ([1e8], "float32", "tensor([100000000.])"),
    ([1e9], "float32", "tensor([1.0000e+09])"),
    ([1e8, 1.0], "float32", "tensor([1.0000e+08, 1.0000e+00])"),
    ([1 + 2j, -0.5j], "complex64", "tensor([1.+2.0000j, -0.-0.5000j])"),
    ([1e10 + 2j], "complex64", "tensor([1.0000e+10+2.j])"),
    ([1 + 2j, complex(0, -0.5)], "complex64", "tensor([1.+2.0000j, 0.-0.5000j])"),
    ([1 + 1e-6j, -2 - 3j], "complex64", "tensor([ 1.+1.0000e-06j, -2.-3.0000e+00j])"),
    ([1e-5 + 1e6j, 1.5], "complex64", "tensor([1.0000e-05+1000000.j, 1.5000e+00+0.j])"),
    ([complex(NAN, 1)], "complex64", "tensor([nan+1.j])"),
    ([True, False], "bool", "tensor([ True, False])"),
    ([[1, -20], [300, 4]], "int64", "tensor([[  1, -20],\n        [300,   4]])"),
    ([1.0], "bfloat16", "tensor([1.], dtype=slipstream.bfloat16)"),
    ([0.1, 2.0], "bfloat16", "tensor([0.1001, 2.0000], dtype=slipstream.bfloat16)"),
    ([1.0], "float64", "tensor([1.], dtype=slipstream.float64)"),
    ([1, 2], "int32", "tensor([1, 2], dtype=slipstream.int32)"),
])
def test_values(values, dtype, text):
    assert show(values, dtype) == text


@pytest.mark.parametrize(("shape", "dtype", "text"), [
    ((0,), "float32", "tensor([])"),
    ((0, 3), "float32", "tensor([], size=(0, 3))"),
    ((1, 0, 3), "float32", "tensor([], size=(1, 0, 3))"),
    ((2, 0), "int64", "tensor([], size=(2, 0), dtype=slipstream.int64)"),
    ((0,), "int64", "tensor([], dtype=slipstream.int64)"),
    ((0,), "complex64", "tensor([], dtype=slipstream.complex64)"),
    ((11, 100, 0), "float32", "tensor([], size=(11, 100, 0))"),
])
def test_empty(shape, dtype, text):
    assert show(np.zeros(shape), dtype) == text


def test_blocks():
    assert show(np.zeros((2, 2, 2))) == """\
tensor([[[0., 0.],
         [0., 0.]],

        [[0., 0.],
         [0., 0.]]])"""
    assert show(np.arange(40.0)) == """\
tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,
        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,
        28., 29., 30., 31., 32., 33., 34., 35., 36., 37., 38., 39.])"""


def test_summaries():
    assert show(np.arange(1000), "int64").count("\n") == 71
    assert show(np.arange(1001), "int64") == (
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])")
    assert show(np.arange(2000.0)) == """\
tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,
        1.9990e+03])"""
    assert show(np.arange(1001.0).reshape(7, 143)) == """\
tensor([[   0.,    1.,    2.,  ...,  140.,  141.,  142.],
        [ 143.,  144.,  145.,  ...,  283.,  284.,  285.],
        [ 286.,  287.,  288.,  ...,  426.,  427.,  428.],
        ...,
        [ 572.,  573.,  574.,  ...,  712.,  713.,  714.],
        [ 715.,  716.,  717.,  ...,  855.,  856.,  857.],
        [ 858.,  859.,  860.,  ...,  998.,  999., 1000.]])"""
    assert show(np.full((1100, 2), 1 + 2j), "complex64") == """\
tensor([[1.+2.j, 1.+2.j],
        [1.+2.j, 1.+2.j],
        [1.+2.j, 1.+2.j],
        ...,
        [1.+2.j, 1.+2.j],
        [1.+2.j, 1.+2.j],
        [1.+2.j, 1.+2.j]])"""
    assert show(np.zeros((2, 1001)), "bool") == """\
tensor([[False, False, False,  ..., False, False, False],
        [False, False, False,  ..., False, False, False]])"""
    assert show(np.zeros((1, 1, 1, 1, 2000))) == (
        "tensor([[[[[0., 0., 0.,  ..., 0., 0., 0.]]]]])")
    blocks = show(np.ones((12, 12, 12))).split("\n\n")
    assert len(blocks) == 7
    assert blocks[3] == "        ...,"


def test_suffixes():
    assert show([0.0], requires_grad=True) == "tensor([0.], requires_grad=True)"
    assert show([0.0], requires_grad=True, grad_fn_name="MulBackward0") == (
        "tensor([0.], grad_fn=<MulBackward0>)")
    assert show(np.zeros(0), requires_grad=True) == "tensor([], requires_grad=True)"
    assert show([1.0], "float16", device="cuda:0", requires_grad=True) == (
        "tensor([1.], device='cuda:0', dtype=slipstream.float16, requires_grad=True)")
    assert show([1.0], "float64", default_dtype_name="float64") == "tensor([1.])"
    assert show([1.0], default_dtype_name="float64") == "tensor([1.], dtype=slipstream.float32)"
    assert show([1j], "complex128", default_dtype_name="float64") == "tensor([0.+1.j])"
    assert show([1.0], prefix="Mine(") == "Mine([1.])"


def test_suffixes_break_lines():
    assert show(np.ones(9), "float64", grad_fn_name="ExpBackward0") == """\
tensor([1., 1., 1., 1., 1., 1., 1., 1., 1.], dtype=slipstream.float64,
       grad_fn=<ExpBackward0>)"""
    assert show(np.exp(np.arange(12.0)), "float64", grad_fn_name="ExpBackward0") == """\
tensor([1.0000e+00, 2.7183e+00, 7.3891e+00, 2.0086e+01, 5.4598e+01, 1.4841e+02,
        4.0343e+02, 1.0966e+03, 2.9810e+03, 8.1031e+03, 2.2026e+04, 5.9874e+04],
       dtype=slipstream.float64, grad_fn=<ExpBackward0>)"""


def test_without_data():
    meta = Facts("float32", device="meta")
    assert printing.format_without_data((2,), meta) == "tensor(..., device='meta', size=(2,))"
    meta = Facts("float64", device="meta", requires_grad=True)
    assert printing.format_without_data((2,), meta) == (
        "tensor(..., device='meta', size=(2,), dtype=slipstream.float64,\n"
        "       requires_grad=True)")


@pytest.mark.parametrize(("values", "options", "text"), [
    ([1.5, 2.25, 1e-3], {"precision": 2}, "tensor([1.50e+00, 2.25e+00, 1.00e-03])"),
    ([1e-5, 1.0], {"sci_mode": False}, "tensor([0.0000, 1.0000])"),
    ([3.14159], {"profile": "short"}, "tensor([3.14])"),
    ([1.0, 2.0], {"sci_mode": True}, "tensor([1.0000e+00, 2.0000e+00])"),
    (np.arange(20.0), {"threshold": 5, "edgeitems": 2}, "tensor([ 0.,  1.,  ..., 18., 19.])"),
    (np.zeros(3), {"edgeitems": 0, "threshold": 0}, "tensor([...], size=(3,))"),
    (np.arange(6.0), {"linewidth": 20}, "tensor([0., 1., 2.,\n        3., 4., 5.])"),
])
def test_options(values, options, text):
    with printing.printoptions(**options):
        assert show(values) == text
    assert printing.get_printoptions() == {
        "precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


def test_options_given():
    options = printing.PrintOptions(precision=1)
    array = np.array([0.25], np.float32)
    assert printing.format_tensor(array, Facts("float32"), options) == "tensor([0.2])"
    printing.set_printoptions(profile="full")
    assert "..." not in show(np.zeros(3000))
    with pytest.raises(ValueError, match="profile"):
        printing.set_printoptions(profile="long")
