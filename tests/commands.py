"""What the three commands print for a planted program: writes docs/commands.md and its picture.

Usage: python tests/commands.py     (the simulated driver stands under the program)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
PICTURE = ROOT / "docs" / "pictures" / "profile.png"
SCRIPT = """\
import slipstream as ss

x = ss.randn(1 << 16, device="cuda")
mask = ss.ones(1 << 16, device="cuda")
print("the mask lies at", hex(mask.data_ptr()))
for step in range(30):
    y = x
    for _ in range(20):
        y = y * mask
print("mean", y.mean().item())
"""
# The line to mend, and how it reads then.
PLANTED, MENDED = "mask.data_ptr()", "mask.clone().data_ptr()"
# A row of the profile's kernels, without its numbers.
KERNEL = re.compile(r"0 % 0 µs 0 × ")
COMMANDS = {
    "profile": ("profile", "--html", "page.html", "train.py"),
    "explain": ("explain", "train.py:9"),
    "memory": ("memory", "train.py"),
}
HEAD = """\
# Three commands

Written by `python tests/commands.py` from what the commands print for the program below, on the \
simulated driver, whose times are its own; a test runs them again and compares all but the numbers.

`train.py` is slow, and nobody knows why:

```python
{script}```

"""
TEXTS = {
    "profile": "It says what the program is bound by, and the line to mend: line 5 hands out the "
               "address of `mask`, so that no launch that touches `mask` is replayed.",
    "explain": "What each call at a line did, in the line itself or in what it calls in other "
               "files (`--line net.py:2` before the script names a line of a file that it "
               "imports); the first of them:",
    "memory": "Who held the memory at the peak:",
}
TAIL = """\
## After the mend

With `mask.clone().data_ptr()` in line 5 the same profile begins:

```
{verdict}
```

![The page that --html writes](pictures/profile.png)
"""


def run(folder: Path, *words: str) -> str:
    """What a command prints in a folder, without the places of files and the program's output."""
    environment = {**os.environ, "SLIPSTREAM_DRIVER": "sim", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-m", "slipstream", *words], cwd=folder, text=True,
                          capture_output=True, env=environment, timeout=300, check=True)
    lines = done.stdout.replace(f"{folder}{os.sep}", "").splitlines()
    kept = [line for line in lines if not line.startswith(("the mask lies at", "mean "))]
    return "\n".join(kept).strip("\n")


def outputs(folder: Path, script: str = SCRIPT) -> dict[str, str]:
    """What each command prints for a program."""
    (folder / "train.py").write_text(script)
    return {name: run(folder, *words) for name, words in COMMANDS.items()}


def first_call(text: str) -> str:
    """Of what explain says, its beginning and the first call."""
    head, first, *others = re.split(r"^(?=\w+  at )", text, flags=re.MULTILINE)
    return f"{head}{first}({len(others)} more are shown)"


def shown(texts: dict[str, str]) -> dict[str, str]:
    """The texts as the page has them."""
    return {**texts, "explain": first_call(texts["explain"])}


def page(texts: dict[str, str], mended: str) -> str:
    """The page."""
    parts = [HEAD.format(script=SCRIPT)]
    for name, text in shown(texts).items():
        parts.append(f"## slipstream {' '.join(COMMANDS[name])}\n\n{TEXTS[name]}\n\n"
                     f"```\n{text}\n```\n\n")
    return "".join(parts) + TAIL.format(verdict=mended)


def shape(text: str) -> str:
    """A page without its numbers, what is drawn of them, and how wide that makes columns.

    Kernels that take about as long come in any order.
    """
    lines = [re.sub(r" +", " ", re.sub(r"\d[\d,.]*", "0", line)).strip()
             for line in text.splitlines() if not re.search("[│└█]", line)]
    kernels = sorted(filter(KERNEL.match, lines), reverse=True)
    return "\n".join(kernels.pop() if KERNEL.match(line) else line for line in lines if line)


def verdict(folder: Path) -> str:
    """The first line of the mended program's profile."""
    return outputs(folder, SCRIPT.replace(PLANTED, MENDED))["profile"].splitlines()[0]


def main() -> int:
    """Write the page, and the picture where a Chromium is found."""
    sys.path.insert(0, str(ROOT / "tests"))
    from cpu.profiler import chromium  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        texts = outputs(folder)
        if chromium.PROGRAM is not None:
            PICTURE.parent.mkdir(exist_ok=True)
            with chromium.browser(folder / "profile") as browser:
                browser.size(1000, 760)
                browser.scheme("light")
                browser.open(folder / "page.html")
                browser.painted()
                browser.shot(PICTURE, whole=False)
        PAGE.write_text(page(texts, verdict(folder)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
