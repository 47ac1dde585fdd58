"""An autoencoder that learns points on a curve; saves it, loads it, compares."""

import io

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(5)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 24), nn.GELU(), nn.Linear(24, 16))

    def forward(self, x):
        return self.decoder(self.encoder(x))


angles = torch.from_numpy(rng.uniform(0, 2 * np.pi, 256)).float()
waves = torch.arange(1, 9, dtype=torch.float32)
data = torch.cat([torch.sin(angles[:, None] + waves), torch.cos(angles[:, None] * 1 - waves)], 1)
train, test = data.split([200, 56])

model = AutoEncoder()
for name, parameter in model.named_parameters():
    scale = 0.0 if name.endswith("bias") else parameter.shape[1] ** -0.5
    values = rng.standard_normal(tuple(parameter.shape)) * scale
    parameter.data.copy_(torch.from_numpy(values))
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
for epoch in range(100):
    for batch in train.chunk(2):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.smooth_l1_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
    scheduler.step()
    if epoch % 25 == 24:
        print(f"epoch {epoch + 1:3d} loss {loss.item():.4f}")

file = io.BytesIO()
torch.save({"model": model.state_dict(), "epoch": 100}, file)
file.seek(0)
checkpoint = torch.load(file, weights_only=True)
again = AutoEncoder()
again.load_state_dict(checkpoint["model"])
with torch.inference_mode():
    error = (again(test) - test).abs().mean()
    print("test error %.3f" % error)
    print("same", torch.equal(model(test), again(test)), "code", tuple(model.encoder(test).shape))
