"""What needs torch: left out as a whole where it is not installed.

This folder has no ``__init__.py``: a package of its name would hide torch itself.
"""

from importlib.util import find_spec

# Not "torch" alone: without it this very folder would be found by that name.
if find_spec("torch.func") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch

    torch.set_num_threads(1)
