"""Leave the tests of this folder out where torch is not installed."""

from importlib.util import find_spec

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch

    torch.set_num_threads(1)
