"""PyTorch's lists of what autocast does, by our names, and what each policy means for a call."""

from __future__ import annotations

from typing import Any

import catalogue
import numpy as np

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import Op

# PyTorch 2.13's lists, read from what is registered there; ops that it lacks are not among them.
LOWER = {
    "cpu": "addbmm addmm addmm_activation baddbmm bmm conv1d conv2d linear matmul mm prelu "
           "scaled_dot_product_attention",
    "cuda": "addbmm addmm addmv addr baddbmm bmm conv1d conv2d einsum linear matmul mm multi_dot "
            "mv prelu scaled_dot_product_attention",
}
FLOAT32 = {
    "cpu": "adaptive_avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist "
           "cholesky cross_entropy eigh eigvalsh inverse l1_loss matrix_rank mse_loss nll_loss "
           "pinv prod qr solve svd svdvals trace view_as_complex",
    # square is a power there, and the norms, cross_entropy and norm end in listed ones.
    "cuda": "acos asin binary_cross_entropy_with_logits cdist cosh cross_entropy cumprod cumsum "
            "exp expm1 general_norm group_norm l1_loss layer_norm log log10 log1p log2 log_softmax "
            "logsumexp matrix_norm mse_loss nll_loss norm pow prod reciprocal rms_norm rsqrt sinh "
            "softmax softplus square sum tan vector_norm",
}
WIDEST = {
    "cpu": "cat index_copy stack",
    "cuda": "addcdiv addcmul atan2 cross dot index_put scatter_add tensordot vdot",
}
REFUSED = {"cpu": "", "cuda": "binary_cross_entropy"}
LISTS = {"lower": LOWER, "float32": FLOAT32, "widest": WIDEST, "refused": REFUSED}
LOWERED = {"cpu": (ss.bfloat16, ss.float16), "cuda": (ss.float16, ss.bfloat16)}


def listed(policy: str, device: str) -> list[str]:
    """The ops of a list."""
    return LISTS[policy][device].split()


def sampled(policy: str, device: str) -> list[str]:
    """Those of them that have samples of floats."""
    return [name for name in listed(policy, device)
            if table[name].entry.samples and "float" in table[name].entry.dtypes]


def is_float(value: Any) -> bool:
    """Whether a value is a floating tensor."""
    return isinstance(value, ss.Tensor) and value.is_floating_point()


def cast(value: Any, dtype: Any) -> Any:
    """Floating tensors in a dtype, also in lists."""
    if isinstance(value, (list, tuple)):
        return type(value)([cast(each, dtype) for each in value])
    return value.to(dtype) if is_float(value) else value


def mixed(values: Any, first: Any, others: Any) -> Any:
    """The first floating tensor in one dtype, all others in another."""
    seen: list[Any] = []

    def made(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([made(each) for each in value])
        if not is_float(value):
            return value
        seen.append(value)
        return value.to(first if len(seen) == 1 else others)

    return made(values)


def check(op: Op, sample: Any, device: str, lower: Any, target: Any) -> None:
    """Under autocast, operands of two dtypes give what operands cast to ``target`` give."""
    case = catalogue.case_of(op, sample, ss.float32, device=device)
    for first, others in ((ss.float32, ss.float32), (lower, lower), (lower, ss.float32),
                          (ss.float32, lower)):
        args = mixed(case.args, first, others)
        wanted = target(args, lower)
        expected = catalogue.results_of(op.call(cast(args, wanted), case.kwargs))
        with ss.autocast(device, dtype=lower):
            found = catalogue.results_of(op.call(args, case.kwargs))
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.dtype is theirs.dtype
            np.testing.assert_array_equal(bits(mine), bits(theirs))


def bits(tensor: Any) -> Any:
    """A tensor's elements, as wide floats where NumPy has no such dtype."""
    host = tensor.detach().cpu()
    return (host.double() if host.is_floating_point() else host).numpy()


def flattened(values: Any) -> list[Any]:
    """Every tensor among arguments."""
    found = []
    for value in values:
        found += flattened(value) if isinstance(value, (list, tuple)) else [value]
    return found


def to_lower(args: Any, lower: Any) -> Any:
    """The dtype that an op of the first list runs in."""
    return lower


def to_float32(args: Any, lower: Any) -> Any:
    """The dtype that an op of the second list runs in."""
    return ss.float32


def to_widest(args: Any, lower: Any) -> Any:
    """The dtype that an op of the third list runs in."""
    floats = [each.dtype for each in flattened(args) if is_float(each)]
    return ss.float32 if ss.float32 in floats else lower


TARGETS = {"lower": to_lower, "float32": to_float32, "widest": to_widest}
