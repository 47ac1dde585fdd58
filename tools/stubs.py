"""Writes the stub of the methods that the catalogue gives every Tensor.

Usage: python tools/stubs.py [--check]     --check: write nothing, fail where the stub is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "src" / "slipstream" / "_tensor_methods.pyi"
HEAD = '''"""Methods that the catalogue gives every Tensor.  Made by tools/stubs.py; do not edit."""

from collections.abc import Sequence
from typing import Any

from slipstream.core.api.tensor import Tensor
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import DType

# Tensor has methods named bool, int and float: inside the class these names mean the methods.
Bool = bool
Int = int
Float = float
Number = bool | int | float | complex

class TensorMethods:
'''
# The types of signatures as Python writes them.
TYPES = {
    "Tensor": "Tensor",
    "Tensor?": "Tensor | None",
    "Tensor|Number": "Tensor | Number",
    "Tensor|Static": "Tensor | Number",
    "Tensor[]": "Sequence[Tensor]",
    "Number": "Number",
    "Number?": "Number | None",
    "Offset": "Int",
    "Generator?": "Any",
    "int": "Int",
    "int?": "Int | None",
    "int[]": "Int | Sequence[Int]",
    "int[]?": "Int | Sequence[Int] | None",
    "bool": "Bool",
    "bool?": "Bool | None",
    "float": "Float",
    "str": "str",
    "str?": "str | None",
    "dtype": "DType",
    "dtype?": "DType | None",
    "device": "Device | str",
    "device?": "Device | str | None",
    "any": "Any",
}
# Methods that return something else than one Tensor.
RESULTS: dict[str, str] = {
    "split": "tuple[Tensor, ...]",
    "split_with_sizes": "tuple[Tensor, ...]",
    "chunk": "tuple[Tensor, ...]",
    "unbind": "tuple[Tensor, ...]",
    "tensor_split": "tuple[Tensor, ...]",
}


def catalogue() -> list[tuple[Any, Any]]:
    """Return (entry, parsed signature) of every op.

    The catalogue's table is the source; entries with ``method=False`` are left out by the caller.
    """
    import slipstream  # noqa: F401, PLC0415
    from slipstream.core.catalog.table import table  # noqa: PLC0415

    return [(op.entry, op.signature) for op in table.values()]


def written(parameter: Any) -> str:
    """Return a parameter as a stub writes it."""
    if parameter.type.endswith("int..."):
        also = "DType | " if parameter.type.startswith("dtype") else ""
        return f"*{parameter.name}: {also}Int | Sequence[Int]"
    text = f"{parameter.name}: {TYPES[parameter.type]}"
    return text if parameter.required else f"{text} = ..."


def arguments(signature: Any, extra: tuple[str, ...] = ()) -> str:
    """Return the list of parameters after self; the first parameter is the tensor itself."""
    words, keywords = ["self"], list(extra)
    variadic = False
    for parameter in signature.parameters[1:]:
        variadic = variadic or parameter.type.endswith("int...")
        late = parameter.keyword_only or (variadic and not parameter.type.endswith("int..."))
        (keywords if late else words).append(written(parameter))
    marker = [] if variadic or not keywords else ["*"]
    return ", ".join([*words, *marker, *keywords])


def methods(entry: Any, signature: Any) -> Iterator[tuple[str, str]]:
    """Yield name and line of every method that an entry gives."""
    result = RESULTS.get(entry.name, "Tensor")
    extra = ("out: Tensor | None = ...",) if entry.out else ()
    for name in (entry.name, *[name for name in entry.aliases if name.isidentifier()]):
        yield name, f"    def {name}({arguments(signature, extra)}) -> {result}: ..."
        if entry.inplace:
            yield f"{name}_", f"    def {name}_({arguments(signature)}) -> Tensor: ..."


def stub() -> str:
    """Return the whole text of the stub."""
    lines: dict[str, str] = {}
    for entry, signature in catalogue():
        if entry.method and entry.name.isidentifier():
            lines |= dict(methods(entry, signature))
    return HEAD + "".join(f"{lines[name]}\n" for name in sorted(lines))


def main(argv: list[str] | None = None) -> int:
    """Write the stub, or with --check compare it."""
    parser = argparse.ArgumentParser(description="Write the stub of the Tensor's methods.")
    parser.add_argument("--check", action="store_true", help="fail where the stub is stale")
    text = stub()
    if not parser.parse_args(argv).check:
        STUB.write_text(text)
        return 0
    if STUB.exists() and STUB.read_text() == text:
        return 0
    print(f"{STUB.relative_to(ROOT)} is stale: run python tools/stubs.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
