"""A training that opts in, and that another process may not be able to begin again: it makes its folder RESULTS and
minds when that is there, or its optimizer is given more to train in the second epoch (``WAY``: folder, group, none).

``HELD``: it waits in its second epoch until that file is there.
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import cockpit
from toy import Numbers, finish, seed

WAY = os.environ.get("WAY", "none")
print("BEGINS", flush=True)
seed(7)
if WAY == "folder":
    os.makedirs(os.environ["RESULTS"])
head = nn.Linear(16, 1)
body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
optimizer = torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.9)
run = cockpit.session(body=body, head=head, optimizer=optimizer)
loader = DataLoader(Numbers(48), batch_size=8, shuffle=True)
for epoch in run.epochs(int(os.environ.get("EPOCHS", "24"))):
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(head(body(x)), y)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item()!r}", flush=True)
        time.sleep(float(os.environ.get("PAUSE_S", "0")))
    while epoch == 1 and os.environ.get("HELD") and not os.path.exists(os.environ["HELD"]):
        time.sleep(0.05)
    if epoch == 1 and WAY == "group":
        optimizer.add_param_group({"params": body.parameters(), "lr": 0.01})
finish(nn.Sequential(body, head))
