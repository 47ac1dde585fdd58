"""Functions with gradients written by hand, checked against differences."""

import numpy as np
import torch
from torch.autograd import Function, gradcheck, gradgradcheck


class Swish(Function):
    """x * sigmoid(x), which keeps one tensor instead of two."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s + x * s * (1 - s))


class ScaledProduct(Function):
    """a @ b * scale; the scale has no gradient."""

    @staticmethod
    def forward(ctx, a, b, scale):
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return a.mm(b).mul(scale)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = grad_output.mm(b.t()) * ctx.scale
        if ctx.needs_input_grad[1]:
            grad_b = a.t().mm(grad_output) * ctx.scale
        return grad_a, grad_b, None


rng = np.random.default_rng(9)
x = torch.from_numpy(rng.standard_normal((3, 4))).requires_grad_()
w = torch.from_numpy(rng.standard_normal((4, 2))).requires_grad_()
print("swish", gradcheck(Swish.apply, (x,), eps=1e-6, atol=1e-4), gradgradcheck(Swish.apply, (x,)))
print("product", gradcheck(lambda a, b: ScaledProduct.apply(a, b, 0.5), (x, w)))
out = ScaledProduct.apply(Swish.apply(x), w, 0.5)
out.tanh().sum().backward()
print("out %.6f" % out.sum().item())
print("x.grad", np.round(x.grad.numpy()[0], 5).tolist())
print("w.grad", np.round(w.grad.numpy().ravel(), 5).tolist())
(third,) = torch.autograd.grad(Swish.apply(x).pow(3).sum(), x)
print("third %.5f" % third.norm().item())
