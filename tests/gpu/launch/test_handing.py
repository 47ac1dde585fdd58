"""Memory that other code has: its launches are sent at once, copies into it are waited for."""

from __future__ import annotations

import gc
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.cli import main
from slipstream.core.api import guarded
from slipstream.core.api.dlpack import alive

COMPILED = not guarded.__file__.endswith(".py")

TWICE = """
extern "C" __global__ void twice(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2.0f * x[i];
}
"""


def singles() -> int:
    """How many launches went out by themselves because of memory that was handed out."""
    return sum(ss.cuda.launch_stats()["single"].get("exported storage", {}).values())


def is_deferred(work: Any) -> bool:
    """Whether what some work recorded still waits in the window."""
    ss.cuda.synchronize()
    work()
    queue = ss.cuda.current_stream().queue
    return len(queue.window.launches) > queue.window.drained


def test_a_bare_address_marks_the_storage_for_good() -> None:
    x = ss.ones(100, device="cuda")
    assert is_deferred(lambda: x.add_(1))
    assert x.data_ptr() == x.storage.address
    assert x[3:].data_ptr() == x.storage.address + 12
    before = singles()
    assert not is_deferred(lambda: x.add_(1))
    view = x[10:]
    assert not is_deferred(lambda: view.mul(2))
    assert singles() == before + 2
    # Another storage is another thing.
    other = x + 1
    assert is_deferred(lambda: other.add_(1))
    assert x.tolist() == [3.0] * 100


def test_an_address_sends_what_was_recorded_and_waits_for_nothing(restart: Any) -> None:
    driver = restart()
    x = ss.ones(1000, device="cuda")
    x.add_(1)
    before = driver.statistics()
    x.data_ptr()
    after = driver.statistics()
    assert after["synchronizations"] == before["synchronizations"]
    assert after["kernel_launches"] > before["kernel_launches"]


def test_a_window_that_is_sent_early_still_becomes_a_graph() -> None:
    x = ss.ones(64, device="cuda")
    handed = ss.ones(64, device="cuda")
    handed.data_ptr()

    def step() -> None:
        y = x * 2 + 1
        handed.copy_(y.exp() - y)

    for _ in range(4):
        step()
    ss.cuda.synchronize()
    before = ss.cuda.launch_stats()
    for _ in range(5):
        assert not is_deferred(step)
    after = ss.cuda.launch_stats()
    assert after["replayed"] - before["replayed"] == after["launches"] - before["launches"] == 25


def test_kernels_of_several_launches_are_sent_too() -> None:
    x = ss.rand(500, device="cuda")
    assert is_deferred(lambda: x.multinomial(3))
    x.data_ptr()
    assert not is_deferred(lambda: x.multinomial(3))


def test_kernels_from_a_string_do_not_export() -> None:
    x = ss.ones(100, device="cuda")
    ss.cuda.kernel(TWICE)[1, 128](x, 100)
    assert is_deferred(lambda: x.add_(1))
    assert x.tolist() == [3.0] * 100


# -- DLPack ---------------------------------------------------------------------------------------
def test_dlpack_exports_until_the_consumer_lets_go() -> None:
    x = ss.arange(12.0, device="cuda").reshape(3, 4)
    y = ss.from_dlpack(x.t())
    assert (y.shape, y.stride(), y.device) == ((4, 3), (1, 4), x.device)
    assert y.storage is not x.storage
    assert not is_deferred(lambda: x.add_(1))
    assert not is_deferred(lambda y=y: y.add_(1))
    assert x.tolist() == (np.arange(12.0).reshape(3, 4) + 2).tolist()
    del y
    gc.collect()
    assert is_deferred(lambda: x.add_(1))
    capsule = x.__dlpack__()
    assert not is_deferred(lambda: x.add_(1))
    del capsule
    assert is_deferred(lambda: x.add_(1))


def test_dlpack_keeps_the_memory() -> None:
    y = ss.from_dlpack(ss.full((1000,), 3.0, device="cuda"))
    others = [ss.zeros(1000, device="cuda") for _ in range(8)]
    assert y.sum().item() == 3000
    assert len(others) == 8


@pytest.mark.parametrize(
    "dtype", [ss.float32, ss.bfloat16, ss.bool, ss.int64, ss.complex64], ids=str)
def test_dlpack_of_every_kind_of_element(dtype: Any) -> None:
    x = ss.tensor([1, 0, 1], dtype=dtype).to("cuda")
    y = ss.from_dlpack(x)
    assert y.dtype is dtype
    assert y.tolist() == x.tolist()
    assert x.__dlpack_device__() == (2, 0)
    assert ss.from_dlpack(x, device="cpu").device.type == "cpu"
    assert np.from_dlpack(x, device="cpu").tolist() == x.tolist() if dtype is ss.float32 else True


def test_dlpack_orders_the_consumers_stream(restart: Any) -> None:
    for seed in range(5):
        driver = restart(seed=seed)
        x = ss.ones(5000, device="cuda")
        side = ss.cuda.Stream()
        ss.cuda.synchronize()
        x.add_(1)
        waits = driver.calls["stream_wait_event"]
        x.__dlpack__(stream=side.queue.stream)
        assert driver.calls["stream_wait_event"] == waits + 1
        with ss.cuda.stream(side):
            total = (x * 3).sum().item()
        assert total == 30000


def test_dlpack_to_a_stream_of_the_drivers(restart: Any) -> None:
    raw = ss.cuda.driver
    for seed in range(5):
        restart(seed=seed)
        x = ss.ones(4096, device="cuda")
        stream = raw.stream_create()
        x.add_(1)
        capsule = x.__dlpack__(stream=stream)
        module = raw.module_load(raw.compile(TWICE, "twice"))
        block = struct.pack("<Qi", x.storage.address, 4096)
        raw.launch(raw.get_function(module, "twice"), 32, 128, block, stream=stream)
        raw.stream_synchronize(stream)
        assert x.sum().item() == 4 * 4096
        del capsule


def test_dlpack_streams_that_are_none() -> None:
    x = ss.ones(4, device="cuda")
    for stream in (None, 1, 2, -1):
        assert "dltensor" in repr(x.__dlpack__(stream=stream))
    for wrong in (0, "1", 1.5, True):
        with pytest.raises(TypeError, match="stream"):
            x.__dlpack__(stream=wrong)
    with pytest.raises(BufferError, match="gradient"):
        ss.ones(2, device="cuda", requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="not"):
        x.__dlpack__(dl_device=(2, 1))


def test_a_capsule_is_used_once() -> None:
    capsule = ss.ones(3, device="cuda").__dlpack__()
    assert ss.from_dlpack(capsule).tolist() == [1.0] * 3
    with pytest.raises(BufferError, match="used up"):
        ss.from_dlpack(capsule)


# -- the array interface --------------------------------------------------------------------------
def test_the_cuda_array_interface() -> None:
    x = ss.arange(12.0, device="cuda").reshape(3, 4)
    found = x.__cuda_array_interface__
    assert (found["shape"], found["typestr"], found["strides"]) == ((3, 4), "<f4", None)
    assert found["data"] == (x.storage.address, False)
    assert found["version"] == 3
    assert x.t().__cuda_array_interface__["strides"] == (4, 16)
    assert not is_deferred(lambda: x.add_(1))
    assert not hasattr(ss.ones(3), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        _ = ss.ones(3, device="cuda", requires_grad=True).__cuda_array_interface__


# -- host memory ----------------------------------------------------------------------------------
def test_a_copy_into_memory_that_numpy_has_is_waited_for() -> None:
    source = ss.arange(1000.0, device="cuda")
    target = ss.zeros(1000).pin_memory()
    target.copy_(source, non_blocking=True)
    assert target.storage.pending is not None
    array = target.numpy()
    target.copy_(source * 2, non_blocking=True)
    # The array knows of no event: the elements are there.
    assert target.storage.pending is None
    assert array.tolist() == (2 * np.arange(1000.0)).tolist()
    del array
    target.copy_(source * 3, non_blocking=True)
    assert target.storage.pending is not None
    assert target.tolist() == (3 * np.arange(1000.0)).tolist()


def test_a_replay_into_memory_that_numpy_has_is_waited_for() -> None:
    source = ss.arange(100.0, device="cuda")
    target = ss.zeros(100).pin_memory()
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        target.copy_(source, non_blocking=True)
    array = target.numpy()
    for step in range(3):
        graph.replay()
        assert array.tolist() == (np.arange(100.0) + step).tolist()
        source.add_(1)


HANDED = """import slipstream as ss
x, mask = ss.ones(64, device="cuda"), ss.ones(64, device="cuda")
address = mask.data_ptr()
class Foreign:
    __cuda_array_interface__ = x.__cuda_array_interface__
y = x + 0
z = y * 2
z = z * mask
z += 1
x.add_(1)
pinned = ss.ones(64).pin_memory()
array = pinned.numpy()
pinned.copy_(y, non_blocking=True)
"""
# Of a line of it: the operand that is shared, and the line that handed it out.
WHY = {8: ("`other`", 3, "address = mask.data_ptr()"),
       6: ("`self`", 5, "__cuda_array_interface__ = x.__cuda_array_interface__"),
       10: ("what it writes", 5, "__cuda_array_interface__ = x.__cuda_array_interface__")}


@pytest.mark.parametrize("line", [6, 7, 8, 9, 10])
def test_explain_says_which_shared_memory_sent_a_launch(
        line: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text(HANDED)
    assert main(["explain", f"{path}:{line}"]) == 0
    text = capfd.readouterr().out
    kernel, = [each for each in text.splitlines() if each.startswith("  kernel    ")
               and "grid" in each]
    if line not in WHY:
        assert "exported storage" not in text
        assert "in the window" in kernel
        return
    operand, number, source = WHY[line]
    assert (f"sent at once, for {operand} is exported storage, handed out at {path}:{number} "
            f"(`{source}`)") in kernel
    assert "clone()" in kernel


def test_explain_tells_of_the_waits_of_a_line_that_calls_no_op(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text(HANDED)
    assert main(["explain", f"{path}:13"]) == 0
    text = capfd.readouterr().out
    assert "wait: pinned copy on cuda:0, " in text
    assert main(["explain", f"{path}:9"]) == 0
    assert "pinned copy" not in capfd.readouterr().out


@pytest.mark.skipif(not COMPILED, reason="ctypes calls Python while the consumer's error is raised")
def test_a_consumer_that_refuses_a_card_says_so_itself() -> None:
    x, held = ss.ones(2, device="cuda"), len(alive)
    with pytest.raises((RuntimeError, BufferError), match="device"):
        np.from_dlpack(x)
    assert len(alive) == held
