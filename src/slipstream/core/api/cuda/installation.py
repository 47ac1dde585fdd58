"""What of CUDA is installed here: driver, compiler, cards, libraries, kept kernels; no context."""

from __future__ import annotations

from typing import Any

from slipstream.core.launch.cuda.modules import folder, kept_files
from slipstream.core.native.cublaslt import LibraryError, open_library, version_of
from slipstream.core.native.cupti import CuptiError, opened, version_text
from slipstream.core.native.drivers import drivers

# What kernels need: the CUDA version of the bindings and NVRTC, and the oldest card they know.
NEEDED = 13000
OLDEST = (7, 5)


def installation() -> dict[str, Any]:
    """What was found, plain data; ``faults`` has a line with the mend for all that is amiss.

    ``cupti``: what tells exact device times to profiles, as text, or why there is none.
    """
    found: dict[str, Any] = {"driver": None, "cuda": None, "compiler": None, "cards": [],
                             "cublaslt": None, "cupti": None, "cache": cache(), "faults": []}
    if not drivers.available():
        known = [drivers.missing or NO_CARD, *([drivers.mend] if drivers.mend else [])]
        found["faults"].append(f"CUDA is not available: {': '.join(known)}")
    driver = drivers.found
    if driver is None:
        return found
    found["driver"] = driver.name
    found["cuda"] = dotted(driver.version())
    found["compiler"] = " ".join(driver.compiler_version().split()[:2])
    found["cards"] = [card(driver.properties(index)) for index in range(driver.device_count())]
    if driver.name == "real":
        found["cublaslt"] = library(found["faults"])
        found["cupti"] = profiling()
        found["faults"] += too_old(driver.version(), found["cards"])
    return found


NO_CARD = "the driver finds no card"


def dotted(version: int) -> str:
    """A version of CUDA such as 13010 as 13.1."""
    return f"{version // 1000}.{version % 1000 // 10}"


def card(properties: Any) -> dict[str, Any]:
    """What is told of a card."""
    return {"name": properties.name, "capability": [properties.major, properties.minor],
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count}


def library(faults: list[str]) -> str | None:
    """cuBLASLt's version, None where it is not there: our own kernels multiply then."""
    try:
        return version_of(open_library())
    except LibraryError as error:
        faults.append(f"{error}; without it products take Slipstream's own kernels, which are "
                      "slower")
        return None


def profiling() -> str:
    """CUPTI's version and place; else why profiles time the card by events."""
    try:
        library = opened.library()
    except CuptiError as error:
        return f"none, profiles time kernels by events: {error}"
    return f"{version_text(library.version).removeprefix('CUPTI ')}, {library.path}"


def too_old(version: int, cards: list[dict[str, Any]]) -> list[str]:
    """A line for the driver, and for each card, that is too old."""
    lines = []
    if version < NEEDED:
        lines.append(f"the driver is too old: it knows CUDA {dotted(version)}, and {dotted(NEEDED)}"
                     " is needed: install NVIDIA's driver, 580 or newer")
    for index, each in enumerate(cards):
        if tuple(each["capability"]) < OLDEST:
            known = "{}.{}".format(*each["capability"])
            lines.append(f"card {index}, {each['name']}, is too old: CUDA 13 compiles for "
                         f"capability 7.5 and newer, and it has {known}: use another card")
    return lines


def cache() -> dict[str, Any]:
    """Where compiled kernels are kept, how many, and how much they take."""
    files = kept_files()
    return {"folder": str(folder()), "kernels": len(files),
            "mib": round(sum(size for _, size, _ in files) / 2**20, 1)}
