"""Extensions in C++ and CUDA from strings: a documented subset of ``torch.utils.cpp_extension``.

`load_inline` takes a PyTorch-style source as it is: functions over ``torch::Tensor`` that launch
kernels with ``<<<grid, block>>>``.  The host's part is built by the machine's C++ compiler, in
about a second, the kernels like those of ``slipstream.cuda.kernel``; both are kept on disk.
"""

from __future__ import annotations

from slipstream.utils.cpp_extension.loading import load_inline

__all__ = ["load_inline"]
