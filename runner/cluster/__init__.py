"""Several processes for one run: tasks and permits are leased from one place, each worker writes a shard of its own.

`coordinator.py` runs in the command's process. It hands out tasks (`leases.py`), lets calls through the one gate of
each model (`permits.py`) and merges the shards (`merge.py`). A worker (`worker.py`) is an execution whose tasks come
from there and whose gates ask there (`leased.py`). `local.py` and `ray.py` only start workers.
"""
