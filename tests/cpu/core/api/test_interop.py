"""Tensors and the world outside: NumPy, DLPack, pickle, copies, subclasses, storages, formats."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest

import slipstream as ss

DTYPES = [ss.bool, ss.uint8, ss.int8, ss.int16, ss.int32, ss.int64, ss.float16, ss.bfloat16,
          ss.float32, ss.float64, ss.complex64, ss.complex128]


# -- NumPy ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)], ids=str)
def test_both_ways_without_copies(dtype, shape):
    array = np.ones(shape, dtype.numpy)
    tensor = ss.from_numpy(array)
    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape)
    back = tensor.numpy()
    assert (back.dtype, back.shape) == (array.dtype, shape)
    if array.size:
        assert np.shares_memory(back, array)
        array[...] = 0
        assert not bool(tensor.any())
        tensor.fill_(1)
        assert (array == np.ones(shape, dtype.numpy)).all()


@pytest.mark.parametrize("view", [
    lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a[::-1, ::-2], lambda a: a.T,
    lambda a: a[1:3, 1], lambda a: np.broadcast_to(a[0], (4, 6)), lambda a: a[:, :1].T,
    lambda a: a[3, 5:6].reshape(()),
])
def test_strides_of_every_kind(view):
    array = view(np.arange(24.0).reshape(4, 6))
    tensor = ss.from_numpy(array)
    np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal((tensor + 1).numpy(), array + 1)
    np.testing.assert_array_equal(tensor.sum().item(), array.sum())
    assert np.shares_memory(tensor.numpy(), array)
    np.testing.assert_array_equal(tensor.clone().numpy(), array)


def test_an_array_lives_as_long_as_its_tensor_and_the_other_way_round():
    array = np.arange(3.0)
    alive = weakref.ref(array)
    tensor = ss.from_numpy(array)
    del array
    gc.collect()
    assert alive() is not None
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    del tensor
    gc.collect()
    assert alive() is None
    view = ss.arange(1000.0).numpy()
    others = [ss.zeros(1000) for _ in range(4)]
    assert view[999] == 999.0
    assert len(others) == 4


def test_read_only_arrays_refuse_writes():
    array = np.arange(4.0)
    array.flags.writeable = False
    tensor = ss.from_numpy(array)
    for write in (lambda: tensor.add_(1), tensor.zero_, lambda: tensor[1:].mul_(2),
                  lambda: tensor.copy_(ss.ones(4)), lambda: tensor.__setitem__(0, 5.0),
                  lambda: tensor.__setitem__(tensor > 1, 5.0),
                  lambda: ss.add(ss.ones(4).double(), 1, out=tensor)):
        with pytest.raises((ValueError, RuntimeError), match="read-only"):
            write()
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not tensor.numpy().flags.writeable
    assert (tensor + 1).add_(1).tolist() == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(("array", "kind"), [
    (np.array(["a"]), TypeError), (np.array([None]), TypeError), ([1, 2], TypeError),
    (np.zeros(2, "datetime64[s]"), TypeError), (np.zeros(2, np.dtype(">f4")), TypeError),
    (np.zeros(2, np.uint16), TypeError), (3.0, TypeError),
    (np.zeros(3, [("a", "i1"), ("b", "<f4")])["b"], ValueError),
])
def test_arrays_that_no_tensor_can_be(array, kind):
    with pytest.raises(kind):
        ss.from_numpy(array)


def test_numpy_takes_tensors():
    tensor = ss.tensor([1.0, 2.0])
    assert np.asarray(tensor).dtype == np.float32
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert not np.shares_memory(np.array(tensor), tensor.numpy())
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert np.sin(tensor.numpy()).shape == (2,)
    assert isinstance(tensor + np.float32(1), ss.Tensor)
    assert isinstance(np.float32(1) + tensor, ss.Tensor)


def test_numpy_of_what_requires_grad():
    tensor = ss.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        tensor.numpy()
    assert tensor.numpy(force=True).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="meta"):
        ss.ones(2, device="meta").numpy()


def test_bfloat16_is_that_of_ml_dtypes():
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    tensor = ss.from_numpy(array)
    assert tensor.numpy().dtype == ml_dtypes.bfloat16
    assert tensor.tolist() == [1.5, -2.0]
    tensor *= 2
    assert array.tolist() == [3.0, -4.0]


def test_the_buffer_protocol_by_way_of_numpy():
    tensor = ss.arange(6).reshape(2, 3)
    view = memoryview(tensor.numpy())
    assert (view.shape, view.format, view.readonly) == ((2, 3), "l", False)
    view[1, 2] = 42
    assert tensor[1, 2].item() == 42


# -- DLPack --------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not ss.bfloat16], ids=str)
def test_dlpack_both_ways(dtype):
    tensor = ss.tensor([[1, 0, 1], [0, 1, 1]], dtype=dtype).t()
    array = np.from_dlpack(tensor)
    assert np.shares_memory(array, tensor.numpy())
    np.testing.assert_array_equal(array, tensor.numpy())
    again = ss.from_dlpack(tensor)
    assert (again.dtype, again.stride(), again.data_ptr()) == (
        dtype, tensor.stride(), tensor.data_ptr())
    other = ss.from_dlpack(array)
    assert other.data_ptr() == tensor.data_ptr()


def test_dlpack_capsules_by_version():
    tensor = ss.arange(3.0)
    assert '"dltensor"' in repr(tensor.__dlpack__())
    assert '"dltensor_versioned"' in repr(tensor.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    assert tensor.__dlpack_device__() == (1, 0)
    assert ss.from_dlpack(np.arange(3)).dtype is ss.int64


def test_dlpack_carries_the_read_only_flag():
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = ss.from_numpy(array)
    with pytest.raises(BufferError):
        tensor.__dlpack__()
    received = np.from_dlpack(tensor)
    assert not received.flags.writeable
    back = ss.from_dlpack(tensor)
    with pytest.raises((ValueError, RuntimeError), match="read-only"):
        back.add_(1)
    assert array.tolist() == [0.0, 1.0, 2.0]


def test_dlpack_copies_and_refusals():
    tensor = ss.arange(3.0)
    copied = np.from_dlpack(tensor, copy=True) if np.lib.NumpyVersion(
        np.__version__) >= "2.1.0" else tensor.numpy().copy()
    assert not np.shares_memory(copied, tensor.numpy())
    with pytest.raises(BufferError, match="gradient"):
        ss.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        ss.ones(2, device="meta").__dlpack__()
    for wrong in (3, "x", object()):
        with pytest.raises((TypeError, AttributeError, BufferError)):
            ss.from_dlpack(wrong)


def test_dlpack_keeps_the_memory():
    array = np.from_dlpack(ss.arange(1000.0))
    others = [ss.zeros(1000) for _ in range(4)]
    gc.collect()
    assert array[999] == 999.0
    assert len(others) == 4


# -- pickle, copies, references ------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickle(dtype, protocol):
    tensor = ss.tensor([[1, 0], [0, 1]], dtype=dtype)[:, ::1].t()
    again = pickle.loads(pickle.dumps(tensor, protocol))
    assert (again.dtype, again.shape) == (dtype, tensor.shape)
    assert again.tolist() == tensor.tolist()
    again.fill_(1)
    assert tensor.tolist() != again.tolist()


def test_pickle_keeps_requires_grad_and_no_history():
    leaf = ss.ones(2, requires_grad=True)
    assert pickle.loads(pickle.dumps(leaf)).requires_grad
    again = pickle.loads(pickle.dumps(leaf * 2))
    assert again.is_leaf
    assert again.requires_grad
    assert again.tolist() == [2.0, 2.0]
    assert pickle.loads(pickle.dumps(ss.zeros(0, 3))).shape == (0, 3)


def test_deepcopy():
    leaf = ss.ones(2, requires_grad=True)
    (leaf * 3).sum().backward()
    again, same = copy.deepcopy([leaf, leaf])
    assert again is same
    assert again.requires_grad
    assert again.is_leaf
    assert again.grad.tolist() == [3.0, 3.0]
    again.grad.zero_()
    assert leaf.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(leaf * 2)


class Tagged(ss.Tensor):
    """A subclass with an attribute."""


def test_copies_share_memory():
    leaf = ss.ones(2, 3, requires_grad=True)
    (leaf * 2).sum().backward()
    for source in (leaf, leaf * 2, leaf.t()[1:], leaf.detach().int()):
        found = copy.copy(source)
        assert found is not source
        assert found.data_ptr() == source.data_ptr()
        assert found.stride() == source.stride()
        assert found.is_leaf
        assert found.requires_grad is source.requires_grad
        assert found.grad is None
    found = copy.copy(leaf.detach())
    found[0, 0] = 5.0
    assert leaf[0, 0].item() == 5.0
    tagged = ss.arange(3.0).as_subclass(Tagged)
    tagged.tag = ["x"]
    found = copy.copy(tagged)
    assert type(found) is Tagged
    assert found.tag is tagged.tag
    found.tag = "y"
    assert tagged.tag == ["x"]
    parameter = copy.copy(ss.nn.Parameter(leaf.detach()))
    assert type(parameter) is ss.nn.Parameter
    assert parameter.data_ptr() == leaf.data_ptr()


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 copies")
def test_numpy_is_told_where_a_copy_cannot_be_avoided():
    tensor = ss.ones(3)
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(tensor, dtype=np.float64, copy=False)
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    same = np.asarray(tensor, dtype=np.float32, copy=False)
    assert np.shares_memory(same, tensor.numpy())
    assert not np.shares_memory(np.asarray(tensor, copy=True), same)


def test_subclasses():
    tensor = ss.arange(3.0).as_subclass(Tagged)
    tensor.tag = "x"
    assert isinstance(tensor, ss.Tensor)
    assert tensor.data_ptr() != 0
    assert (tensor + 1).tolist() == [1.0, 2.0, 3.0]
    again = pickle.loads(pickle.dumps(tensor))
    assert (type(again), again.tag) == (Tagged, "x")
    copied = copy.deepcopy(tensor)
    assert (type(copied), copied.tag) == (Tagged, "x")
    assert copied.data_ptr() != tensor.data_ptr()
    with pytest.raises(TypeError):
        tensor.as_subclass(int)


def test_parameters():
    parameter = ss.nn.Parameter(ss.ones(2))
    assert parameter.is_leaf
    assert parameter.requires_grad
    for again in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert type(again) is ss.nn.Parameter
        assert again.requires_grad
        assert again.data_ptr() != parameter.data_ptr()
    assert "Parameter containing" in repr(parameter)


def test_weak_references_and_hashes():
    tensor = ss.ones(2)
    gone = []
    reference = weakref.ref(tensor, lambda _: gone.append(True))
    table = weakref.WeakKeyDictionary({tensor: 1})
    assert reference() is tensor
    assert len({tensor, tensor.clone(), tensor}) == 2
    del tensor
    assert reference() is None
    assert gone == [True]
    assert len(table) == 0


# -- storages and geometry -----------------------------------------------------------------------
def test_untyped_storage():
    tensor = ss.zeros(4, 6)
    storage = tensor.untyped_storage()
    assert (storage.nbytes(), len(storage), storage.size()) == (96, 96, 96)
    assert storage.data_ptr() == tensor.data_ptr()
    assert tensor[1:].untyped_storage() == storage
    assert tensor[1:].storage_offset() == 6
    assert tensor.clone().untyped_storage() != storage
    assert storage.device.type == "cpu"


def test_resize():
    tensor = ss.arange(6.0)
    address = tensor.data_ptr()
    assert tensor.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert tensor.resize_(6).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert tensor.data_ptr() == address
    tensor.resize_((100, 10))
    assert tensor.untyped_storage().nbytes() >= 4000
    assert tensor.view(-1)[:6].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(RuntimeError):
        ss.from_numpy(np.zeros(2)).resize_(1000)
    with pytest.raises(RuntimeError, match="require grad"):
        ss.ones(2, requires_grad=True).resize_(3)
    with pytest.raises(RuntimeError):
        ss.ones(2).resize_(-1)
    assert ss.ones(2).resize_(0).tolist() == []


def test_a_resize_that_finds_no_memory_changes_nothing():
    tensor = ss.arange(3.0)
    with pytest.raises(RuntimeError, match="memory"):
        tensor.resize_(2**50)
    others = [ss.zeros(3) for _ in range(4)]
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert tensor.untyped_storage().nbytes() == 12
    assert len({each.data_ptr() for each in (tensor, *others)}) == 5


def test_set_takes_over():
    a, b = ss.zeros(3), ss.arange(4.0).reshape(2, 2)
    assert a.set_(b) is a
    assert a.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    a[0, 0] = 9.0
    assert b[0, 0].item() == 9.0
    with pytest.raises(TypeError, match="source"):
        a.set_(0)


def test_as_strided_stays_within_the_storage():
    tensor = ss.arange(6.0)
    assert tensor.as_strided((2, 3), (1, 2)).tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    assert tensor.as_strided((2, 2), (1, 1), 2).tolist() == [[2.0, 3.0], [3.0, 4.0]]
    assert tensor[2:].as_strided((2,), (1,), 0).tolist() == [0.0, 1.0]
    assert tensor.as_strided((0,), (1,), 6).tolist() == []
    for size, stride, offset in [((7,), (1,), 0), ((2, 3), (4, 1), 0), ((1,), (1,), 6),
                                 ((2,), (2**60,), 0), ((3,), (1,), 2**62), ((2,), (1, 1), 0)]:
        with pytest.raises(RuntimeError):
            tensor.as_strided(size, stride, offset)
    for stride, offset in [((-1,), 0), ((1,), -1)]:
        with pytest.raises(RuntimeError):
            tensor.as_strided((2,), stride, offset)


def test_empty_strided():
    tensor = ss.empty_strided((2, 3), (1, 2))
    assert (tuple(tensor.shape), tensor.stride()) == ((2, 3), (1, 2))
    tensor.copy_(ss.arange(6.0).reshape(2, 3))
    assert tensor.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    gap = ss.empty_strided((2, 2), (10, 3))
    gap.fill_(7)
    assert gap.tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert gap.untyped_storage().nbytes() >= 14 * 4
    for size, stride in [((2,), (1, 1)), ((2,), (-1,)), ((-1,), (1,)), ((2,), (2**62,))]:
        with pytest.raises(RuntimeError):
            ss.empty_strided(size, stride)


def test_channels_last_is_kept():
    x = ss.randn(2, 3, 4, 5).contiguous(memory_format=ss.channels_last)
    last = x.stride()
    assert x.is_contiguous(memory_format=ss.channels_last)
    assert not x.is_contiguous()
    for result in (x + 1, x.exp(), x * x, -x, x.relu(), x.clone(), ss.empty_like(x), x.double(),
                   x + ss.ones(3, 1, 1), ss.where(x > 0, x, 0), x.add_(1)):
        assert result.stride() == last
    np.testing.assert_allclose((x + 1).numpy(), x.numpy() + 1)
    assert x.contiguous().is_contiguous()
    assert x.to(memory_format=ss.contiguous_format).is_contiguous()
    out = ss.empty(2, 3, 4, 5)
    assert ss.exp(x, out=out).is_contiguous()
    np.testing.assert_allclose(out.numpy(), x.exp().numpy())


def test_dlpack_under_the_names_of_utils():
    tensor = ss.arange(6.0).reshape(2, 3)
    capsule = ss.utils.dlpack.to_dlpack(tensor)
    again = ss.utils.dlpack.from_dlpack(capsule)
    again.add_(1)
    assert tensor.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    with pytest.raises(BufferError, match="used up"):
        ss.utils.dlpack.from_dlpack(capsule)


def test_bfloat16_through_dlpack():
    tensor = ss.tensor([1.5, -2.0], dtype=ss.bfloat16)
    again = ss.from_dlpack(tensor)
    assert again.dtype is ss.bfloat16
    assert again.data_ptr() == tensor.data_ptr()
    assert again.tolist() == [1.5, -2.0]


def test_an_array_marks_its_tensor_until_it_goes():
    tensor = ss.arange(4.0)
    assert tensor.storage.exported == 0
    array = tensor.numpy()
    view = array[1:]
    assert tensor.storage.exported == 1
    del array
    assert tensor.storage.exported == 1
    del view
    assert tensor.storage.exported == 0
    address = tensor.data_ptr()
    assert address
    assert tensor.storage.exported
