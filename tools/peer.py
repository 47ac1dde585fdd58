"""The environment that holds PyTorch, the peer: made once, in .venv-torch, and used again.

``python tools/peer.py`` prepares it; its status tells whether that worked.
"""

from __future__ import annotations

from pathlib import Path

from environment import MODEL, ROOT, changed, create_environment, pip_install

VENV = ROOT / ".venv-torch"
PYTHON = VENV / "bin" / "python"
# What the oracle of conformance needs beside PyTorch, and what ours needs to run there.
NEEDS = ["torch==2.13.0", "numpy>=2", "scipy", "pytest", "hypothesis", "expecttest",
         "ml_dtypes>=0.5", "cython>=3.1", "safetensors", "scikit-learn>=1.5"]
# The sentence encoder's weights and tokenizer, without what else these packages ask for.
BARE = ["tokenizers>=0.20", MODEL]


def ready() -> bool:
    """Tell whether PyTorch was installed already."""
    return not changed(VENV / "installed.stamp", " ".join([*NEEDS, *BARE]))


def prepare() -> Path:
    """Return the peer's Python; install first where that was not done."""
    key = " ".join([*NEEDS, *BARE])
    create_environment(VENV)
    if not ready():
        print("installing PyTorch into .venv-torch ...", flush=True)
        pip_install(*NEEDS, python=PYTHON)
        pip_install("--no-deps", *BARE, python=PYTHON)
        (VENV / "installed.stamp").write_text(key)
    return PYTHON


if __name__ == "__main__":
    prepare()
