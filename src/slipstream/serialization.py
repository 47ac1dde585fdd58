"""Saving and loading: a container that holds data and never code, and safetensors files.

``save`` writes a zip file without compression:

- ``slipstream.json``: {"format": "slipstream", "version": 1, "tree": ..., "tensors": [...],
  "blocks": [...]}.  ``tree`` is the object: null, booleans, numbers and strings stand for
  themselves, everything else is an object with one key that says what it is (``_Writer`` has the
  list).  A tensor has a dtype, shape, stride and offset in elements, the number of its block, its
  device, whether it requires a gradient and whether it is a Parameter.
- ``data/N``: block N, little-endian elements of one dtype.  Tensors that overlap in memory share a
  block and share storage again when loaded.  A tensor whose elements do not lie densely (a column
  of a matrix, every second element) is written as a copy of its own.

``load`` believes nothing: every size, offset and count is checked against the file before memory
is taken for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from typing import IO, Any

import ml_dtypes
import numpy as np

import slipstream as ss
from slipstream.core.api.waits import asked
from slipstream.core.vocab.optional import require
from slipstream.nn.parameter import Buffer, Parameter

File = str | os.PathLike[str] | IO[bytes]

FORMAT = "slipstream"
VERSION = 1
INDEX = "slipstream.json"
MAX_DIMS = 64
# Of NumPy's numbers those that Python has no number for.
NO_NUMBERS = (np.longdouble, np.clongdouble, np.timedelta64)
NUMPY = {
    "bool": np.dtype("bool"), "uint8": np.dtype("uint8"), "int8": np.dtype("int8"),
    "int16": np.dtype("int16"), "int32": np.dtype("int32"), "int64": np.dtype("int64"),
    "float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype("float32"), "float64": np.dtype("float64"),
    "complex64": np.dtype("complex64"), "complex128": np.dtype("complex128"),
}


def dtype_name(dtype: ss.dtype) -> str:
    """A dtype's name without the package's; raises TypeError for one that files do not have."""
    name = str(dtype).rpartition(".")[2]
    if name not in NUMPY:
        raise TypeError(f"tensors of {dtype} cannot be saved")
    return name


# Saving.

def save(obj: Any, f: File) -> None:
    """Write ``obj`` to a path or a binary file.

    ``obj`` may be None, a bool, int, float, complex, str or bytes, a tensor or Parameter, a dtype,
    device or shape, or a dict, OrderedDict, list or tuple of these, nested.  A Buffer is the tensor
    that it holds, as in PyTorch.  Raises TypeError, naming the place, for anything else and
    ValueError for an object that contains itself.
    """
    writer = _Writer()
    tree = writer.encode(obj, "the object")
    blocks = writer.layout()
    index = {"format": FORMAT, "version": VERSION, "tree": tree, "tensors": writer.tensors,
             "blocks": [{"dtype": block.dtype, "count": block.stop - block.start}
                        for block in blocks]}
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
        _write_member(archive, INDEX, json.dumps(index).encode())
        for number, block in enumerate(blocks):
            _write_member(archive, f"data/{number}", block.data())


def _write_member(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    # A fixed date: equal objects make equal files.
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(data)


class _Block:
    """Elements of one storage that one or several overlapping tensors hold."""

    def __init__(self, dtype: str, start: int, stop: int) -> None:
        self.dtype = dtype
        self.start = start
        self.stop = stop
        self.members: list[tuple[int, ss.Tensor]] = []

    def data(self) -> memoryview:
        """The elements, little-endian."""
        parts = [(offset, _flat(tensor)) for offset, tensor in self.members]
        if len(parts) == 1:
            elements = parts[0][1]
        else:
            elements = np.empty(self.stop - self.start, NUMPY[self.dtype])
            for offset, part in parts:
                elements[offset - self.start:offset - self.start + part.size] = part
        if sys.byteorder == "big":
            elements = elements.byteswap()
        return elements.view(np.uint8).data


def _flat(tensor: ss.Tensor) -> np.ndarray:
    """The elements of a dense tensor in the order in which they lie in memory."""
    order, expanded = _memory_order(tensor.shape, tensor.stride())
    places = tuple(slice(0, 1) if dim in expanded else slice(None) for dim in range(tensor.ndim))
    dense = tensor[places].permute(order) if tensor.ndim else tensor
    return np.ascontiguousarray(asked("save", tensor, dense.cpu).numpy()).reshape(-1)


def _memory_order(shape: Sequence[int], stride: Sequence[int]) -> tuple[list[int], set[int]]:
    """Dims from the slowest to the fastest, and those that repeat the same elements."""
    expanded = {dim for dim, (size, step) in enumerate(zip(shape, stride, strict=True))
                if step == 0 and size > 1}
    order = sorted(range(len(shape)), key=lambda dim: (-stride[dim], shape[dim] != 1, dim))
    return order, expanded


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill a stretch of memory once, but for repetition by stride 0."""
    order, expanded = _memory_order(shape, stride)
    expected = 1
    for dim in reversed(order):
        if dim in expanded or shape[dim] == 1:
            continue
        if stride[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def _mend(value: Any) -> str:
    """What to save instead of a value, or nothing."""
    word = ""
    if hasattr(value, "state_dict"):
        word = "its state_dict()"
    elif isinstance(value, np.ndarray):
        word = "torch.from_numpy() of it"
    elif isinstance(value, tuple | Set | Sequence | range):
        word = f"{'tuple' if isinstance(value, tuple) else 'list'}() of it"
    elif isinstance(value, os.PathLike):
        word = "str() of it"
    elif hasattr(value, "__dict__") and not callable(value):
        word = "vars() of it"
    return word and f"\n  mend: save {word}"


class _Writer:
    """Turns an object into its tree and collects the tensors in it."""

    def __init__(self) -> None:
        self.tensors: list[dict[str, Any]] = []
        self.sources: list[ss.Tensor] = []
        self.known: dict[int, int] = {}
        self.open: set[int] = set()

    def encode(self, value: Any, where: str) -> Any:
        """The node for ``value``, which was found at ``where``."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, float):
            return float(value)
        if isinstance(value, np.number | np.bool_) and not isinstance(value, NO_NUMBERS):
            return self.encode(value.item(), where)
        if isinstance(value, ss.Tensor):
            return {"tensor": self.add_tensor(value, where)}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, ss.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, ss.device):
            return {"device": str(value)}
        return self.encode_container(value, where)

    def encode_container(self, value: Any, where: str) -> dict[str, Any]:
        """The node for a dict, list, tuple or shape."""
        words: dict[type, str] = {list: "list", tuple: "tuple", ss.Size: "size"}
        kind = "dict" if isinstance(value, dict) else words.get(type(value))
        if kind is None:
            raise TypeError(f"{where} is a {type(value).__name__}, which cannot be saved: files "
                            f"hold tensors, numbers, texts, lists, tuples and dicts, never code"
                            f"{_mend(value)}")
        if id(value) in self.open:
            raise ValueError(f"{where} contains itself")
        self.open.add(id(value))
        try:
            if kind == "dict":
                return self.encode_dict(value, where)
            return {kind: [self.encode(item, f"{where}[{place}]")
                           for place, item in enumerate(value)]}
        except RecursionError:
            raise ValueError("the object is nested too deeply to be saved") from None
        finally:
            self.open.discard(id(value))

    def encode_dict(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        """The node for a dict; the metadata of a state_dict stays with it."""
        pairs = [[self.encode(key, f"a key of {where}"), self.encode(item, f"{where}[{key!r}]")]
                 for key, item in value.items()]
        if not isinstance(value, OrderedDict):
            return {"dict": pairs}
        metadata = getattr(value, "_metadata", None)
        return {"ordered": [pairs, self.encode(metadata, f"the metadata of {where}")]}

    def add_tensor(self, tensor: ss.Tensor, where: str) -> int:
        """The number of ``tensor``, which is written once however often it occurs."""
        if id(tensor) in self.known:
            return self.known[id(tensor)]
        if type(tensor) not in (ss.Tensor, Parameter, Buffer) or tensor.is_meta:
            what = "a meta tensor" if tensor.is_meta else f"a {type(tensor).__name__}"
            raise TypeError(f"{where} is {what}, which cannot be saved")
        self.known[id(tensor)] = len(self.tensors)
        source = tensor.detach()
        if not _is_dense(source.shape, source.stride()):
            source = source.contiguous()
        self.tensors.append({
            "dtype": dtype_name(tensor.dtype), "shape": list(source.shape),
            "stride": list(source.stride()), "device": str(tensor.device),
            "requires_grad": bool(tensor.requires_grad),
            "parameter": isinstance(tensor, Parameter),
        })
        # Kept, so that its id is not given to another tensor while saving.
        self.sources.append(source)
        return len(self.tensors) - 1

    def layout(self) -> list[_Block]:
        """Give every tensor its block and offset; tensors that overlap come into one."""
        first: dict[Any, int] = {}
        spans = []
        for number, source in enumerate(self.sources):
            _, expanded = _memory_order(source.shape, source.stride())
            count = math.prod(size for dim, size in enumerate(source.shape) if dim not in expanded)
            start = source.storage_offset()
            storage = first.setdefault(source.untyped_storage(), number)
            key = (storage, self.tensors[number]["dtype"])
            spans.append((key, start, start + count, number))
        blocks: list[_Block] = []
        owner = None
        for key, start, stop, number in sorted(spans):
            if key != owner or start >= blocks[-1].stop:
                blocks.append(_Block(key[1], start, stop))
                owner = key
            block = blocks[-1]
            block.stop = max(block.stop, stop)
            block.members.append((start, self.sources[number]))
            self.tensors[number].update(block=len(blocks) - 1, offset=start - block.start)
        return blocks


# Loading.

class CorruptFile(RuntimeError):
    """A file that is damaged, cut short, or not what it says it is."""


def load(f: File, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what ``save`` wrote from a path or a binary file; no code in it is ever run.

    ``map_location``: a device for all tensors, or a dict from saved to new devices; by default a
    tensor returns to the device it was saved from.  ``weights_only=False`` is taken and allows no
    more: files hold data alone.  Raises RuntimeError for a file that is damaged or of another
    format, TypeError for a ``map_location`` of another kind.
    """
    if not (map_location is None or isinstance(map_location, str | ss.device | Mapping)):
        raise TypeError("map_location is a device or a dict of devices, not "
                        f"{type(map_location).__name__}\n  mend: map_location='cpu' brings all "
                        "tensors to the CPU")
    try:
        with zipfile.ZipFile(f) as archive:
            return _Reader(archive, map_location).read()
    except CorruptFile:
        raise
    except (zipfile.BadZipFile, EOFError, struct.error, NotImplementedError, RecursionError,
            UnicodeError, OverflowError, MemoryError, zipfile.LargeZipFile) as error:
        raise CorruptFile(f"the file cannot be read as one of {FORMAT}'s: {error}") from error


def _check(fits: object, what: str) -> None:
    if not fits:
        raise CorruptFile(f"the file is damaged: {what}")


def _is_count(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value <= limit


class _Reader:
    """Checks a file's index and makes the object that it describes."""

    def __init__(self, archive: zipfile.ZipFile, map_location: Any) -> None:
        self.archive = archive
        self.map_location = map_location
        self.members = self.checked_members()
        self.blocks: list[dict[str, Any]] = []
        self.loaded: dict[tuple[int, str], ss.Tensor] = {}
        self.tensors: list[Any] = []

    def checked_members(self) -> dict[str, zipfile.ZipInfo]:
        """The members by name.

        Nothing is compressed, and all together are no larger than the file, so that reading takes
        no more memory than the file's size.
        """
        stream = self.archive.fp
        assert stream is not None
        total = stream.seek(0, os.SEEK_END)
        infos = self.archive.infolist()
        names = [info.filename for info in infos]
        if INDEX not in names and any(name.endswith("data.pkl") for name in names):
            raise CorruptFile("this is a file of PyTorch's that holds a pickle, which can run "
                              "code: save it as safetensors and use load_safetensors")
        for info in infos:
            _check(info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
                   and info.compress_size == info.file_size, f"{info.filename} is compressed")
        _check(sum(info.file_size for info in infos) <= total, "members overlap")
        _check(len(set(names)) == len(names), "a member occurs twice")
        return dict(zip(names, infos, strict=True))

    def read(self) -> Any:
        """The object."""
        _check(INDEX in self.members, f"{INDEX} is missing")
        try:
            index = json.loads(self.archive.read(self.members[INDEX]))
        except ValueError as error:
            raise CorruptFile(f"the file is damaged: its index is no JSON: {error}") from error
        _check(isinstance(index, dict) and index.get("format") == FORMAT, "no format is given")
        if index.get("version") != VERSION:
            raise CorruptFile(f"the file has version {index.get('version')!r} of the format; this "
                              f"version of the package reads {VERSION}")
        tensors, self.blocks = index.get("tensors"), index.get("blocks")
        _check(isinstance(tensors, list) and isinstance(self.blocks, list), "a list is missing")
        for number, block in enumerate(self.blocks):
            self.check_block(number, block)
        self.tensors = [self.make_tensor(entry) for entry in tensors]
        return self.decode(index.get("tree"))

    def check_block(self, number: int, block: Any) -> None:
        """Raise CorruptFile unless the block's member has the size that its dtype and count ask."""
        info = self.members.get(f"data/{number}")
        _check(info is not None and isinstance(block, dict), f"block {number} is missing")
        assert info is not None
        _check(isinstance(block.get("dtype"), str) and block["dtype"] in NUMPY
               and _is_count(block.get("count"), info.file_size), f"block {number} is unknown")
        size = block["count"] * NUMPY[block["dtype"]].itemsize
        _check(size == info.file_size, f"block {number} should have {size} bytes and has "
                                       f"{info.file_size}")

    def make_tensor(self, entry: Any) -> ss.Tensor:
        """The tensor that an entry of the index describes."""
        _check(isinstance(entry, dict), "a tensor is unknown")
        number, offset = entry.get("block"), entry.get("offset")
        _check(_is_count(number, len(self.blocks) - 1), "a tensor has no block")
        block = self.blocks[number]
        _check(_is_count(offset, block["count"]), "a tensor lies outside its block")
        shape, stride = entry.get("shape"), entry.get("stride")
        _check_layout(shape, stride)
        _check(entry.get("dtype") == block["dtype"], "a tensor has not its block's dtype")
        base = self.load_block(number, self.target_device(entry.get("device")))
        tensor = _view(base, shape, stride, offset)
        requires_grad = entry.get("requires_grad")
        _check(isinstance(requires_grad, bool) and isinstance(entry.get("parameter"), bool)
               and not (requires_grad and not _differentiable(tensor)), "a tensor has no flags")
        if entry["parameter"]:
            return Parameter(tensor, requires_grad)
        return tensor.requires_grad_(requires_grad)

    def target_device(self, saved: Any) -> str:
        """The device that a tensor goes to."""
        where = self.map_location
        if where is None or isinstance(where, Mapping):
            _check(isinstance(saved, str) and len(saved) < 32, "a tensor has no device")
            where = saved if where is None else where.get(saved, saved)
        return str(where)

    def load_block(self, number: int, device: str) -> ss.Tensor:
        """All elements of a block, on ``device``."""
        if (number, device) not in self.loaded:
            info = self.members[f"data/{number}"]
            raw = np.empty(info.file_size, np.uint8)
            with self.archive.open(info) as member:
                _check(_read_into(member, raw.data) == raw.size, "it ends too early")
            elements = _elements(raw, self.blocks[number]["dtype"])
            self.loaded[number, device] = ss.from_numpy(elements).to(device)
        return self.loaded[number, device]

    def decode(self, node: Any) -> Any:
        """The value of a node."""
        if node is None or isinstance(node, bool | int | float | str):
            return node
        _check(isinstance(node, dict) and len(node) == 1, "a node is unknown")
        kind, content = next(iter(node.items()))
        if kind in ("list", "tuple", "size", "dict", "ordered"):
            _check(isinstance(content, list), f"a {kind} is no list")
            return self.decode_container(kind, content)
        if kind == "tensor":
            _check(_is_count(content, len(self.tensors) - 1), "a tensor is missing")
            return self.tensors[content]
        return _decode_scalar(kind, content)

    def decode_container(self, kind: str, content: list[Any]) -> Any:
        """The value of a list, tuple, shape or dict."""
        if kind == "dict":
            return dict(self.pairs(content))
        if kind == "ordered":
            _check(len(content) == 2, "an ordered dict has two parts")
            result = OrderedDict(self.pairs(content[0]))
            metadata = self.decode(content[1])
            if metadata is not None:
                result._metadata = metadata  # type: ignore[attr-defined]
            return result
        items = [self.decode(item) for item in content]
        if kind == "size":
            _check(all(_is_count(item, 2 ** 63 - 1) for item in items), "a shape is wrong")
            return ss.Size(items)
        return items if kind == "list" else tuple(items)

    def pairs(self, content: Any) -> list[tuple[Any, Any]]:
        """Keys and values of a dict."""
        _check(isinstance(content, list), "a dict is no list of pairs")
        result = []
        for pair in content:
            _check(isinstance(pair, list) and len(pair) == 2, "a dict is no list of pairs")
            key = self.decode(pair[0])
            try:
                hash(key)
            except TypeError:
                raise CorruptFile("the file is damaged: a key cannot be hashed") from None
            result.append((key, self.decode(pair[1])))
        return result


def _decode_scalar(kind: str, content: Any) -> Any:
    """The value of a node that holds no other nodes."""
    if kind == "complex":
        _check(isinstance(content, list) and len(content) == 2
               and all(isinstance(part, int | float) for part in content), "a complex is wrong")
        return complex(*content)
    _check(isinstance(content, str), f"a {kind} is unknown")
    if kind == "bytes":
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise CorruptFile(f"the file is damaged: {error}") from error
    if kind == "device":
        _check(len(content) < 32, "a device is unknown")
        return ss.device(content)
    _check(kind == "dtype" and content in NUMPY, f"a {kind} is unknown")
    return getattr(ss, content)


def _check_layout(shape: Any, stride: Any) -> None:
    """Raise CorruptFile unless these are the shape and strides of a dense tensor."""
    limit = 2 ** 63 - 1
    for numbers in (shape, stride):
        _check(isinstance(numbers, list) and len(numbers) <= MAX_DIMS
               and all(_is_count(number, limit) for number in numbers), "a shape is wrong")
    _check(len(shape) == len(stride), "a tensor has not as many strides as dims")
    _check(math.prod(shape) * 16 <= limit, "a tensor is too large")
    _check(0 in shape or _is_dense(shape, stride), "strides do not fit their shape")


def _view(base: ss.Tensor, shape: list[int], stride: list[int], offset: int) -> ss.Tensor:
    """The dense tensor of this layout in a block; raises CorruptFile if it does not fit there."""
    order, expanded = _memory_order(shape, stride)
    sizes = [1 if dim in expanded else size for dim, size in enumerate(shape)]
    stop = offset + math.prod(sizes)
    _check(stop <= base.numel(), "a tensor lies outside its block")
    if not shape:
        return base[offset]
    inverse = sorted(range(len(shape)), key=lambda place: order[place])
    dense = base[offset:stop].view([sizes[dim] for dim in order]).permute(inverse)
    return dense.expand(shape) if expanded else dense


def _differentiable(tensor: ss.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _read_into(stream: Any, target: memoryview) -> int:
    """Fill ``target`` from ``stream``; return how many bytes came."""
    filled = 0
    while filled < len(target):
        count = stream.readinto(target[filled:])
        if not count:
            break
        filled += count
    return filled


def _elements(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Bytes of a file as elements; a boolean is 0 or 1, as other bytes would be neither."""
    if dtype == "bool":
        _check(not raw.size or raw.max() <= 1, "a boolean is neither 0 nor 1")
    elements = raw.view(NUMPY[dtype])
    return elements.byteswap() if sys.byteorder == "big" else elements


# Safetensors.

def save_safetensors(tensors: Mapping[str, ss.Tensor], path: str | os.PathLike[str],
                     metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name to a safetensors file.

    Tensors that share memory are written once each.  Raises TypeError for a value that is no
    tensor; ImportError where the package safetensors is missing.
    """
    library = require("safetensors.numpy", "demo")
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, ss.Tensor):
            raise TypeError(f"{name!r} is a {type(tensor).__name__}, not a tensor")
        dtype_name(tensor.dtype)
        there = asked("save", tensor, tensor.detach().cpu)
        arrays[name] = np.ascontiguousarray(there.numpy())
        arrays[name] = arrays[name].reshape(tuple(tensor.shape))
    library.save_file(arrays, os.fspath(path), None if metadata is None else dict(metadata))


def load_safetensors(path: str | os.PathLike[str], device: Any = "cpu") -> dict[str, ss.Tensor]:
    """Read the tensors of a safetensors file to ``device``.

    Raises RuntimeError for a damaged file and for a dtype that Slipstream does not have;
    ImportError where the package safetensors is missing.
    """
    library = require("safetensors.numpy", "demo")
    try:
        arrays = library.load_file(os.fspath(path))
    except OSError:
        raise
    except Exception as error:
        # The library's own error, and what NumPy says to a dtype that it does not know.
        raise CorruptFile(f"{os.fspath(path)} cannot be read: {error}") from error
    tensors = {}
    for name, array in arrays.items():
        if array.dtype.name not in NUMPY:
            raise CorruptFile(f"{name!r} has dtype {array.dtype.name}, which Slipstream lacks")
        if array.dtype == np.bool_:
            _elements(array.reshape(-1).view(np.uint8), "bool")
        tensors[name] = ss.from_numpy(array).to(device)
    return tensors
