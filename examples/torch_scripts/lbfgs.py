"""Minimises Rosenbrock's function with LBFGS, and finds a curve's parameters with it."""

import numpy as np
import torch


def rosenbrock(p):
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


point = torch.tensor([-1.2, 1.0, 0.5, -0.3], dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.LBFGS([point], lr=1, max_iter=20, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    value = rosenbrock(point)
    value.backward()
    return value


for round_ in range(5):
    value = optimizer.step(closure)
    print(f"round {round_}: {value.item():.5f}")
print("minimum at", [round(v, 4) for v in point.tolist()])

rng = np.random.default_rng(7)
t = torch.linspace(0, 3, 60, dtype=torch.float64)
noise = torch.from_numpy(rng.standard_normal(60))
measured = 2.5 * torch.exp(-1.3 * t) * torch.cos(4 * t) + 0.01 * noise
parameters = [torch.nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in (2.0, 1.0, 3.8)]
a, b, c = parameters
fit = torch.optim.LBFGS(parameters, max_iter=60, history_size=10, line_search_fn="strong_wolfe")


def residual():
    fit.zero_grad()
    loss = (a * torch.exp(-b * t) * torch.cos(c * t) - measured).square().mean()
    loss.backward()
    return loss


fit.step(residual)
print("amplitude %.4f decay %.4f frequency %.4f" % (a.item(), b.item(), c.item()))
print("residual %.6f" % residual().item())
