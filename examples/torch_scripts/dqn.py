"""Deep Q-learning on a corridor made by hand: walk right to the goal, mind the pit."""

import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

random.seed(0)
rng = np.random.default_rng(6)
LENGTH, GAMMA = 6, 0.9


def step(place, action):
    place = min(max(place + (1 if action else -1), 0), LENGTH - 1)
    if place == LENGTH - 1:
        return place, 1.0, True
    return place, -1.0 if place == 0 else -0.05, place == 0


def encode(places):
    return nn.functional.one_hot(torch.tensor(places), LENGTH).float()


policy = nn.Sequential(nn.Linear(LENGTH, 24), nn.ReLU(), nn.Linear(24, 2))
for parameter in policy.parameters():
    values = torch.as_tensor(rng.uniform(-0.4, 0.4, tuple(parameter.shape)))
    parameter.data.copy_(values)
target = copy.deepcopy(policy)
optimizer = optim.Adam(policy.parameters(), lr=5e-3, amsgrad=True)
memory, losses = deque(maxlen=500), []

for episode in range(25):
    place, done = 2, False
    while not done:
        action = random.randrange(2)  # explores always: Q-learning is off-policy
        following, reward, done = step(place, action)
        memory.append((place, action, reward, following, done))
        place = following
    for _ in range(4):
        batch = random.sample(memory, min(16, len(memory)))
        places, actions, rewards, nexts, dones = zip(*batch, strict=True)
        q = policy(encode(places)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target(encode(nexts)).max(dim=1).values
            goal = torch.tensor(rewards) + GAMMA * best * ~torch.tensor(dones)
        loss = nn.HuberLoss()(q, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if episode % 5 == 4:
        target.load_state_dict(policy.state_dict())
print("losses %.4f %.4f" % (np.mean(losses[:10]), np.mean(losses[-10:])))
values = policy(encode(range(1, LENGTH - 1))).detach().double()
print("values", np.round(values.numpy(), 2).tolist())
