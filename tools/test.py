"""Everything continuous integration runs; the last line is ``N passed, N failed``.

Usage: python tools/test.py [LEG ...]     all legs without a name
"""

from __future__ import annotations

import sys
import time

import legs

SUMMARY = legs.REPORTS / "summary.txt"
LEGS = {
    "core": legs.core_is_as_it_should_be,
    "compiled": legs.compiled,
    "uncompiled": legs.uncompiled,
    "simulated": legs.simulated,
    "simulated-uncompiled": legs.simulated_uncompiled,
    "no-compiler": legs.no_compiler,
    "scripts": legs.scripts,
    "check": legs.checks,
    "nvrtc": legs.nvrtc,
}


def main(names: list[str]) -> int:
    """Run the legs asked for, each also after one failed."""
    unknown = [name for name in names if name not in LEGS]
    if unknown:
        print(f"no such leg: {' '.join(unknown)}; there are {' '.join(LEGS)}", file=sys.stderr)
        return 2
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.unlink(missing_ok=True)
    results = {}
    for name in names or LEGS:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        results[name] = (*LEGS[name](), time.monotonic() - started)
    for name, (passed, failed, seconds) in results.items():
        print(f"{name:<12} {passed:>6} passed {failed:>4} failed {seconds:>7.0f} s")
    passed = sum(result[0] for result in results.values())
    failed = sum(result[1] for result in results.values())
    summary = f"{passed} passed, {failed} failed"
    SUMMARY.write_text(f"{summary}\n")
    print(summary)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
