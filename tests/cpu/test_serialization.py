"""Saving and loading: what goes round, what is refused, what hostile files do."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import math
import pathlib
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import slipstream as ss
from slipstream import nn, optim
from slipstream.serialization import load, load_safetensors, save, save_safetensors

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128"]


def stored(obj: object) -> bytes:
    stream = io.BytesIO()
    save(obj, stream)
    return stream.getvalue()


def again(obj: object) -> object:
    return load(io.BytesIO(stored(obj)))


def same(a: ss.Tensor, b: ss.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


leaves = (st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
          | st.binary() | st.complex_numbers(allow_nan=False))
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
objects = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(objects)
def test_plain_objects_go_round(obj):
    assert repr(again(obj)) == repr(obj)


def test_special_values_go_round():
    assert math.isnan(again(math.nan))
    assert again([math.inf, -math.inf, 2 ** 200]) == [math.inf, -math.inf, 2 ** 200]
    ordered = again(collections.OrderedDict(b=1, a=2))
    assert isinstance(ordered, collections.OrderedDict)
    assert list(ordered) == ["b", "a"]
    assert again(ss.float16) == ss.float16
    assert again(ss.device("cpu")) == ss.device("cpu")
    assert again(ss.ones(2, 3).shape) == ss.ones(2, 3).shape


def test_a_buffer_is_saved_as_the_tensor_it_is():
    module = ss.nn.Module()
    module.kept = ss.nn.Buffer(ss.arange(3.0))
    state = module.state_dict(keep_vars=True)
    assert type(state["kept"]) is ss.nn.Buffer
    loaded = again(state)["kept"]
    assert type(loaded) is ss.Tensor
    assert same(loaded, ss.arange(3.0))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_goes_round(name):
    tensor = ss.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(ss, name))
    assert same(again(tensor), tensor)
    assert same(again(tensor[1, 1]), tensor[1, 1])


@pytest.mark.parametrize("view", [
    lambda t: t, lambda t: t[1], lambda t: t.permute(2, 0, 1), lambda t: t[:, 1:2],
    lambda t: t[:, :, 1], lambda t: t[::2, ::2], lambda t: t[:0], lambda t: t[1:2].expand(5, 3, 4),
    lambda t: t[0, 0, 0], lambda t: t[0].transpose(0, 1).reshape(1, 4, 1, 3),
])
def test_every_layout_goes_round(view):
    tensor = view(ss.arange(24).reshape(2, 3, 4))
    assert same(again(tensor), tensor)


def test_dense_layouts_keep_their_strides():
    tensor = ss.arange(24).reshape(2, 3, 4).permute(1, 2, 0)
    assert again(tensor).stride() == tensor.stride()
    assert again(ss.ones(3, 1).expand(3, 5)).stride() == (1, 0)


def test_sharing_goes_round():
    base = ss.arange(12).reshape(3, 4)
    obj = {"base": base, "row": base[1], "turned": base.transpose(0, 1), "same": base}
    loaded = again(obj)
    assert loaded["same"] is loaded["base"]
    loaded["base"][1, 0] = 99
    assert loaded["row"][0].item() == 99
    assert loaded["turned"][0, 1].item() == 99
    assert len(stored(obj)) < 2 * len(stored(base))


def test_a_small_part_of_a_large_tensor_makes_a_small_file():
    large = ss.zeros(1000, 1000)
    assert len(stored([large[3], large[999]])) < 20_000


def test_flags_and_kinds_go_round():
    loaded = again([nn.Parameter(ss.ones(2)), ss.ones(2, requires_grad=True), ss.ones(2)])
    assert isinstance(loaded[0], nn.Parameter)
    assert [each.requires_grad for each in loaded] == [True, True, False]
    assert (ss.ones(2, requires_grad=True) * 2).requires_grad
    assert again(ss.ones(2, requires_grad=True) * 2).is_leaf


def test_models_and_optimizers_go_round():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    optimizer = optim.AdamW(model.parameters())
    model(ss.ones(1, 2)).sum().backward()
    optimizer.step()
    saved = again({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    other.load_state_dict(saved["model"])
    assert saved["model"]._metadata[""] == {"version": 1}
    assert same(other[0].weight.detach(), model[0].weight.detach())
    optim.AdamW(other.parameters()).load_state_dict(saved["optimizer"])


def test_equal_objects_make_equal_files(tmp_path):
    obj = {"a": ss.arange(5), "b": [ss.ones(2), 3.5]}
    path = tmp_path / "file.slip"
    save(obj, path)
    assert path.read_bytes() == stored(obj) == stored(load(path))


def test_map_location():
    data = stored(ss.ones(2))
    assert load(io.BytesIO(data), "meta").is_meta
    assert load(io.BytesIO(data), ss.device("cpu")).device == ss.device("cpu")
    assert load(io.BytesIO(data), {"cpu": "meta"}).is_meta
    with pytest.raises(TypeError):
        load(io.BytesIO(data), 3.5)


@pytest.mark.parametrize("obj", [
    {1, 2}, object(), print, {"a": [lambda: 0]}, collections.namedtuple("Pair", "a")(1),
    ss.ones(2, device="meta"), {"module": nn.ReLU()}, np.timedelta64(5, "ns"), np.longdouble(1),
    np.clongdouble(1),
])
def test_what_is_no_data_is_refused(obj):
    with pytest.raises(TypeError, match="cannot be saved"):
        stored(obj)


def test_endless_objects_are_refused():
    inner: list[object] = []
    inner.append(inner)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for obj in (inner, deep):
        with pytest.raises(ValueError, match=r"itself|deeply"):
            stored(obj)


def test_only_data_is_loaded(tmp_path):
    assert load(io.BytesIO(stored({"a": 1})), weights_only=False) == {"a": 1}
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(1))
    for weights_only in (True, False):
        with pytest.raises(RuntimeError, match="pickle"):
            load(archive, weights_only=weights_only)
    with pytest.raises(TypeError, match="mend: map_location='cpu'"):
        load(io.BytesIO(stored(1)), map_location=lambda storage, _: storage)


def test_what_has_a_state_is_told_to_save_it():
    with pytest.raises(TypeError, match=r"is a Linear, .*\n  mend: save its state_dict\(\)"):
        stored(ss.nn.Linear(1, 1))


# Hostile files.

SAMPLE = {"w": ss.arange(6).reshape(2, 3), "v": [ss.ones(3), True, 2.5], "t": (1 + 2j, b"x")}


def refused_or_read(data: bytes) -> None:
    """Loading either works or raises an error of the kinds that are promised."""
    with contextlib.suppress(RuntimeError, ValueError):
        load(io.BytesIO(data))


@given(st.binary(max_size=200))
def test_any_bytes(data):
    with pytest.raises((RuntimeError, ValueError)):
        load(io.BytesIO(data))


@given(st.data())
def test_a_file_cut_short_is_refused(data):
    whole = stored(SAMPLE)
    with pytest.raises(RuntimeError):
        load(io.BytesIO(whole[:data.draw(st.integers(0, len(whole) - 1))]))


@given(st.lists(st.tuples(st.integers(0, 10 ** 6), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(changes):
    data = bytearray(stored(SAMPLE))
    for place, value in changes:
        data[place % len(data)] = value
    refused_or_read(bytes(data))


def rewritten(change, sizes: dict[str, int] | None = None) -> bytes:
    """The sample with its index changed, and valid checksums."""
    source = zipfile.ZipFile(io.BytesIO(stored(SAMPLE)))
    index = json.loads(source.read("slipstream.json"))
    index = change(index) or index
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        target.writestr("slipstream.json", json.dumps(index))
        for name in source.namelist()[1:]:
            target.writestr(name, source.read(name)[:(sizes or {}).get(name)])
    return stream.getvalue()


def tensor_with(**entries):
    return lambda index: index["tensors"][0].update(entries)


@pytest.mark.parametrize("change", [
    tensor_with(shape=[2 ** 40, 2 ** 40]), tensor_with(shape=[2 ** 62], stride=[1]),
    tensor_with(shape=[2, 4], stride=[4, 1]), tensor_with(shape=[-1, 3]),
    tensor_with(shape=[2, 3], stride=[1, 1]), tensor_with(stride=[3, 1, 1]),
    tensor_with(shape=[1] * 100, stride=[1] * 100), tensor_with(shape=[2.0, 3.0]),
    tensor_with(shape=[True, 3]), tensor_with(offset=1), tensor_with(offset=-1),
    tensor_with(offset=None), tensor_with(block=9), tensor_with(block=-1), tensor_with(block="0"),
    tensor_with(dtype="float64"), tensor_with(dtype="object"), tensor_with(requires_grad=True),
    tensor_with(requires_grad=3), tensor_with(parameter=None), tensor_with(device=7),
    tensor_with(device="c" * 1000), tensor_with(device="nonsense"),
    lambda index: index["tensors"].clear(), lambda index: index.pop("tensors"),
    lambda index: index["blocks"].append({"dtype": "int8", "count": 10 ** 15}),
    lambda index: index["blocks"][0].update(count=10 ** 15),
    lambda index: index["blocks"][0].update(dtype=["int8"]),
    lambda index: index["blocks"].__setitem__(0, None), lambda index: index.update(version=2),
    lambda index: index.update(format="other"), lambda index: [index],
    lambda index: index.update(tree={"call": "os.system"}),
    lambda index: index.update(tree={"list": 3}), lambda index: index.update(tree={"dict": [[1]]}),
    lambda index: index.update(tree={"dict": [[{"list": []}, 1]]}),
    lambda index: index.update(tree={"tensor": 99}), lambda index: index.update(tree=[1]),
    lambda index: index.update(tree={"dtype": "device"}),
    lambda index: index.update(tree={"device": "nonsense"}),
    lambda index: index.update(tree={"complex": ["1", "2"]}),
    lambda index: index.update(tree={"bytes": "§"}),
    lambda index: index.update(tree={"size": ["a"]}),
    lambda index: index.update(tree={"ordered": [1]}),
])
def test_a_lying_index_is_refused(change):
    with pytest.raises((RuntimeError, ValueError)):
        load(io.BytesIO(rewritten(change)))


def test_a_deep_index_is_refused():
    text = '{"list": [' * 50_000 + "]}" * 50_000
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        target.writestr("slipstream.json", text)
    with pytest.raises((RuntimeError, ValueError)):
        load(stream)


def test_short_and_compressed_blocks_are_refused():
    with pytest.raises(RuntimeError, match="bytes"):
        load(io.BytesIO(rewritten(lambda index: None, {"data/0": 7})))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("slipstream.json", json.dumps({"zeros": "0" * 10 ** 6}))
    with pytest.raises(RuntimeError, match="compressed"):
        load(stream)


def test_a_boolean_is_zero_or_one():
    source = zipfile.ZipFile(io.BytesIO(stored(ss.tensor([True, False]))))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        target.writestr("slipstream.json", source.read("slipstream.json"))
        target.writestr("data/0", b"\x01\x07")
    with pytest.raises(RuntimeError, match="boolean"):
        load(stream)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2 ** 70, 2 ** 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner,
                                                                max_size=3), max_leaves=6)


def places_of(node: object, path: tuple = ()) -> list[tuple]:
    """The paths to all values below a JSON value."""
    inner = node.items() if isinstance(node, dict) else (
        enumerate(node) if isinstance(node, list) else ())
    return [deeper for key, value in inner
            for deeper in [(*path, key), *places_of(value, (*path, key))]]


@settings(max_examples=300)
@given(st.data())
def test_any_value_in_the_index(data):
    def change(index):
        *path, last = data.draw(st.sampled_from(places_of(index)))
        node = index
        for key in path:
            node = node[key]
        node[last] = data.draw(json_values)

    refused_or_read(rewritten(change))


# Safetensors.

@pytest.mark.parametrize("name", [name for name in DTYPES if name != "complex128"])
def test_safetensors_go_round(tmp_path, name):
    path = tmp_path / "weights.safetensors"
    tensor = ss.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(ss, name))
    save_safetensors({"a": tensor, "turned": tensor.transpose(0, 1), "scalar": tensor[0, 1]}, path,
                     metadata={"made by": "a test"})
    loaded = load_safetensors(path)
    assert same(loaded["a"], tensor)
    assert same(loaded["turned"], tensor.transpose(0, 1))
    assert same(loaded["scalar"], tensor[0, 1])


def test_safetensors_have_the_public_layout(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_safetensors({"w": ss.tensor([1.0, 2.0])}, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert json.loads(data[8:8 + size])["w"] == {
        "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert data[8 + size:] == np.array([1.0, 2.0], dtype="<f4").tobytes()


def with_header(header: object) -> bytes:
    """A safetensors file that has nothing but this header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


headers = st.dictionaries(st.text(max_size=3), st.fixed_dictionaries({
    "dtype": st.sampled_from(["F32", "BOOL", "F8_E4M3", "X"]),
    "shape": st.lists(st.integers(-1, 2 ** 62), max_size=3),
    "data_offsets": st.lists(st.integers(-1, 2 ** 62), max_size=3),
}))


@given(st.binary(max_size=64) | headers.map(with_header))
def test_hostile_safetensors(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "hostile.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(RuntimeError, ValueError):
        load_safetensors(path)


def test_safetensors_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_safetensors(tmp_path / "nothing")
    with pytest.raises(TypeError, match="not a tensor"):
        save_safetensors({"a": [1.0]}, tmp_path / "file")


def test_numbers_of_numpy_are_numbers():
    values = {"best": np.float32(0.5), "step": np.int64(3), "done": np.bool_(True)}
    found = load(io.BytesIO(stored(values)))
    assert found == {"best": 0.5, "step": 3, "done": True}
    assert [type(each) for each in found.values()] == [float, int, bool]


@pytest.mark.parametrize(("value", "mend"), [
    (np.ones(3), r"torch.from_numpy\(\) of it"), ({1, 2}, r"list\(\) of it"),
    (collections.namedtuple("Pair", "a b")(1, 2), r"tuple\(\) of it"),
    (pathlib.Path("here"), r"str\(\) of it"), (argparse.Namespace(a=1), r"vars\(\) of it"),
])
def test_what_cannot_be_saved_names_what_can(value, mend):
    with pytest.raises(TypeError, match=f"cannot be saved(.|\n)*mend: save {mend}"):
        stored({"value": value})
