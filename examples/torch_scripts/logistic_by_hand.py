"""Logistic regression with the loss, its gradient and its Hessian by autograd alone."""

import numpy as np
import torch

rng = np.random.default_rng(3)
centres = np.array([[1.0, 1.0], [-1.0, -0.5]])
points = np.concatenate([rng.standard_normal((60, 2)) + centre for centre in centres])
x = torch.tensor(np.c_[points, np.ones(120)], dtype=torch.float64)
y = torch.cat([torch.ones(60, dtype=torch.float64), torch.zeros(60, dtype=torch.float64)])


def loss_of(w):
    z = x.mv(w)
    # log(1 + exp(-z)) for the ones, log(1 + exp(z)) for the zeros, and a little ridge.
    loss = torch.where(y > 0.5, torch.log1p(torch.exp(-z)), torch.log1p(z.exp()))
    return loss.mean() + 0.01 * w.pow(2).sum()


w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
for _ in range(200):
    loss = loss_of(w)
    loss.backward()
    with torch.no_grad():
        w -= 0.5 * w.grad
        w.grad.zero_()
print("descent: loss %.6f" % loss.item(), "w", [round(v, 4) for v in w.tolist()])

w = torch.zeros(3, dtype=torch.float64, requires_grad=True)
for step in range(5):
    loss = loss_of(w)
    (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
    rows = [torch.autograd.grad(gradient[i], w, retain_graph=True)[0] for i in range(3)]
    hessian = torch.stack(rows)
    # Newton's step by Gauss-Jordan elimination, three unknowns.
    system = torch.cat([hessian, gradient.detach().unsqueeze(1)], dim=1)
    for i in range(3):
        system[i] = system[i] / system[i, i].clone()
        for j in range(3):
            if j != i:
                system[j] = system[j] - system[i] * system[j, i].clone()
    with torch.no_grad():
        w -= system[:, 3]
    print(f"newton {step}: loss {loss.item():.6f} |g| {gradient.detach().norm().item():.6f}")
right = ((torch.sigmoid(x @ w) > 0.5) == (y == 1)).sum().item()
print("right", right, "of", len(y))
assert torch.allclose(hessian, hessian.T)
