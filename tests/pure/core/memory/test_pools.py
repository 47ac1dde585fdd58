"""Memory beside a device's own: a user's functions, no caching, pools in threads."""

from __future__ import annotations

import threading

import pytest
from fake_driver import FakeDriver

from slipstream.core.memory import pools
from slipstream.core.memory.device import DeviceAllocator, plugged
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.vocab.errors import OutOfMemoryError

MEGA = 1 << 20


class Functions:
    """In place of a user's library."""

    def __init__(self):
        self.next = 1 << 50
        self.live = {}
        self.calls = []

    def allocate(self, nbytes, device, stream):
        if nbytes > 100 * MEGA:
            return None
        self.next += 1 << 30
        self.live[self.next] = nbytes
        self.calls.append(("allocate", nbytes, device, stream))
        return self.next

    def release(self, address, nbytes, device, stream):
        assert self.live.pop(address) == nbytes
        self.calls.append(("release", nbytes, device, stream))


@pytest.fixture
def replaced():
    functions = Functions()
    pools.replace_all(functions)
    yield functions
    plugged.make = None


def make():
    driver = FakeDriver()
    return driver, DeviceAllocator(driver, 0)


def test_a_users_functions_serve_every_request(replaced):
    driver, allocator = make()
    allocator.handle = lambda: 77
    drains = []
    allocator.drain = lambda: drains.append(True)
    held = [(allocator.allocate(n), n) for n in (100, 3 * MEGA)]
    assert driver.taken() == 0
    assert replaced.calls == [("allocate", 512, 0, 77), ("allocate", 3 * MEGA, 0, 77)]
    assert memory_stats(allocator)["requested_bytes.all.current"] == 100 + 3 * MEGA
    for block in held:
        allocator.free(*block)
    assert not drains
    last = allocator.allocate(200)
    allocator.free(last, 200)
    allocator.settled()
    allocator.allocate(200)
    assert drains
    assert len(replaced.live) == 1
    assert memory_stats(allocator)["allocation.all.current"] == 1
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(200 * MEGA)


def test_a_pool_over_a_users_functions():
    functions = Functions()
    driver, allocator = make()
    pool = pools.Pool(functions)
    routes = pools.routes_of(allocator)
    entered = routes.enter(pool)
    held = [(allocator.allocate(100), 100) for _ in range(10)]
    routes.leave(entered)
    assert len(functions.live) == 1
    assert driver.taken() == 0
    allocator.allocate(100)
    assert driver.taken() == 2 * MEGA
    for block in held:
        allocator.free(*block)
    allocator.empty_cache()
    assert not functions.live
    assert memory_stats(allocator)["allocation.all.current"] == 1


def test_without_caching():
    driver, allocator = make()
    pools.set_caching(allocator, False)
    address = allocator.allocate(3 * MEGA)
    assert driver.plain == {address: 3 * MEGA}
    allocator.free(address, 3 * MEGA)
    second = allocator.allocate(1000)
    third = allocator.allocate(1000)
    assert driver.plain == {second: 1024, third: 1024}
    pools.set_caching(allocator, True)
    fourth = allocator.allocate(1000)
    assert fourth not in driver.plain
    for each in (second, third, fourth):
        allocator.free(each, 1000)
    assert memory_stats(allocator)["allocation.all.current"] == 0


def test_a_pool_is_for_the_thread_that_entered_it():
    _, allocator = make()
    pool, found = pools.Pool(), []
    routes = pools.routes_of(allocator)
    entered = routes.enter(pool)
    worker = threading.Thread(target=lambda: found.append(allocator.allocate(1000)))
    worker.start()
    worker.join()
    mine = allocator.allocate(1000)
    inner = pools.Pool()
    within = routes.enter(inner)
    nested = allocator.allocate(1000)
    routes.leave(within)
    again = allocator.allocate(1000)
    leaver = threading.Thread(target=routes.leave, args=(entered,))
    leaver.start()
    leaver.join()
    outside = allocator.allocate(1000)
    inside = {address for address, _, _ in pool.on(allocator).live_blocks()}
    assert inside == {mine, again}
    assert outside not in inside
    assert {address for address, _, _ in inner.on(allocator).live_blocks()} == {nested}
    assert found[0] not in inside
    assert allocator.route is None
