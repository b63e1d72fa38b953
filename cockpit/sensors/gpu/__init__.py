"""What the accelerators report of themselves. ``reader`` keeps a child process (``nvml``) that may crash; nobody else
loads a vendor's library. Other vendors come in through the same ``GpuReader``.
"""
