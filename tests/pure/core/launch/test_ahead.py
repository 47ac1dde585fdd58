"""Kernels that are compiled before they are asked for, over a compiler that tests hold back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from slipstream.core.launch.cuda.ahead import MOST_IMAGES
from slipstream.core.launch.cuda.launches import KernelCode
from slipstream.core.launch.cuda.modules import Modules
from slipstream.core.native.driver import CompileError, Driver
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

ARCH = "sm_90"
CARD = Device("cuda:0")
SECONDS = 20


class Slow(Driver):
    """Compiles to the source's bytes, once ``gate`` is open; ``asked``: the names, in order."""

    name = "slow"
    side_by_side = True

    def __init__(self):
        self.asked = []
        self.counts = {"compilations_ahead": 0}
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.loaded = []

    def compiler_version(self):
        return "1"

    def compile(self, source, name, options, arch):
        self.asked.append((name, threading.current_thread().name))
        self.begun.release()
        assert self.gate.wait(SECONDS)
        if "bug" in source:
            raise ZeroDivisionError(name)
        if "error" in source:
            raise CompileError(name, "an error")
        return source.encode()

    def context(self, ordinal):
        return 1

    def use(self, context):
        pass

    def load_module(self, image):
        self.loaded.append(image)
        return len(self.loaded)

    def function(self, module, name):
        return 100 + module

    @property
    def here(self):
        """The kernels that this thread had to compile."""
        return [name for name, thread in self.asked if thread == threading.current_thread().name]


def codes(*texts):
    return [KernelCode(text.replace(" ", "_"), text) for text in texts]


@pytest.fixture
def driver(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "cache", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "packs", "")
    monkeypatch.setattr(settings, "ahead", 1)
    found = Slow()
    drivers.use(found)
    yield found
    found.gate.set()
    drivers.use(None)


@pytest.fixture
def modules(driver):
    made = Modules()
    made.architectures[0] = ARCH
    yield made
    driver.gate.set()
    made.ahead.stop()


def idea(*listed):
    """What lists these."""
    return lambda: iter(listed)


def test_what_was_made_is_handed_over(driver, modules):
    one, other = codes("one", "other")
    modules.think_ahead(CARD, idea(one, other))
    modules.ahead.settle()
    assert driver.counts["compilations_ahead"] == 2
    assert not driver.loaded
    assert modules.function(CARD, other) == 101
    assert driver.loaded == [b"other"]
    assert not driver.here
    assert list(modules.ahead.images.values()) == [b"one"]


def test_what_is_being_made_is_waited_for(driver, modules):
    (one,) = codes("one")
    driver.gate.clear()
    modules.think_ahead(CARD, idea(one))
    assert driver.begun.acquire(timeout=SECONDS)
    threading.Timer(0.05, driver.gate.set).start()
    modules.function(CARD, one)
    assert len(driver.asked) == 1
    assert driver.loaded == [b"one"]


def test_whoever_asks_makes_what_waits(driver, modules):
    one, other = codes("one", "other")
    driver.gate.clear()
    modules.think_ahead(CARD, idea(one, other))
    assert driver.begun.acquire(timeout=SECONDS)
    threading.Timer(0.05, driver.gate.set).start()
    modules.function(CARD, other)
    modules.ahead.settle()
    assert driver.here == ["other"]
    assert sorted(name for name, _ in driver.asked) == ["one", "other"]


def test_the_nearest_of_every_idea_come_first(driver, modules):
    first, second = codes("a", "b", "c"), codes("d", "e", "f")
    driver.gate.clear()
    modules.think_ahead(CARD, idea(*codes("held")))
    assert driver.begun.acquire(timeout=SECONDS)
    modules.think_ahead(CARD, idea(*first))
    modules.think_ahead(CARD, idea(first[0], *second))
    driver.gate.set()
    modules.ahead.settle()
    assert [name for name, _ in driver.asked] == ["held", "a", "d", "b", "e", "c", "f"]


def test_a_kernel_is_thought_of_once(driver, modules):
    one, other = codes("one", "other")
    modules.function(CARD, one)
    for _ in range(3):
        modules.think_ahead(CARD, idea(one, other, other))
        modules.ahead.settle()
    assert [name for name, _ in driver.asked] == ["one", "other"]


def test_what_fails_is_told_where_it_is_asked_for(driver, modules):
    wrong, right = codes("an error", "right")
    modules.think_ahead(CARD, idea(wrong, right))
    modules.ahead.settle()
    modules.function(CARD, right)
    with pytest.raises(CompileError, match="an error"):
        modules.function(CARD, wrong)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_ours_shows_and_holds_nobody_up(driver, modules, monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda found: shown.append(found.exc_type))
    wrong, later, right = codes("a bug", "later", "right")
    modules.think_ahead(CARD, idea(wrong, later))
    modules.ahead.settle()
    modules.ahead.threads[0].join(SECONDS)
    assert shown == [ZeroDivisionError]
    modules.think_ahead(CARD, idea(right))
    modules.ahead.settle()
    assert b"right" in modules.ahead.images.values()
    with pytest.raises(ZeroDivisionError):
        modules.function(CARD, wrong)


@pytest.mark.parametrize("allowed", [0, -1])
def test_no_thread_where_none_is_allowed(driver, modules, monkeypatch, allowed):
    monkeypatch.setattr(settings, "ahead", allowed)
    modules.think_ahead(CARD, idea(*codes("one")))
    assert not modules.ahead.threads
    assert not driver.asked


def test_one_thread_takes_idea_after_idea(driver, modules):
    for n in range(3):
        modules.think_ahead(CARD, idea(*codes(f"text {n}")))
    modules.ahead.settle()
    assert len(modules.ahead.threads) == 1
    assert len(driver.asked) == 3


def test_several_threads_make_all_once(driver, modules, monkeypatch):
    monkeypatch.setattr(settings, "ahead", 3)
    listed = codes(*[f"text {n}" for n in range(40)])
    for start in range(0, 40, 8):
        modules.think_ahead(CARD, idea(*listed[start:start + 10]))
    modules.ahead.settle()
    assert sorted(name for name, _ in driver.asked) == sorted(code.name for code in listed)


def test_images_that_nobody_asks_for_are_bounded(driver, modules):
    modules.think_ahead(CARD, idea(*codes(*[f"text {n}" for n in range(MOST_IMAGES + 9)])))
    modules.ahead.settle()
    assert len(modules.ahead.images) == MOST_IMAGES


def test_what_waits_is_given_up_at_the_end(driver, modules):
    driver.gate.clear()
    modules.think_ahead(CARD, idea(*codes("one", "other", "third")))
    assert driver.begun.acquire(timeout=SECONDS)
    threading.Timer(0.05, driver.gate.set).start()
    modules.ahead.stop()
    assert [name for name, _ in driver.asked] == ["one"]
    assert not any(thread.is_alive() for thread in modules.ahead.threads)
    modules.think_ahead(CARD, idea(*codes("late")))
    assert len(driver.asked) == 1


ENDING = """
import sys, time
sys.path.insert(0, {tests!r})
from test_ahead import ARCH, CARD, Modules, Slow, codes, drivers, idea, settings
settings.cache, settings.ahead = {cache!r}, 1
driver = Slow()
drivers.use(driver)
modules = Modules()
modules.architectures[0] = ARCH
def slow(*arguments, own=driver.compile):
    time.sleep(0.2)
    print("made", arguments[1])
    return own(*arguments)
driver.compile = slow
modules.think_ahead(CARD, idea(*codes(*["text " + str(n) for n in range(500)])))
while not modules.ahead.running:
    time.sleep(0.01)
{more}
"""
FORKED = """
import os
child = os.fork()
if not child:
    modules.think_ahead(CARD, idea(*codes("own")))
    modules.ahead.settle()
    os._exit(0 if list(modules.ahead.images.values()) == [b"own"] else 1)
print("child", os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("more", ["", pytest.param(FORKED, marks=pytest.mark.skipif(
    not hasattr(os, "fork"), reason="no fork here"))], ids=["exit", "fork"])
def test_a_process_ends_after_what_is_being_made(tmp_path, more):
    text = ENDING.format(tests=os.path.dirname(__file__), cache=str(tmp_path), more=more)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True,
                          text=True, timeout=3 * SECONDS)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    lines = done.stdout.splitlines()
    # Of five hundred it made the one or few that there was time for.
    assert 1 <= sum(line.startswith("made text") for line in lines) < 50
    if more:
        assert "child 0" in lines
