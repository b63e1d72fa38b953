"""The knobs of the training's own work: autocast, compile, matmul, threads, batch size.

``root`` does them to one trained module through its call slot, ``setters`` are torch's own process-wide settings,
``batches`` the batch size of one loader. Called in the training's thread between two steps; nothing here may touch a
setting that nobody asked for.
"""
