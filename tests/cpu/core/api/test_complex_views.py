"""Views of another dtype: real and imaginary parts, view_as_real, view_as_complex, view(dtype)."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream.autograd import gradcheck, gradgradcheck

Z = np.array([[1 + 2j, 3j, -1], [4, 5 - 1j, 0.5j]], np.complex64)


def test_parts_share_the_memory():
    z = ss.from_numpy(Z.copy())
    assert (z.real.stride(), z.imag.storage_offset(), z[1].imag.storage_offset()) == ((6, 2), 1, 7)
    z.imag.fill_(7)
    z[1].real.zero_()
    expected = Z.real + 7j
    expected[1] = 7j
    np.testing.assert_array_equal(z.numpy(), expected)
    assert z.imag._base is z
    assert z.real.dtype is ss.float32


@pytest.mark.parametrize("take", [
    lambda x: x, lambda x: x.T, lambda x: x[:, 1:], lambda x: x[0, 0], lambda x: x[1:][:, ::2],
    lambda x: x[:, :0],
])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_values_of_the_parts(take, dtype):
    array = Z.astype(dtype)
    z, expected = take(ss.from_numpy(array.copy())), take(array)
    np.testing.assert_array_equal(z.real.numpy(), expected.real)
    np.testing.assert_array_equal(ss.imag(z).numpy(), expected.imag)
    both = ss.view_as_real(z)
    np.testing.assert_array_equal(both.numpy(), np.stack([expected.real, expected.imag], -1))
    back = ss.view_as_complex(both)
    np.testing.assert_array_equal(back.numpy(), expected)
    assert (back.stride(), back.storage_offset()) == (z.stride(), z.storage_offset())


def test_a_real_tensor_is_its_real_part():
    x = ss.ones(2)
    assert ss.real(x) is x
    assert x.real is x
    with pytest.raises(RuntimeError, match=r"imag is not implemented.*float32\[2\]"):
        _ = x.imag


@pytest.mark.parametrize(("make", "message"), [
    (lambda: ss.zeros(3, 3), "last dimension of size 2"),
    (lambda: ss.tensor(1.0), "last dimension of size 2"),
    (lambda: ss.zeros(2, 2).T, "stride 1"),
    (lambda: ss.zeros(3, 3)[:, :2], "even strides"),
    (lambda: ss.arange(5.0)[1:].reshape(2, 2), r"storage_offset.*divisible by 2"),
    (lambda: ss.zeros(2, 2, dtype=ss.float16), "only supported for float32 and float64"),
    (lambda: ss.zeros(2, 2, dtype=ss.int64), "only supported for float32 and float64"),
])
def test_what_view_as_complex_refuses(make, message):
    with pytest.raises(RuntimeError, match=message):
        ss.view_as_complex(make())


def test_view_as_real_refuses_real_tensors():
    with pytest.raises(RuntimeError, match="only supported for complex tensors"):
        ss.view_as_real(ss.zeros(2))


@pytest.mark.parametrize("function", [
    lambda z: (z.real, z.imag),
    lambda z: ss.view_as_real(z.T),
    lambda z: ss.view_as_complex(ss.view_as_real(z) * 2),
    lambda z: z.real * z.imag,
])
def test_gradients(function):
    z = ss.from_numpy(Z.astype(np.complex128)).requires_grad_(True)
    assert gradcheck(function, (z,))
    assert gradgradcheck(function, (z,))


def write_the_part(z):
    whole = z * 1
    whole.imag.mul_(3.0)
    return whole * whole


def write_as_complex(x):
    whole = x * 1
    ss.view_as_complex(whole).mul_(1 + 2j)
    return whole * whole


def test_gradients_through_writes():
    z = ss.from_numpy(Z.astype(np.complex128)).requires_grad_(True)
    assert gradcheck(write_the_part, (z,))
    x = ss.from_numpy(np.random.default_rng(0).standard_normal((3, 2))).requires_grad_(True)
    assert gradcheck(write_as_complex, (x,))
    assert gradgradcheck(write_as_complex, (x,))


@pytest.mark.parametrize(("made", "dtype"), [
    (np.float32([[1, 2], [3, 4]]), "int32"), (np.float64([[1, 2], [3, 4]]), "int16"),
    (np.arange(8, dtype=np.uint8).reshape(2, 4), "float32"), (np.float32(1.5), "int32"),
    (np.arange(6, dtype=np.int16).reshape(3, 2), "int32"),
    (np.float32([[1, 2], [3, 4]]), "complex64"), (np.zeros((2, 0), np.int32), "int64"),
])
def test_view_of_another_dtype(made, dtype):
    x = ss.from_numpy(np.array(made))
    seen = x.view(getattr(ss, dtype))
    np.testing.assert_array_equal(seen.numpy(), made.view(dtype))
    assert seen.data_ptr() == x.data_ptr()


def test_view_of_another_dtype_is_outside_the_tape():
    x = ss.ones(4, requires_grad=True)
    assert not x.view(ss.int32).requires_grad
    assert x.view(ss.float32).requires_grad
    y = (x * 1).detach()
    y.view(ss.int32)[0] = 0
    assert y.tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("make", "dtype", "message"), [
    (lambda: ss.tensor(1.0), ss.int16, r"self.dim\(\) cannot be 0"),
    (lambda: ss.zeros(3, dtype=ss.int32), ss.int64, "divisible by 2"),
    (lambda: ss.zeros(4, dtype=ss.int32)[1:3], ss.int64, r"storage_offset\(\) must be divisible"),
    (lambda: ss.zeros(2, 2).T, ss.float64, r"stride\(-1\) must be 1"),
    (lambda: ss.zeros(2, 3)[:, :2], ss.float64, r"stride\(\) must be divisible by 2"),
])
def test_views_of_dtypes_that_do_not_fit(make, dtype, message):
    with pytest.raises(RuntimeError, match=message):
        make().view(dtype)
    with pytest.raises(TypeError, match="dtype or tuple of ints"):
        make().view("int64")


def test_overlapping_parts_are_copied_first():
    z = ss.from_numpy(np.array([1 + 2j, 3 + 4j], np.complex64))
    ss.view_as_real(z).copy_(ss.view_as_real(z).flip(-1))
    assert z.tolist() == [2 + 1j, 4 + 3j]
    z.copy_(z.imag)
    assert z.tolist() == [1 + 0j, 3 + 0j]


def test_complex_parameters_are_trained_as_pairs():
    z = ss.from_numpy(Z.copy()).requires_grad_(True)
    optimizer = ss.optim.Adam([z], lr=0.1)
    (z * z.conj()).real.sum().backward()
    optimizer.step()
    # Adam's first step goes by lr along the sign of each part's gradient.
    expected = Z - 0.1 * (np.sign(Z.real) + 1j * np.sign(Z.imag))
    np.testing.assert_allclose(z.detach().numpy(), expected, atol=1e-5)
