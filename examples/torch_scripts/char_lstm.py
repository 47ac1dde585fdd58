"""A character model with an LSTM on a few lines of text; continues a prompt greedily."""

import numpy as np
import torch
from torch import nn

TEXT = ("the cat sat on the mat. the dog sat on the log. "
        "the cat saw the dog. the dog saw the cat. ") * 2
rng = np.random.default_rng(4)
chars = sorted(set(TEXT))
index = {c: i for i, c in enumerate(chars)}


class CharModel(nn.Module):
    def __init__(self, size, hidden=32):
        super().__init__()
        self.embedding = nn.Embedding(size, 12)
        self.lstm = nn.LSTM(12, hidden, batch_first=True)
        self.head = nn.Linear(hidden, size)

    def forward(self, text, state=None):
        output, state = self.lstm(self.embedding(text), state)
        return self.head(output), state


model = CharModel(len(chars))
state_dict = {name: torch.from_numpy(rng.uniform(-0.2, 0.2, tuple(value.shape))).float()
              for name, value in model.state_dict().items()}
print(model.load_state_dict(state_dict))
encoded = torch.tensor([index[c] for c in TEXT])
inputs, targets = encoded[:-1][:160].view(4, 40), encoded[1:][:160].view(4, 40)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss()
for step in range(41):
    logits, _ = model(inputs)
    loss = criterion(logits.reshape(-1, len(chars)), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

text, state = "the d", None
with torch.no_grad():
    logits, state = model(torch.tensor([[index[c] for c in text]]))
    for _ in range(12):
        best = logits[0, -1].softmax(dim=-1).argmax()
        text += chars[best.item()]
        logits, state = model(best.view(1, 1), state)
print("length", len(text), "hidden", tuple(state[0].shape))
