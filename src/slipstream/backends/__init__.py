"""What computes, and how exactly: PyTorch's ``torch.backends``.

Every flag of PyTorch's is taken.  Those that choose between roads that Slipstream does not have
change nothing; results are exact and deterministic unless a flag here says otherwise.
"""

from __future__ import annotations

from slipstream.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
