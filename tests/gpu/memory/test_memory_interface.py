"""PyTorch's interface to a card's memory, with tensors."""

from __future__ import annotations

import gc
import inspect
import pickle

import pytest

import slipstream as ss

cuda = pytest.importorskip("slipstream.cuda")
memory = pytest.importorskip("slipstream.cuda.memory")
pytestmark = pytest.mark.skipif(
    not cuda.is_available(), reason="no CUDA driver; SLIPSTREAM_DRIVER=sim gives one")

MEGA = 1 << 20
KEYS = [f"{name}.{pool}.{figure}"
        for name in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes",
                     "active_bytes")
        for pool in ("all", "large_pool", "small_pool")
        for figure in ("current", "allocated", "freed")]


@pytest.fixture(autouse=True)
def tidy():
    gc.collect()
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    yield
    gc.collect()
    memory.set_per_process_memory_fraction(1.0)
    memory.empty_cache()


def cap(nbytes):
    """Let this process reserve at most so many bytes more than it does now."""
    total = memory.mem_get_info()[1]
    memory.set_per_process_memory_fraction((memory.memory_reserved() + nbytes + 1) / total)


def line():
    """The caller's line."""
    frame = inspect.currentframe()
    return f"{__file__}:{frame.f_back.f_lineno}"


def test_tensors_are_counted():
    before = memory.memory_allocated()
    a = ss.empty(3 * MEGA, dtype=ss.uint8, device="cuda")
    b = ss.empty(1000, dtype=ss.uint8, device="cuda")
    assert memory.memory_allocated() - before == 3 * MEGA + 1024
    assert memory.max_memory_allocated() - before == 3 * MEGA + 1024
    assert memory.memory_reserved() >= memory.memory_allocated()
    del a, b
    assert memory.memory_allocated() == before
    assert memory.max_memory_allocated() - before == 3 * MEGA + 1024
    memory.reset_peak_memory_stats()
    assert memory.max_memory_allocated() == before


def test_statistics_have_pytorchs_names():
    held = ss.ones(10, device="cuda")
    stats = memory.memory_stats()
    assert set(KEYS) <= set(stats)
    assert stats["inactive_split_bytes.all.current"] == (
        memory.memory_reserved() - memory.memory_allocated())
    assert memory.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == stats[
        "allocated_bytes.all.current"]
    assert "Allocated memory" in memory.memory_summary()
    assert "test_memory_interface.py" in memory.memory_summary()
    assert "test_memory_interface.py" not in memory.memory_summary(abbreviated=True)
    memory.reset_accumulated_memory_stats()
    assert memory.memory_stats()["allocated_bytes.all.freed"] == 0
    assert held.device.type == "cuda"


def test_devices_are_named_in_every_way():
    ss.ones(10, device="cuda")
    found = {memory.memory_reserved(each)
             for each in (None, 0, "cuda", "cuda:0", ss.device("cuda", 0))}
    assert len(found) == 1
    with pytest.raises(ValueError, match="Expected a cuda device"):
        memory.memory_reserved("cpu")


def test_memory_goes_back_to_the_card():
    # A card's free memory is everybody's: other processes take and give back in between, so that
    # one of some tries has to find the very bytes.  Ours alone cannot make them come out by chance.
    found: list[tuple[int, int]] = []
    while (20 * MEGA, 20 * MEGA) not in found and len(found) < 300:
        found.append(change_of_free_memory())
    assert found[-1] == (20 * MEGA, 20 * MEGA), found


def change_of_free_memory() -> tuple[int, int]:
    """Bytes that the card has less while 20 MiB are held, and more once they are given back."""
    before = memory.mem_get_info()[0]
    held = ss.empty(20 * MEGA, dtype=ss.uint8, device="cuda")
    between = memory.mem_get_info()[0]
    del held
    memory.empty_cache()
    return before - between, memory.mem_get_info()[0] - between


def test_the_error_ranks_the_lines_that_hold_memory():
    cap(64 * MEGA)
    first, first_line = ss.zeros(5 * MEGA, device="cuda"), line()
    second, second_line = [ss.ones(MEGA, device="cuda") for _ in range(3)], line()
    third, third_line = ss.empty(26 * MEGA, dtype=ss.uint8, device="cuda"), line()
    with pytest.raises(memory.OutOfMemoryError) as caught:
        ss.empty(20 * MEGA, dtype=ss.uint8, device="cuda")
    text = str(caught.value)
    assert "Tried to allocate 20.00 MiB" in text
    lines = [each.strip() for each in text.splitlines()]
    wanted = [f"26.00 MiB in 1 block: {third_line}", f"20.00 MiB in 1 block: {first_line}",
              f"12.00 MiB in 3 blocks: {second_line}"]
    places = [lines.index(each) for each in wanted]
    assert places == sorted(places)
    del first, second, third
    assert ss.empty(40 * MEGA, dtype=ss.uint8, device="cuda").numel() == 40 * MEGA


def step(batch):
    """Activations of a batch of so many mebibytes."""
    x = ss.ones(batch * MEGA // 4, device="cuda")
    y = x + 1
    z = y * 2
    return (x + y + z).sum().item() / (batch * MEGA // 4)


def test_half_the_batch_goes_on_inside_the_except_block():
    cap(64 * MEGA)
    before = memory.memory_allocated()
    batch = 16
    for _ in range(3):
        try:
            step(2 * batch)
        except memory.OutOfMemoryError:
            assert step(8) == 7.0
        else:
            raise AssertionError
    gc.collect()
    assert memory.memory_allocated() == before


def test_cycles_are_collected_before_the_error():
    cap(64 * MEGA)
    gc.disable()
    try:
        for _ in range(8):
            holder = [ss.empty(20 * MEGA, dtype=ss.uint8, device="cuda")]
            holder.append(holder)
    finally:
        gc.enable()


def test_fractions_are_checked():
    with pytest.raises(TypeError, match="Invalid type for fraction argument"):
        memory.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Invalid fraction value"):
        memory.set_per_process_memory_fraction(2.0)
    assert memory.get_per_process_memory_fraction() == 1.0
    memory.set_per_process_memory_fraction(0.5)
    assert memory.get_per_process_memory_fraction() == pytest.approx(0.5)


def test_callbacks_free_memory():
    cap(40 * MEGA)
    held = [ss.empty(30 * MEGA, dtype=ss.uint8, device="cuda")]
    asked = []

    def give_back(nbytes):
        asked.append(nbytes)
        held.clear()

    handle = memory.register_free_memory_callback(give_back)
    ss.empty(25 * MEGA, dtype=ss.uint8, device="cuda")
    handle.remove()
    assert asked == [25 * MEGA]


def test_a_callback_that_allocates_calls_no_callback():
    asked = []

    def allocate(nbytes):
        asked.append(nbytes)
        ss.empty(30 * MEGA, dtype=ss.uint8, device="cuda")
        if len(asked) == 2:
            raise ValueError("on purpose")

    memory.empty_cache()
    handle = memory.register_free_memory_callback(allocate)
    try:
        held = ss.empty(35 * MEGA, dtype=ss.uint8, device="cuda")
        assert asked == [35 * MEGA]
        # One that raised is called again.
        with pytest.raises(ValueError, match="on purpose"):
            ss.empty(65 * MEGA, dtype=ss.uint8, device="cuda")
        more = ss.empty(95 * MEGA, dtype=ss.uint8, device="cuda")
    finally:
        handle.remove()
    assert asked == [35 * MEGA, 65 * MEGA, 95 * MEGA]
    assert (held.numel(), more.numel()) == (35 * MEGA, 95 * MEGA)


@pytest.mark.parametrize("as_number", [False, True])
def test_bare_blocks(as_number):
    before = memory.memory_allocated()
    stream = cuda.Stream()
    address = memory.caching_allocator_alloc(
        3 * MEGA, device=0, stream=stream.cuda_stream if as_number else stream)
    assert memory.memory_allocated() - before == 3 * MEGA
    memory.caching_allocator_delete(address)
    assert memory.memory_allocated() == before
    with pytest.raises(RuntimeError, match="no block was given out"):
        memory.caching_allocator_delete(address)
    address = memory.caching_allocator_alloc(100)
    memory.caching_allocator_delete(address)


def test_without_caching_every_block_goes_back():
    with memory.caching_allocator_disabled():
        cuda.empty_cache()
        reserved, live = memory.memory_reserved(), memory.memory_allocated()
        a = ss.ones(1000, device="cuda") + 1
        assert a.sum().item() == 2000.0
        cuda.empty_cache()
        assert memory.memory_reserved() - reserved == memory.memory_allocated() - live == 4096
    # What comes back after the scope goes back to the card too.
    del a
    cuda.empty_cache()
    assert (memory.memory_reserved(), memory.memory_allocated()) == (reserved, live)
    assert (ss.ones(1000, device="cuda") + 1).sum().item() == 2000.0


def test_pools():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        inside = ss.ones(1000, device="cuda")
        assert pool.use_count() == 2
    outside = ss.ones(1000, device="cuda")
    live = [block["address"] for segment in pool.snapshot() for block in segment["blocks"]
            if block["state"] == "active_allocated"]
    assert inside.untyped_storage().data_ptr() in live
    assert outside.untyped_storage().data_ptr() not in live
    assert (inside + outside).sum().item() == 2000.0


def bytes_on_card(nbytes):
    return ss.empty(nbytes, dtype=ss.uint8, device="cuda")


def test_a_pools_memory_is_reserved_memory():
    cuda.empty_cache()
    reserved = memory.memory_reserved()
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        inside = bytes_on_card(8 * MEGA)
        small = bytes_on_card(1000)
    assert memory.memory_reserved() - reserved == 10 * MEGA
    stats = memory.memory_stats()
    assert all(stats[f"inactive_split_bytes.{each}.current"] >= 0
               for each in ("all", "large_pool", "small_pool"))
    assert ss.memory_report("cuda").devices[0].cached >= 0
    del inside, small
    cuda.empty_cache()
    assert memory.memory_reserved() == reserved


def test_a_pools_segments_have_its_id():
    others = [memory.MemPool() for _ in range(3)]
    with memory.use_mem_pool(others[2]):
        inside = ss.ones(1000, device="cuda")
    found = memory.memory_snapshot(others[2].id)
    assert [each["segment_pool_id"] for each in found] == [others[2].id]
    assert memory.memory_snapshot(others[0].id) == []
    assert inside.sum().item() == 1000.0


def test_a_pool_takes_what_the_card_has_free_elsewhere():
    cuda.empty_cache()
    total = memory.mem_get_info()[1]
    pool, other = memory.MemPool(), memory.MemPool()
    del [bytes_on_card(total * 3 // 4)][:]
    with memory.use_mem_pool(pool):
        del [bytes_on_card(total // 2)][:]
    with memory.use_mem_pool(other):
        del [bytes_on_card(total * 3 // 4)][:]
    del [bytes_on_card(total * 3 // 4)][:]
    cuda.empty_cache()


def test_the_fraction_holds_for_pools_and_errors_tell_of_all():
    cap(20 * MEGA)
    own = bytes_on_card(8 * MEGA)
    pool = memory.MemPool()
    failures = memory.memory_stats()["num_ooms"]
    with memory.use_mem_pool(pool):
        inside = bytes_on_card(4 * MEGA)
        # On a card other tests' tensors may still be there.
        used = memory.memory_allocated()
        with pytest.raises(ss.OutOfMemoryError) as failed:
            bytes_on_card(16 * MEGA)
    text = str(failed.value)
    assert used >= 12 * MEGA
    assert f"{used / MEGA:.2f} MiB in use" in text
    assert "raise the limit" in text
    assert memory.memory_stats()["num_ooms"] == failures + 1
    del own, inside


def test_a_pool_may_go_before_its_tensors():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        inside = ss.ones(1000, device="cuda")
    del pool
    assert inside.sum().item() == 1000.0


def test_snapshots(tmp_path):
    memory._record_memory_history(max_entries=1000)
    try:
        held = ss.ones(3 * MEGA, device="cuda")
        name = str(tmp_path / "snapshot.pickle")
        memory._dump_snapshot(name)
    finally:
        memory._record_memory_history(enabled=None)
    with open(name, "rb") as file:
        found = pickle.load(file)
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    address = held.untyped_storage().data_ptr()
    block = next(block for block in blocks if block["address"] == address)
    assert block["frames"][0]["filename"] == __file__
    assert block["requested_size"] == 12 * MEGA
    actions = [event["action"] for event in found["device_traces"][0]]
    assert "alloc" in actions


def test_a_block_is_not_reused_before_a_side_stream_is_done():
    side = cuda.Stream()
    for _ in range(4):
        x = ss.full((200_000,), 3.0, device="cuda")
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 2
        del x
        z = ss.full((200_000,), 100.0, device="cuda")
        cuda.current_stream().wait_stream(side)
        assert y.sum().item() == 1_200_000.0
        assert z.sum().item() == 20_000_000.0
