"""Options: which card, which call fails; and what is said where no compiler is found."""

from __future__ import annotations

import functools
import shutil
import struct
from typing import Any

import numpy as np
import pytest

from slipstream.core.native.driver import CompileError, Driver, DriverError, StreamCalls, Told
from slipstream.core.native.simulated import SimulatedDriver, images, kernels, toolchain
from slipstream.core.native.simulated.calls import FAILURES
from slipstream.core.vocab.settings import SimulatedCard, parse_bytes, parse_card

SET = 'extern "C" __global__ void kernel(int* out, int value) { *out = value; }'
SIZE = 2 << 20


class Everything:
    """Every call of the driver once, in an order that works."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver = driver
        self.made: dict[str, Any] = {}

    def attempt(self, name: str, *arguments: Any) -> Any:
        result = getattr(self.driver, name)(*arguments)
        self.made[name] = result
        return result

    def run(self) -> None:
        go, host = self.attempt, np.zeros(4, np.int32)
        go("properties", 0)
        go("use", go("context", 0))
        go("can_access_peer", 0, 1)
        x = go("allocate", 64)
        base, part = go("reserve", SIZE), go("create_physical", SIZE, 0)
        go("map", base, SIZE, part, 0)
        pinned = go("allocate_host", 64, True)
        go("device_address", pinned)
        go("memory_info")
        stream, event = go("create_stream"), go("create_event", True)
        go("fill", x, 0, 4, 16, stream)
        go("copy", x, host.ctypes.data, 16, "to_device", stream)
        module = go("load_module", go("compile", SET, "kernel", (), "sm_90"))
        function = go("function", module, "kernel")
        go("function_attributes", function)
        go("function_name", function)
        go("set_dynamic_shared", function, 1024)
        launch = (function, (1, 1, 1), (1, 1, 1), 0)
        block = struct.pack("Qi", x, 5)
        go("launch", *launch, stream, block)
        go("record_event", event, stream)
        go("stream_wait_event", stream, event)
        go("query_event", event)
        go("wait_event", event)
        go("elapsed", event, event)
        go("query_stream", stream)
        go("stream_number", stream)
        go("matmul_stand_in", stream, lambda: None)
        go("begin_capture", stream)
        captured = go("end_capture", stream)
        graph = go("create_graph")
        nodes = (go("add_kernel_node", graph, (), function, launch[1:], block),
                 go("add_copy_node", graph, (), pinned, x, 16, "to_host"),
                 go("add_fill_node", graph, (), x, 0, 4, 4),
                 go("add_child_node", graph, (), captured))
        executable = go("instantiate", graph)
        go("set_kernel_node", executable, nodes[0], function, launch[1:], block)
        go("set_copy_node", executable, nodes[1], pinned, x, 16, "to_host")
        go("set_fill_node", executable, nodes[2], x, 0, 4, 4)
        go("set_child_node", executable, nodes[3], captured)
        go("synchronize")
        go("wait_stream", stream)
        self.end(stream, event, module, graph, executable)
        go("unmap", base, SIZE)
        go("destroy_physical", part)
        go("release", base, SIZE)
        go("free", x)
        go("free_host", pinned)

    def end(self, stream: int, event: int, module: int, graph: int, executable: int) -> None:
        self.attempt("launch_graph", executable, stream)
        self.driver.desk.faults.clear()  # the nodes of that graph are in no order
        self.attempt("destroy_graph", graph)
        self.attempt("destroy_executable", executable)
        self.attempt("destroy_event", event)
        self.attempt("unload_module", module)
        self.attempt("destroy_stream", stream)


@functools.cache
def build(*arguments: Any) -> bytes:
    return images.build(*arguments)


def calls() -> list[str]:
    if not any(shutil.which(name) for name in toolchain.CANDIDATES):
        return []
    driver = SimulatedDriver(SimulatedCard(race=False))
    everything = Everything(driver)
    everything.run()
    return list(everything.made)


CALLS = calls()


def test_the_list_is_whole():
    members = {**vars(Told), **vars(StreamCalls), **vars(Driver)}
    abstract = {name for name, member in members.items()
                if callable(member) and not name.startswith("_")}
    told = {"handed_out", "taken_back", "host_touch", "statistics", "status_name", "version",
            "device_count", "priorities", "granularity", "compiler_version", "nodes",
            "captured_kernels", "on_idle", "product_library", "host_clock", "tell_work",
            "hold_interrupts", "let_interrupts"}
    # What runs on the host in stream order is there for tests alone.
    assert abstract - told == set(CALLS) - {"matmul_stand_in"}
    assert all(members[name] is not getattr(SimulatedDriver, name) for name in abstract - {
        "status_name"})


@pytest.mark.parametrize("name", CALLS)
def test_every_call_can_fail_and_changes_nothing(name, monkeypatch):
    monkeypatch.setattr(kernels, "build", build)
    driver = SimulatedDriver(SimulatedCard(race=False, fail={name: 1}))
    everything = Everything(driver)
    with pytest.raises((DriverError, CompileError)) as caught:
        everything.run()
    assert "option 'fail'" in str(caught.value)
    assert name in str(caught.value)
    if isinstance(caught.value, DriverError):
        assert caught.value.call == name
        assert caught.value.code == FAILURES.get(name, "UNKNOWN")
    left = driver.options.memory - sum(each.used for each in driver.contexts.values())
    again = Everything(driver)
    again.run()
    # All that the second run took it gave back.
    assert left == driver.options.memory - sum(each.used for each in driver.contexts.values())


def test_the_nth_call_fails():
    driver = SimulatedDriver(SimulatedCard(fail={"allocate": 3}))
    driver.use(driver.context(0))
    driver.allocate(8)
    driver.allocate(8)
    with pytest.raises(DriverError, match=r"OUT_OF_MEMORY.*call 3 of its kind"):
        driver.allocate(8)
    driver.allocate(8)
    driver.fail_next("free", 2)
    driver.free(driver.allocate(8))
    address = driver.allocate(8)
    with pytest.raises(DriverError):
        driver.free(address)
    driver.free(address)


@pytest.mark.parametrize(
    ("model", "capability"), [("T4", (7, 5)), ("A100", (8, 0)), ("H100", (9, 0))])
def test_models(make_card, model, capability):
    driver = make_card(model=model, devices=3, memory=3 << 30).driver
    assert driver.device_count() == 3
    properties = driver.properties(2)
    assert (properties.major, properties.minor) == capability
    assert properties.total_memory == 3 << 30
    assert properties.name.endswith("(simulated)")
    assert len({driver.properties(n).uuid for n in range(3)}) == 3


def test_an_unknown_model():
    with pytest.raises(ValueError, match=r"no simulated card is called 'H1000'.*H100"):
        SimulatedDriver(SimulatedCard(model="H1000"))


def test_options_from_a_text():
    card = parse_card(
        "memory=64MiB,devices=1,seed=3,race=0,poison=1,model=T4,fail=launch:5+allocate")
    assert card == SimulatedCard(memory=64 << 20, devices=1, seed=3, race=False, model="T4",
                                 fail={"launch": 5, "allocate": 1})
    assert parse_card("") == SimulatedCard()
    for text, nbytes in (("4096", 4096), ("1.5GiB", 3 << 29), ("2KiB", 2048), ("1TiB", 1 << 40)):
        assert parse_bytes(text) == nbytes
    with pytest.raises(ValueError, match="no option 'sed'; there are arrays, compiler, devices"):
        parse_card("sed=3")
    with pytest.raises(ValueError, match="SLIPSTREAM_SIM: memory=much: 'much' is no number"):
        parse_card("memory=much")


def test_no_compiler(monkeypatch):
    monkeypatch.setattr(toolchain, "CANDIDATES", ("no-such-compiler",))
    with pytest.raises(RuntimeError, match=r"none was found: install g\+\+.*CXX"):
        SimulatedDriver(SimulatedCard())
    with pytest.raises(RuntimeError, match="asked for: also-none -O3"):
        SimulatedDriver(SimulatedCard(compiler="also-none -O3"))


def test_the_engine_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.settings, "cache", str(tmp_path))
    builder = toolchain.Toolchain()
    engine = builder.engine()
    (kept,) = (tmp_path / "simulated").iterdir()
    assert toolchain.read_kept(kept, b"another key") is None
    kept.write_bytes(kept.read_bytes()[:-100] + bytes(100))  # a damaged file is built again
    assert builder.engine() == engine
