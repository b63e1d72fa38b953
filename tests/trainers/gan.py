"""Two networks against each other: two optimizers and three forwards for each batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from toy import BATCH, EPOCHS, Numbers, finish, mlp, seed

seed(13)
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, drop_last=True)
generator, critic = mlp(4, 8), mlp(8, 1)
generator_steps = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
critic_steps = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
judge = nn.BCEWithLogitsLoss()

samples = []
for epoch in range(EPOCHS):
    seen = 0
    for step, (real, _) in enumerate(loader):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 4))

        critic_steps.zero_grad()
        critic_loss = judge(critic(real), ones) + judge(critic(fake.detach()), zeros)
        critic_loss.backward()
        critic_steps.step()

        generator_steps.zero_grad()
        generator_loss = judge(critic(fake), ones)
        generator_loss.backward()
        generator_steps.step()
        seen += len(real)
        print(f"epoch {epoch} step {step} critic {critic_loss.item()!r} generator {generator_loss.item()!r}")
    samples.append(seen)

finish(generator, critic, samples=samples)
