"""What needs torch: left out as a whole where it is not installed.

The folder is not called torch: ``tests`` is on the path, and it would be found by that name.
"""

from importlib.util import find_spec

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch

    torch.set_num_threads(1)
