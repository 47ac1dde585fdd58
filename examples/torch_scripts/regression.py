"""Fits a line by linear regression, and a wave by a small network, with Adam."""

import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(0)


def fill(model):
    for parameter in model.parameters():
        values = rng.uniform(-1, 1, tuple(parameter.shape)) / math.sqrt(parameter.shape[-1])
        parameter.data.copy_(torch.from_numpy(values))


def fit(model, inputs, targets, optimizer, steps):
    criterion = nn.MSELoss()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


x = torch.from_numpy(rng.uniform(-2, 2, (128, 3))).float()
true = torch.tensor([[1.5], [-2.0], [0.5]])
y = x @ true + 0.7 + 0.1 * torch.from_numpy(rng.standard_normal((128, 1))).float()

line = nn.Linear(3, 1)
fill(line)
loss = fit(line, x, y, torch.optim.SGD(line.parameters(), lr=0.1, momentum=0.9), 150)
print("line loss", round(loss, 5))
print("weight", [round(value, 3) for value in line.weight.flatten().tolist()])
print("bias", round(line.bias.item(), 3))

wave = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
fill(wave)
angles = torch.linspace(-math.pi, math.pi, 100).unsqueeze(1)
loss = fit(wave, angles, torch.sin(angles), torch.optim.Adam(wave.parameters(), lr=0.01), 200)
print("wave loss", round(loss, 5))
with torch.no_grad():
    print("sin(1) about", round(wave(torch.tensor([[1.0]])).item(), 3))
