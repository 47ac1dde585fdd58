"""Classifies scikit-learn's digits with a convolutional network."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

rng = np.random.default_rng(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.fc = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def init(module):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        bound = 1 / math.sqrt(module.weight[0].numel())
        for parameter in (module.weight, module.bias):
            values = rng.uniform(-bound, bound, tuple(parameter.size()))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(values))


data = load_digits()
images = torch.from_numpy(data.images / 16).float().unsqueeze(1)
labels = torch.from_numpy(data.target).long()
model = Net().apply(init)
print("parameters", sum(p.numel() for p in model.parameters() if p.requires_grad))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
model.train()
for step in range(40):
    index = torch.from_numpy(rng.integers(0, 1500, 64))
    optimizer.zero_grad()
    loss = F.nll_loss(model(images[index]), labels[index])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 10 == 9:
        print("step", step, "loss", round(loss.item(), 4))

model.eval()
with torch.no_grad():
    output = model(images[1500:])
    print("test loss %.3f" % F.nll_loss(output, labels[1500:]).item())
    print("running mean", np.round(model.norm.running_mean.numpy()[:3], 4).tolist())
