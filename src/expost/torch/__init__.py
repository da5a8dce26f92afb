"""DP-SGD with PyTorch: the exposure of every row of a neural network, from one training run.

Needs the extra ``torch``.
"""

from expost.errors import require

require("torch", caller="expost.torch", extra="torch")

# Imported after the check, so that without torch the error above is raised.
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript  # noqa: E402
from expost.torch.attacks import (  # noqa: E402
    ModuleGradients,
    TorchModel,
    TorchTraining,
    gradient_scores,
    torch_target,
)
from expost.torch.mechanism import TrainingMechanism, training_mechanism  # noqa: E402
from expost.torch.tracking import Tracker, track  # noqa: E402
from expost.torch.training import Step, Trainer, Training, prepare, train  # noqa: E402

__all__ = [
    "Adversary",
    "ModuleGradients",
    "SGDMechanism",
    "Step",
    "TorchModel",
    "TorchTraining",
    "Tracker",
    "Trainer",
    "Training",
    "TrainingMechanism",
    "Transcript",
    "gradient_scores",
    "prepare",
    "torch_target",
    "track",
    "train",
    "training_mechanism",
]
