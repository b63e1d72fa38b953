raise RuntimeError("no data at [/mnt/data]")
