"""The settings, typed and documented; the one place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields

# The machine's where there is one, the machine's, the simulated one.
DRIVERS = ("auto", "real", "sim")
UNITS = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


@dataclass(slots=True)
class SimulatedCard:
    """The options of the simulated driver.

    SLIPSTREAM_SIM sets them from outside: ``memory=64MiB,devices=2,seed=3,race=1,fail=launch:5``
    (several calls that fail are separated by ``+``).

    model: which card each device is: V100, T4, A100, L4, H100, H200 or B200.
    memory: bytes of each device's memory.
    devices: how many devices there are.
    seed: of the order in which streams run, and threads of a block.
    race: whether accesses with no order between them are reported.
    poison: whether fresh blocks, and shared memory, are filled with 0xff bytes.
    arrays: whether indices of shared and local arrays are checked, where the compiler can (g++).
    zero_cost: whether kernels are counted but not run: for measuring what is launched.
    library: whether a library of products stands beside it, in cuBLASLt's place; products go to our
        own kernels otherwise.
    peer: whether kernels of one device can touch another's memory.
    fail: for the name of a driver call, which one of these calls fails, counted from 1.
    compiler: the C++ compiler; empty for $CXX, g++, clang++ or c++, the first that is found.
    """

    model: str = "H100"
    memory: int = 1 << 30
    devices: int = 2
    seed: int = 0
    race: bool = True
    poison: bool = True
    arrays: bool = True
    zero_cost: bool = False
    library: bool = False
    peer: bool = False
    fail: dict[str, int] = field(default_factory=dict)
    compiler: str = ""


def parse_bytes(text: str) -> int:
    """A count of bytes, such as 4096, 64MiB or 1.5GiB; raises ValueError for anything else."""
    for unit, shift in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * (1 << shift))
    return int(text)


def parse_card(text: str, compiler: str = "") -> SimulatedCard:
    """The options of the simulated driver from ``name=value,...``; raises ValueError."""
    card = SimulatedCard(compiler=compiler)
    known = {each.name: each.type for each in fields(SimulatedCard)}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        kind = known.get(name)
        if kind is None:
            raise ValueError(
                f"SLIPSTREAM_SIM: no option {name!r}; there are {', '.join(sorted(known))}")
        setattr(card, name, _option(name, kind, value))
    return card


def _option(name: str, kind: object, value: str) -> object:
    if name == "fail":
        calls = (item.partition(":") for item in value.split("+"))
        return {call: int(number or 1) for call, _, number in calls}
    if kind == "bool":
        return value not in ("0", "", "false")
    if kind == "int":
        try:
            return parse_bytes(value)
        except ValueError:
            raise ValueError(f"SLIPSTREAM_SIM: {name}={value}: {value!r} is no number, such as "
                             "2, 4096 or 64MiB") from None
    return value


@dataclass(slots=True, eq=False, repr=False)
class Settings:
    """Everything that can be set from outside.

    core: ``compiled`` (use the compiled core where it was built) or ``uncompiled`` (run the same
        sources as plain Python).  SLIPSTREAM_CORE.
    debug: 0 to 5, how much the runtime tells on standard error: 1 op and device, 2 kernel and
        time, 3 source, 4 plan and allocation, 5 every rewriting.  SLIPSTREAM_DEBUG.
    plans: how many plans are kept before the least recently used are dropped.
        SLIPSTREAM_PLANS.
    delay_seed: seed of the order in which the ``delay`` device runs the work of its streams.
        SLIPSTREAM_DELAY_SEED.
    driver: ``auto`` (the machine's CUDA driver where there is one), ``real`` or ``sim``, the
        simulated one.  SLIPSTREAM_DRIVER.
    allow_tf32: whether float32 products may be computed in TF32; set by
        ``backends.cuda.matmul.allow_tf32``, exact by default.
    tunable: whether the algorithms of library products are chosen by measuring; set by
        ``cuda.tunable.enable``.  SLIPSTREAM_TUNABLE.
    memo: whether windows of launches are replayed as graphs.  SLIPSTREAM_MEMO.
    join: when launches that compute each element by itself become one with their neighbours: 0
        never, 1 where it pays, 2 at first sight.  SLIPSTREAM_JOIN.
    blocking: wait after every launch, so that an error shows where it was made.
        SLIPSTREAM_LAUNCH_BLOCKING, or CUDA_LAUNCH_BLOCKING where that is not set.
    cache: the folder of compiled kernels; empty for the user's cache folder.
        SLIPSTREAM_CACHE.
    packs: packs of compiled kernels, or folders of them, beside those in the cache folder; several
        are separated as in PATH.  SLIPSTREAM_PACKS.
    cupti: the file of NVIDIA's CUPTI, which tells device times to profiles; empty to look for it,
        ``off`` to do without.  SLIPSTREAM_CUPTI.
    user_cache: where programs keep what they can make again.  XDG_CACHE_HOME, or ~/.cache.
    simulated: the options of the simulated driver.  SLIPSTREAM_SIM; its compiler also CXX.
    """

    core: str = "compiled"
    debug: int = 0
    plans: int = 8192
    delay_seed: int = 0
    driver: str = "auto"
    memo: bool = True
    join: int = 1
    allow_tf32: bool = False
    tunable: bool = False
    blocking: bool = False
    cache: str = ""
    packs: str = ""
    cupti: str = ""
    user_cache: str = ""
    simulated: SimulatedCard = field(default_factory=SimulatedCard)


def _whole(name: str, default: int) -> int:
    """A whole number of the environment; ``default`` where it is empty or not there."""
    text = os.environ.get(name, "").strip()
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name}={text} in the environment: it has to be a whole number, "
                         f"{default} by default") from None


def _flag(name: str, default: bool) -> bool:
    """A setting that is on or off; ``default`` where it is empty or not there."""
    text = os.environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise ValueError(f"{name}={text} in the environment: it has to be 0 or 1, "
                         f"{int(default)} by default")
    return text == "1" if text else default


def _blocking() -> bool:
    """Whether to wait after every launch; CUDA's own variable is no affair of ours to refuse."""
    theirs = os.environ.get("CUDA_LAUNCH_BLOCKING", "").strip() not in ("", "0")
    return _flag("SLIPSTREAM_LAUNCH_BLOCKING", theirs)


def _driver() -> str:
    """Which driver is asked for."""
    name = os.environ.get("SLIPSTREAM_DRIVER", "").strip() or DRIVERS[0]
    if name not in DRIVERS:
        raise ValueError(f"SLIPSTREAM_DRIVER={name} in the environment: there is no such driver; "
                         f"there are {', '.join(DRIVERS[:-1])} and {DRIVERS[-1]}")
    return name


def _from_environment() -> Settings:
    read = os.environ.get
    return Settings(
        core=read("SLIPSTREAM_CORE", "compiled"),
        debug=_whole("SLIPSTREAM_DEBUG", 0),
        plans=_whole("SLIPSTREAM_PLANS", 8192),
        delay_seed=_whole("SLIPSTREAM_DELAY_SEED", 0),
        driver=_driver(),
        memo=read("SLIPSTREAM_MEMO", "1") != "0",
        join=_whole("SLIPSTREAM_JOIN", 1),
        tunable=read("SLIPSTREAM_TUNABLE", "0") not in ("", "0"),
        blocking=_blocking(),
        cache=read("SLIPSTREAM_CACHE", ""),
        packs=read("SLIPSTREAM_PACKS", ""),
        cupti=read("SLIPSTREAM_CUPTI", ""),
        user_cache=read("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache"),
        simulated=parse_card(read("SLIPSTREAM_SIM", ""), read("CXX", "")),
    )


settings = _from_environment()
