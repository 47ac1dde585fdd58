"""What scripts written for PyTorch do in passing: small forms beside the ops themselves."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss


@pytest.mark.parametrize("data", [[], (), [[]], [[], []], range(0)])
def test_a_tensor_of_nothing_has_the_default_dtype(data):
    assert ss.tensor(data).dtype is ss.float32
    assert ss.as_tensor(data).dtype is ss.float32
    assert ss.tensor(data, dtype=ss.int32).dtype is ss.int32


def test_a_tensor_of_nothing_follows_the_default_dtype():
    ss.set_default_dtype(ss.float64)
    try:
        assert ss.tensor([]).dtype is ss.float64
    finally:
        ss.set_default_dtype(ss.float32)


def test_a_tensor_of_nothing_joins_floats():
    kept = ss.tensor([])
    assert ss.cat([kept, ss.ones(2)]).tolist() == [1, 1]


@pytest.mark.parametrize("data", [None, [None], {1: 2}, {1}, [1, {2: 3}]])
def test_no_dtype_follows_from_what_holds_no_numbers(data):
    with pytest.raises(RuntimeError, match=r"Could not infer dtype of (NoneType|dict|set)"):
        ss.tensor(data)


@pytest.mark.parametrize("kind", [float, int, complex])
@pytest.mark.parametrize("size", [(0,), (3,), (2, 2)])
def test_pythons_numbers_are_made_of_one_element(kind, size):
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python"):
        kind(ss.ones(size))
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        ss.ones(size).item()
    assert kind(ss.full((1, 1), 2.0)) == kind(2)


def test_a_plus_sign_gives_the_tensor_itself():
    x = ss.ones(2, requires_grad=True)
    assert +x is x
    assert x.positive() is x
    assert ss.positive(x) is x
    with pytest.raises(RuntimeError, match="on a bool tensor is not supported"):
        _ = +ss.tensor([True])
    with pytest.raises(TypeError, match="argument 'input' must be Tensor, not int"):
        ss.positive(3)


def test_the_bits_of_floats_are_not_turned():
    for dtype in (ss.float32, ss.bfloat16, ss.complex64):
        with pytest.raises(TypeError, match="only implemented on integer and Boolean-type"):
            _ = ~ss.ones(2, dtype=dtype)
    assert (~ss.tensor([True, False])).tolist() == [False, True]
    assert (~ss.tensor([0, 5], dtype=ss.int8)).tolist() == [-1, -6]


def test_elements_are_not_deleted():
    x = ss.ones(2)
    with pytest.raises(TypeError, match="Tensor does not support deleting items"):
        del x[0]


@pytest.mark.parametrize(("dtype", "name"), [
    (ss.float32, "torch.FloatTensor"), (ss.float64, "torch.DoubleTensor"),
    (ss.int64, "torch.LongTensor"), (ss.bool, "torch.BoolTensor"),
    (ss.complex64, "torch.ComplexFloatTensor"), (ss.bfloat16, "torch.BFloat16Tensor")])
def test_the_type_has_pytorchs_name(dtype, name):
    x = ss.zeros(2, dtype=dtype)
    assert x.type() == name
    if not dtype.is_complex:
        assert ss.zeros(1, dtype=ss.int16).type(x.type()).dtype is dtype


def test_a_device_is_made_by_names():
    assert ss.device(type="cpu") is ss.device("cpu")
    assert ss.device(type="meta", index=0) is ss.device("meta")
    assert ss.device(type="cuda", index=1) is ss.device("cuda:1")
    with pytest.raises(TypeError, match="argument 'type' must be str, not float"):
        ss.device(type=1.5)


def test_only_inputs_is_taken():
    x = ss.tensor([1.0, 2.0], requires_grad=True)
    penalty, = ss.autograd.grad(outputs=x * x, inputs=x, grad_outputs=ss.ones(2),
                                create_graph=True, retain_graph=True, only_inputs=True)
    penalty.sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
        ss.autograd.grad((x * x).sum(), x, only_inputs=False)


@pytest.mark.parametrize("call", [
    lambda: ss.erf(ss.tensor([1j])), lambda: ss.relu(ss.tensor([1j])),
    lambda: ss.bitwise_and(ss.ones(2), 1), lambda: ss.tensor([True]) ** ss.tensor([True]),
    lambda: ss.clamp(ss.ones(2), min=1j), lambda: ss.tensor([True]).cumsum_(0)])
def test_a_dtype_without_a_kernel_is_not_implemented(call):
    with pytest.raises(NotImplementedError, match=r"not implemented for|is not supported for"):
        call()


def test_arrays_are_compared_like_tensors():
    ones = np.ones((2, 2), np.float32)
    ss.testing.assert_close(ones, ones + np.float32(1e-7))
    ss.testing.assert_close({"a": [ones]}, {"a": [ones.copy()]})
    with pytest.raises(AssertionError, match=r"Tensor-likes are not close![\s\S]*2 / 4"):
        ss.testing.assert_close(ones, np.array([[1, 2], [1, 2]], np.float32))
    with pytest.raises(AssertionError, match="'dtype' do not match: "):
        ss.testing.assert_close(ones, ones.astype(np.float64))
    with pytest.raises(TypeError, match="cannot compare"):
        ss.testing.assert_close(ones, ss.ones(2, 2))


def test_numpys_numbers_are_compared_like_pythons():
    for number in (np.float32(1), np.float64(1), np.bool_(True), np.int64(1), np.complex64(1)):
        ss.testing.assert_close(number, number.item())
    with pytest.raises(AssertionError, match="'type' do not match"):
        ss.testing.assert_close(np.int64(1), 1.0)
    with pytest.raises(AssertionError, match="Scalars are not close"):
        ss.testing.assert_close(np.float64(1), 2.0)


def test_an_operand_that_is_missing_or_of_another_kind():
    for call in (ss.abs_, ss.relu_, lambda: ss.clamp_(min=1)):
        with pytest.raises(TypeError, match="missing 1 required positional arguments: 'self'"):
            call()
    for call in (ss.nn.functional.softmax, ss.nn.functional.log_softmax):
        with pytest.raises(TypeError, match="argument 'input' must be Tensor, not list"):
            call([1.0])
    for weight in (ss.tensor(1.0), ss.ones(3), ss.ones(2, 2, 2)):
        with pytest.raises(RuntimeError, match="'weight' must be 2-D"):
            ss.nn.functional.embedding(ss.tensor([0]), weight)


def test_a_new_tensor_is_like_the_old():
    old = ss.zeros(2, dtype=ss.float64)
    assert old.new_tensor([1, 2]).dtype is ss.float64
    assert old.new_tensor(3, dtype=ss.int32).dtype is ss.int32
    assert ss.zeros(2, device="meta").new_tensor([1.0]).device.type == "meta"
    assert old.new_tensor([1.0], requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="Could not infer dtype"):
        old.new_tensor(None)


def test_ravel_leaves_no_gaps():
    x = ss.arange(6).reshape(2, 3)
    assert x.ravel().data_ptr() == x.data_ptr()
    assert x.t().ravel().tolist() == [0, 3, 1, 4, 2, 5]
    assert ss.ravel(x[:, ::2].t()[0]).stride() == (1,)


def test_names_that_scripts_ask_for():
    assert issubclass(ss.OutOfMemoryError, RuntimeError)
    assert ss.OutOfMemoryError is ss.cuda.OutOfMemoryError
    assert ss.GradScaler is ss.amp.GradScaler
    x = ss.ones(2)
    assert {x.is_sparse, x.is_nested, x.is_quantized} == {False}


def test_strides_are_changed_in_place():
    x = ss.arange(6.0)
    saved = (x * 1).requires_grad_()
    assert x.as_strided_((2, 2), (1, 2), 1) is x
    assert x.tolist() == [[1, 3], [2, 4]]
    y = saved * 2
    y.as_strided_((2,), (3,)).sum().backward()
    assert saved.grad.tolist() == [2, 0, 0, 2, 0, 0]
    with pytest.raises(RuntimeError, match="storage"):
        x.as_strided_((4, 4), (4, 1))


@pytest.mark.parametrize(("shapes", "wanted"), [
    ([(2, 3), (1, 3)], (2, 3)), ([3, (2, 1)], (2, 3)), ([], ()), ([(0, 1), ss.Size([4])], (0, 4))])
def test_shapes_broadcast(shapes, wanted):
    found = ss.broadcast_shapes(*shapes)
    assert found == wanted
    assert isinstance(found, ss.Size)


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(RuntimeError, match="must match"):
        ss.broadcast_shapes((2,), (3,))


@pytest.mark.parametrize("size", [(3, 1), ((3, 1),), ([3, 1],), (ss.Size([3, 1]),), (1,), ()])
def test_sizes_to_sum_to_come_one_by_one_or_together(size):
    x = ss.arange(24.0).view(2, 3, 4)
    shape = size[0] if size and not isinstance(size[0], int) else size
    found = x.sum_to_size(*size)
    assert found.shape == tuple(shape)
    assert found.sum() == 276


@pytest.mark.parametrize("size", [(2, 3, 4), ((2, 3, 4),), ([2, 3, 4],)])
def test_sizes_to_broadcast_to_come_one_by_one_or_together(size):
    assert ss.ones(3, 1).broadcast_to(*size).shape == (2, 3, 4)
