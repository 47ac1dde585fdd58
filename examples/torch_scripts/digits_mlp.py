"""Classifies scikit-learn's digits with a multilayer perceptron."""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

rng = np.random.default_rng(1)


class Network(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.first = nn.Linear(64, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, 10)

    def forward(self, images):
        return self.last(F.relu(self.norm(self.first(images))))


def main():
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[order], dtype=torch.long)
    model = Network()
    for layer in (model.first, model.last):
        bound = layer.in_features ** -0.5
        layer.weight.data = torch.tensor(
            rng.uniform(-bound, bound, tuple(layer.weight.shape)), dtype=torch.float32)
        nn.init.zeros_(layer.bias)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    for epoch in range(4):
        total = 0.0
        for start in range(0, 1500, 100):
            batch = images[start:start + 100].to(device)
            loss = F.cross_entropy(model(batch), labels[start:start + 100].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch} loss {total / 15:.4f} lr {scheduler.get_last_lr()[0]:.5f}")
    model.eval()
    with torch.no_grad():
        guesses = model(images[1500:].to(device)).argmax(dim=1).cpu()
    print(f"accuracy {(guesses == labels[1500:]).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
