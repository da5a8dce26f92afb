"""Without torch everything but ``expost.torch`` works, and that says which extra to install."""

import subprocess
import sys

PROGRAM = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import expost
import expost.cli.main
import expost.profiles.transcript
from expost.errors import MissingExtra
from expost.mechanisms.dpsgd import SGDMechanism, Transcript
found = Transcript(SGDMechanism(rows=2, noise_multiplier=1.0, clip=1.0))
found.add_known([0], [0.5], [1.0], 1.0)
print(found.loss[0])
try:
    import expost.torch
except MissingExtra as error:
    print(isinstance(error, ImportError), error)
"""


def test_asking_for_torch_names_the_extra():
    # -I: this folder's own tests/with_torch must not be taken for it.
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    loss, answer = done.stdout.strip().splitlines()
    assert float(loss) == 1.0
    assert answer.startswith("True expost.torch needs torch")
    assert "pip install 'expost[torch]'" in answer


def test_nothing_else_imports_torch():
    program = (
        "import sys, expost, expost.cli, expost.profiles.transcript; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
