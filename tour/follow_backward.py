"""Follow one backward: what the tape keeps, in which order it runs, what it lets go.

Run: python tour/follow_backward.py
"""

from __future__ import annotations

import sys

import slipstream as ss
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.records import Node


def show(title: str, value: object) -> None:
    print(f"\n== {title}\n{value}")


def chain(node: Node | None) -> list[Node]:
    """The nodes along the first edge of each."""
    found = []
    while node is not None:
        found.append(node)
        node = node.next_functions[0][0] if node.edges else None
    return found


def main() -> None:
    x = ss.tensor([0.0, 1.0, 2.0], requires_grad=True)
    w = ss.tensor([3.0, 4.0, 5.0], requires_grad=True)

    # 1. Forward: each call whose operands want gradients leaves a node.
    loss = (x * w).exp().sum()

    # 2. Edges point from a node to the nodes that made its operands; leaves end in accumulators.
    nodes = chain(loss.grad_fn)
    show("from the loss to the leaf", "\n".join(map(repr, nodes)))
    names = [node.name() for node in nodes]
    assert names == ["SumBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad"]

    # 3. A node saves what its gradient's formula names and nothing else: the slope of exp is its
    #    result; mul names the other operand, add would name nothing.
    total, exponential, product = nodes[:3]
    show("mul saves", [saved.tensor.spec for saved in product.saved])
    show("exp saves its result", exponential.extra.tensor.spec)
    assert total.saved == ()
    assert exponential.extra.is_output

    # 4. Each node knows the line that made it: errors in backward name it.
    show("the line of mul", "{}:{}".format(*decode_site(product.code, product.instruction)))

    # 5. Backward runs the nodes from the latest to the earliest.  The gradient of mul for both
    #    operands is one program, made from the two formulas.
    explained = ss.explain(loss.backward)
    show("what backward ran", explained)

    # 6. The leaves have their gradients; what the nodes saved is let go.
    show("x.grad", x.grad)
    assert ss.autograd.grad((x * w).exp().sum(), x)[0].tolist() == x.grad.tolist()
    assert product.saved is None
    try:
        loss.backward()
    except RuntimeError as error:
        show("a second backward", error)

    # 7. Double backward needs no second rule: under create_graph the same formulas are called
    #    with tensors, which leave nodes themselves.
    y = ss.tensor(3.0, requires_grad=True)
    (first,) = ss.autograd.grad(y ** 3, y, create_graph=True)
    (second,) = ss.autograd.grad(first, y)
    show("the first and second derivative of y ** 3 at 3", (first.item(), second.item()))
    assert (first.item(), second.item()) == (27.0, 18.0)


if __name__ == "__main__":
    sys.exit(main())
