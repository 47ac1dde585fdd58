"""Writes the stubs: Tensor's methods, the package's public names, the classes of named results.

Usage: python tools/stubs.py [--check]     --check: write nothing, fail where a stub is stale
"""

from __future__ import annotations

import argparse
import inspect
import keyword
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "slipstream"
HEAD = '''"""Methods that the catalogue gives every Tensor.  Made by tools/stubs.py; do not edit."""

from collections.abc import Sequence
from typing import Any

from slipstream import return_types
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
# Operators: the compiled slots, and those that `api.install` gives.
BINARY = ("add", "sub", "mul", "truediv", "matmul", "lt", "le", "gt", "ge",
          "radd", "rsub", "rmul", "rtruediv", "rmatmul", "pow", "rpow", "floordiv", "rfloordiv",
          "mod", "rmod", "and", "rand", "or", "ror", "xor", "rxor")
INPLACE = ("iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior", "ixor", "ifloordiv", "imod")
OPERATORS = [f"    def __{name}__(self, other: Any) -> Tensor: ...\n"
             for name in (*BINARY, *INPLACE)]
OPERATORS += [f"    def __{name}__(self) -> Tensor: ...\n" for name in ("abs", "invert", "neg")]
OPERATORS += [f"    def __{name}__(self, other: object) -> Tensor: ...  # type: ignore[override]\n"
              for name in ("eq", "ne")]
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
VARIADIC = {"int...": "Int | Sequence[Int]", "dtype|int...": "DType | Int | Sequence[Int]",
            "Tensor...": "Tensor | Sequence[Tensor]"}
INIT_HEAD = '''"""The public names of the package.  Made by tools/stubs.py; do not edit."""

from collections.abc import Sequence
from typing import Any

from slipstream import return_types as return_types
from slipstream._tensor_methods import Bool, Float, Int, Number
from slipstream.core.api.size import Size as Size
from slipstream.core.api.tensor import Tensor as Tensor
{}

__version__: str

'''
RESULTS_HEAD = '''"""The classes of named results.  Made by tools/stubs.py; do not edit."""

from typing import NamedTuple

from slipstream.core.api.tensor import Tensor

'''
# Ops without samples whose result is no tensor.
UNSAMPLED = {"allclose": "Bool", "equal": "Bool"}
# Functions of the core that are no ops and give tensors.
MAKERS = ("tensor", "as_tensor", "from_numpy", "from_dlpack")


def catalogue() -> list[tuple[Any, Any]]:
    """Return (entry, parsed signature) of every op.

    The catalogue's table is the source; entries with ``method=False`` are left out by the caller.
    """
    import slipstream  # noqa: F401, PLC0415
    from slipstream.core.catalog.table import table  # noqa: PLC0415

    return [(op.entry, op.signature) for op in table.values()]


def written(parameter: Any) -> str:
    """Return a parameter as a stub writes it."""
    if parameter.type in VARIADIC:
        return f"*{parameter.name}: {VARIADIC[parameter.type]}"
    if keyword.iskeyword(parameter.name):
        return f"{parameter.name}_: {TYPES[parameter.type]} = ..."
    text = f"{parameter.name}: {TYPES[parameter.type]}"
    return text if parameter.required else f"{text} = ..."


def arguments(parameters: Any, words: tuple[str, ...], extra: tuple[str, ...] = ()) -> str:
    """Return the list of parameters after those in ``words``."""
    places, keywords = list(words), list(extra)
    variadic = False
    for parameter in parameters:
        variadic = variadic or parameter.type in VARIADIC
        late = parameter.keyword_only or (variadic and parameter.type not in VARIADIC)
        (keywords if late else places).append(written(parameter))
    marker = [] if variadic or not keywords else ["*"]
    return ", ".join([*places, *marker, *keywords])


def result_of(name: str, entry: Any, signature: Any) -> str:
    """Return the type of an op's result, as its samples show it."""
    import catalogue  # type: ignore[import-not-found]  # noqa: PLC0415

    from slipstream.core.catalog.table import table  # noqa: PLC0415

    if not entry.samples:
        return UNSAMPLED.get(name, "Tensor")
    if any(each.startswith("return_") for each in signature.names):
        return "Any"
    kinds = set()
    for case in catalogue.cases(table[name]):
        kinds.add(type_name(table[name].call(case.args, case.kwargs)))
    return kinds.pop() if len(kinds) == 1 else "Any"


def type_name(value: Any) -> str:
    """Return the type of a result as a stub writes it."""
    if hasattr(value, "_fields"):
        return f"return_types.{type(value).__name__}"
    if isinstance(value, tuple):
        return "tuple[Tensor, ...]"
    named = {"bool": "Bool", "int": "Int", "float": "Float"}.get(type(value).__name__)
    return named or "Tensor"


def methods(entry: Any, signature: Any, result: str) -> Iterator[tuple[str, str]]:
    """Yield name and line of every method that an entry gives."""
    extra = ("out: Tensor | None = ...",) if entry.out else ()
    rest = signature.parameters[1:]
    for name in (entry.name, *[name for name in entry.aliases if name.isidentifier()]):
        yield name, f"    def {name}({arguments(rest, ('self',), extra)}) -> {result}: ..."
        if entry.inplace:
            yield f"{name}_", f"    def {name}_({arguments(rest, ('self',))}) -> Tensor: ..."


def functions(entry: Any, signature: Any, result: str) -> Iterator[tuple[str, str]]:
    """Yield name and line of every function of the package that an entry gives."""
    extra = ("out: Any = ...",) if entry.out else ()
    first: tuple[str, ...] = ()
    rest = signature.parameters
    if rest and rest[0].name == "self":
        # PyTorch's name for it.
        first, rest = (written(rest[0]).replace("self", "input", 1),), rest[1:]
    home = entry.path.rpartition(".")[0]
    for path in (entry.path, *entry.aliases):
        module, _, name = path.rpartition(".")
        if (module or home) in ("", "nn.functional"):
            yield name, f"def {name}({arguments(rest, first, extra)}) -> {result}: ..."
            if entry.inplace:
                given = arguments(rest, ("input: Tensor",))
                yield f"{name}_", f"def {name}_({given}) -> Tensor: ..."


def stub_of_methods(results: dict[str, str]) -> str:
    """Return the stub of Tensor's methods."""
    lines: dict[str, str] = {}
    for entry, signature in catalogue():
        if entry.method and entry.name.isidentifier():
            lines |= dict(methods(entry, signature, results[entry.name]))
        elif entry.inplace and signature.names[0] == "self":
            rest = arguments(signature.parameters[1:], ("self",))
            lines[f"{entry.name}_"] = f"    def {entry.name}_({rest}) -> Tensor: ..."
    return HEAD + "".join(OPERATORS) + "".join(f"{lines[name]}\n" for name in sorted(lines))


def stub_of_package(results: dict[str, str]) -> str:
    """Return the stub of the package."""
    import slipstream  # noqa: PLC0415
    from slipstream.core.api import namespace  # noqa: PLC0415

    lines: dict[str, str] = {}
    for entry, signature in catalogue():
        if entry.path:
            lines |= dict(functions(entry, signature, results[entry.name]))
    lines = {name: line for name, line in lines.items() if name in namespace.__all__}
    known = {*lines, *INIT_HEAD.split()}
    own = [name for name in namespace.__all__ if name not in known]
    lines |= {name: own_line(name, getattr(namespace, name)) for name in own}
    lines |= {name: f"from slipstream import {name} as {name}"
              for name in vars(slipstream)["_LATER"] if name != "return_types"}
    lines |= {name: f"from slipstream.{home} import {name} as {name}"
              for name, home in vars(slipstream)["_ELSEWHERE"].items() if name not in lines}
    every = [line for name in sorted(lines) for line in lines[name].split("\n")]
    imports = sorted({line for line in every if line.startswith("from ")})
    others = [line for line in every if line not in imports]
    return INIT_HEAD.format("\n".join(imports)) + "".join(f"{line}\n" for line in others)


def own_line(name: str, value: Any) -> str:
    """Return the line of a public name that is no op."""
    if name in MAKERS:
        text = str(inspect.signature(value)).replace("'", "").replace("-> Any", "-> Tensor")
        for builtin, ours in (("bool", "Bool"), ("np.ndarray", "Any")):
            text = text.replace(f": {builtin}", f": {ours}")
        return f"def {name}{text}: ..."
    if isinstance(value, float) or value is None:
        return f"{name}: {type(value).__name__.title()}" if value is not None else f"{name}: None"
    if type(value).__name__ == "DType":
        return f"{name}: DType"
    home = getattr(value, "__module__", "")
    home = "slipstream.core.api.random" if home == "slipstream" else home
    real = getattr(value, "__name__", name)
    if getattr(sys.modules[home], str(real), None) is value:
        # Another name makes no public name of an import.
        alias = "" if name == real else f"\n{name} = {real}"
        return f"from {home} import {real} as {real}{alias}"
    return f"{name}: Any"


def stub_of_results() -> str:
    """Return the stub of the named results."""
    from slipstream.core.api.install import results  # noqa: PLC0415

    return RESULTS_HEAD + "\n".join(
        f"class {name}(NamedTuple):\n" + "".join(f"    {field}: Tensor\n"
                                                 for field in results[name]._fields)
        for name in sorted(results))


def stubs() -> dict[Path, str]:
    """Return the text of every stub."""
    sys.path[:0] = [str(ROOT / "tests" / "cpu"), str(ROOT / "tests")]
    results = {entry.name: result_of(entry.name, entry, signature)
               for entry, signature in catalogue()}
    return {
        PACKAGE / "_tensor_methods.pyi": stub_of_methods(results),
        PACKAGE / "__init__.pyi": stub_of_package(results),
        PACKAGE / "return_types.pyi": stub_of_results(),
    }


def main(argv: list[str] | None = None) -> int:
    """Write the stubs, or with --check compare them."""
    parser = argparse.ArgumentParser(description="Write the stubs of the public names.")
    parser.add_argument("--check", action="store_true", help="fail where a stub is stale")
    check = parser.parse_args(argv).check
    stale = 0
    for path, text in stubs().items():
        if path.exists() and path.read_text() == text:
            continue
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run python tools/stubs.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
