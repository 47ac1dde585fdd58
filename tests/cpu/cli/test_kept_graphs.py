"""Memory that kept autograd graphs hold: the advice names the results, not the batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.memory.graphs import Look, look

HEAD = """\
import slipstream as ss

def main():
    x = ss.randn(64, 256)
    model = ss.nn.Sequential(ss.nn.Linear(256, 256), ss.nn.ReLU(), ss.nn.Linear(256, 10))
    kept, total = [], 0
    for step in range(40):
        y = model(x + step)
        loss = (y * y).mean()
"""
# What the loop does with its loss, and line and words of the advice.
KEPT = {
    "kept.append(loss)": (9, "results of `(y * y).mean()`", "are held in a list"),
    "kept.append(y)": (8, "results of `model(x + step)`", "are held in a list"),
    "total += loss": (10, "the running sum `total += loss`", "the autograd graphs of"),
    "total = total + 2 * loss": (10, "the running sum `total + 2 * loss`", "keeps the"),
}
FINE = ("kept.append(loss.detach())", "total += loss.item()", "loss.backward()",
        "loss.backward(); kept.append(loss)")


def advice(tmp_path: Path, line: str) -> tuple[str, list[str]]:
    """The script's name and what the command advises."""
    path = tmp_path / "script.py"
    path.write_text(f"{HEAD}        {line}\nmain()\n")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)["devices"][0]["advice"]
    return str(path), found


@pytest.mark.parametrize("line", KEPT)
def test_the_results_that_keep_graphs_are_named(line: str, tmp_path: Path) -> None:
    number, made, held = KEPT[line]
    script, found = advice(tmp_path, line)
    text = found[0]
    assert made in text
    assert held in text
    assert f"{script}:{number}" in text
    assert ".detach()" in text
    assert "no_grad()" in text
    assert not any("batch" in each for each in found)


@pytest.mark.parametrize("line", FINE)
def test_what_keeps_no_graph_is_not_blamed(line: str, tmp_path: Path) -> None:
    _, found = advice(tmp_path, line)
    assert not any("autograd" in each for each in found)


def test_parameters_are_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import slipstream as ss\n"
                    "model = ss.nn.Linear(1000, 1000)\n"
                    "y = model(ss.randn(1, 1000))\n")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    text, = json.loads(done.stdout)["devices"][0]["advice"]
    assert f"{path}:2" in text
    assert "they are parameters" in text
    assert "batch" not in text


def seen(results: Any) -> Look:
    """A look while ``results`` are held."""
    assert results is not None
    return look()


def at_this_file(found: Look) -> list[Any]:
    return [each for each in found.kept if each.site[0].co_filename == __file__]


def test_a_graph_that_was_put_together_is_one() -> None:
    w = ss.randn(32, 32, requires_grad=True)
    h = ss.zeros(32, 32)
    outs = []
    for _ in range(12):
        h = (h @ w).tanh()
        outs.append(h)
    # Each but the last leads on; what is made of all of them holds the one graph of a step.
    assert at_this_file(seen(outs)) == []
    loss = ss.stack(outs).sum()
    assert at_this_file(seen(loss)) == []
    del loss
    alone = [(w * step).tanh() for step in range(12)]
    kept, = at_this_file(seen(alone))
    assert (kept.number, kept.holder, kept.summed) == (12, "list", False)
    storages = {each.storage.address for each in alone}
    assert storages <= kept.addresses
    assert w.storage.address not in kept.addresses


def test_data_that_the_program_holds_is_not_the_graphs() -> None:
    data = ss.randn(64, 32)
    w = ss.randn(32, 32, requires_grad=True)
    alone = [data @ w for _ in range(6)]
    kept, = at_this_file(seen(alone)) or [None]
    assert kept is None or data.storage.address not in kept.addresses
    apart = [(data + step) @ w for step in range(6)]
    kept, = [each for each in at_this_file(seen(apart)) if each.number == 6]
    assert len(kept.addresses) == 12
    assert data.storage.address not in kept.addresses


def test_backward_lets_the_graphs_go() -> None:
    w = ss.randn(32, 32, requires_grad=True)
    losses = [(w * step).tanh().sum() for step in range(6)]
    assert len(at_this_file(seen(losses))) == 1
    for loss in losses:
        loss.backward()
    assert at_this_file(seen(losses)) == []


CHAIN = "x = y = ss.ones(500, 500, requires_grad=True)\nfor _ in range(5):\n    y = y.exp()\n"
# What holds most of a script's peak, and what of it is advised.
LARGEST = {
    "x = ss.randn(1000, 1000)": ("fewer elements at a time", "checkpoint"),
    f"{CHAIN}y.sum().backward()": ("backward needs it: smaller batches", "no_grad"),
    # No backward ran: the graph is there at the end, was let go of, or belongs to a validation.
    CHAIN: ("run what is only read under no_grad()", "smaller batches"),
    f"{CHAIN}y = None": ("run what is only read under no_grad()", "smaller batches"),
    f"(w * w).backward()\n{CHAIN}y = None\n(w * w).backward()":
        ("run what is only read under no_grad()", "smaller batches"),
    # What backward makes is looked at while it walks.
    f"{CHAIN}y.exp().exp().sum().backward()\nx.sum().backward()":
        ("backward needs it: smaller batches", "no_grad"),
}


def test_an_evaluation_that_keeps_its_graphs_is_told_of_no_grad(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("""import slipstream as ss
model = ss.nn.Sequential(ss.nn.Linear(64, 256), ss.nn.GELU(), ss.nn.Linear(256, 8))
out = []
for batch in ss.randn(1000, 64).split(50):
    out.append(model(batch))
scores = ss.cat(out)
""")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    # The list holds results that went into one; it is their graphs that are large.
    text, = json.loads(done.stdout)["devices"][0]["advice"]
    assert text.startswith(f"{path}:5: `model(batch)` keeps ")
    assert "for a backward() that never came: run what is only read under no_grad()" in text


def test_a_script_that_failed_may_have_had_a_backward(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import slipstream as ss\n{CHAIN}y.backwards()\n")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1
    text, = json.loads(done.stdout)["devices"][0]["advice"]
    assert "backward needs it: smaller batches" in text


@pytest.mark.parametrize("lines", LARGEST)
def test_what_backward_needs_is_told_from_data(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import slipstream as ss\nw = ss.ones(1, requires_grad=True)\n{lines}\n")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    text, = json.loads(done.stdout)["devices"][0]["advice"]
    said, unsaid = LARGEST[lines]
    assert said in text
    assert unsaid not in text


# What a training loop keeps, and whether the advice takes it for a list that grows.
LOOPS = {"kept.append(model(x).detach())": True, "kept[:] = [model(x).detach()]": False}


@pytest.mark.parametrize("line", LOOPS)
def test_what_is_made_all_along_is_told_from_what_is_made_once(line: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"""import slipstream as ss
layers = [ss.nn.Linear(32, 32) for _ in range(60)]
model = ss.nn.Sequential(*layers)
optimizer = ss.optim.Adam(model.parameters())
kept, x = [], ss.ones(512, 32)
for step in range(30):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    {line}
""")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    found = [each for each in json.loads(done.stdout)["devices"][0]["advice"]
             if "does a list or dict grow?" in each]
    assert len(found) == LOOPS[line]
    # Neither parameters nor an optimizer's state grow, though they are many.
    assert all(f"{path}:10: 30 blocks of `model(x)` (1.88 MiB)" in each for each in found)


def test_results_that_a_step_puts_together_are_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("""import slipstream as ss
def main():
    x, w = ss.randn(128, 64), ss.randn(64, 64, requires_grad=True)
    for step in range(4):
        views = []
        for number in range(32):
            views.append((x @ w).tanh())
        first = views[0]
        for view in views[1:]:
            first = first.mean() * view.mean()
        first.backward()
main()
""")
    done = subprocess.run([sys.executable, "-m", "slipstream", "memory", "--json", str(path)],
                          capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["devices"][0]["advice"]
    assert not any("autograd" in each for each in found)
    assert any("backward needs it" in each for each in found)
