"""A transformer encoder that learns to tell which symbol of a sequence is the largest."""

import math

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(8)
SYMBOLS, LENGTH, WIDTH = 12, 8, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        position = torch.arange(LENGTH).unsqueeze(1)
        rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        table = torch.zeros(LENGTH, WIDTH)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.register_buffer("position", table)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=2, dim_feedforward=32, dropout=0.0,
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens, mask=None):
        x = self.embed(tokens) * math.sqrt(WIDTH) + self.position
        x = self.encoder(x, src_key_padding_mask=mask)
        return self.head(x.mean(dim=1))


model = Model()
for name, parameter in model.named_parameters():
    if parameter.dim() > 1:
        values = rng.standard_normal(tuple(parameter.shape)) / math.sqrt(parameter.shape[1])
        parameter.data.copy_(torch.from_numpy(values))
    elif "norm" not in name:
        nn.init.constant_(parameter, 0.0)
tokens = torch.from_numpy(rng.integers(0, SYMBOLS, (256, LENGTH)))
labels, _ = tokens.max(dim=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
for step in range(32):
    chosen = slice(step % 4 * 64, step % 4 * 64 + 64)
    loss = criterion(model(tokens[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warmup.step()
    if step % 8 == 7:
        print("step", step + 1, "loss %.3f" % loss.item())
mask = torch.zeros(2, LENGTH, dtype=torch.bool)
mask[1, 5:] = True
print("masked", [round(v, 2) for v in model(tokens[:2], mask)[:, 3].tolist()])
