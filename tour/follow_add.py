"""Follow ``a + b`` from the operator slot to the kernel, one layer's object at a time.

Run: python tour/follow_add.py
"""

from __future__ import annotations

import sys

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.modes import listening
from slipstream.core.fuse.printing import describe
from slipstream.core.vocab.modes import decode_site, modes
from slipstream.core.vocab.records import slots


def show(title: str, value: object) -> None:
    print(f"\n== {title}\n{value}")


def main() -> None:
    a = ss.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = ss.tensor([10, 20, 30])

    # A tensor is a spec (what it looks like), a storage (where it lies) and an offset.
    show("the operands", f"{a.spec!r} and {b.spec!r}")
    # Specs are interned: equal live specs are one object, so comparing them is comparing addresses.
    assert a.spec is ss.zeros(2, 3).spec

    # 1. The slot: `a + b` calls the op that the slot was given at import.
    op = slots.add
    assert op is ops.add
    show("the op behind the slot", op)

    # 2. The door in: the operands' specs are the key of a plan, made at first sight.
    c = a + b
    key = (a.spec, b.spec, 0)
    plan = op.binary[key]
    show("the plan, found under (spec, spec, flags)", plan)
    # The second call finds it: nothing is decided again.
    assert (a + b).spec is c.spec
    assert op.binary[key] is plan

    # 3. The recipe: what does not depend on sizes.  The formula became a program.
    traced = plan.recipe.traced
    show("the entry's formula as a program", describe(traced.program, traced.operands))
    show("the kernels considered", plan.recipe.considered)

    # 4. The site: the line of the call, noted undecoded and decoded when somebody asks.
    file, line = decode_site(modes.current().code, modes.current().instruction)
    show("the line that called last", f"{file}:{line}")

    # 5. The door out: every kernel leaves through `submit`, which tells who listens.
    events: list = []
    with listening(events.append):
        c = a + b
    show("the events of one call", "\n".join(f"{event.kind:<9}{event.name}" for event in events))
    assert [event.kind for event in events] == ["plan", "allocate", "launch", "call"]

    # 6. The kernel wrote the result's memory.
    show("the kernel", plan.kernel.name)
    show("the result", c)
    assert c.tolist() == [[11.0, 22.0, 33.0], [14.0, 25.0, 36.0]]

    # All of it as text:
    show("ss.explain(ss.add, a, b)", ss.explain(ss.add, a, b))


if __name__ == "__main__":
    sys.exit(main())
