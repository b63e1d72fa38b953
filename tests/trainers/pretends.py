"""The slow training, on a machine whose torch says that it holds memory on one GPU. Computes on the CPU all the same.

What the driver says of that device is up to whoever starts it; environment as for ``slow.py``.
"""

import types

import torch

import slow

torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.memory_reserved = lambda at: 2**30
torch.cuda.get_device_properties = lambda at: types.SimpleNamespace(uuid="0a1b2c3d-aabbcc")
torch.cuda.is_current_stream_capturing = lambda: True  # nothing may ask a driver that is not there

if __name__ == "__main__":
    slow.main()
