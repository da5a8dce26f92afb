"""DP-SGD with PyTorch: the exposure of every row of a neural network, from one training run.

Needs the extra ``torch``.
"""

from expost.errors import require

require("torch", caller="expost.torch", extra="torch")

# Imported after the check, so that without torch the error above is raised.
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript  # noqa: E402
from expost.mechanisms.row_count import NoisyCount, noisy_count  # noqa: E402
from expost.torch.attacks import (  # noqa: E402
    ModuleGradients,
    TorchModel,
    TorchTraining,
    gradient_scores,
    torch_target,
)
from expost.torch.canaries import plant  # noqa: E402
from expost.torch.conform import TorchTask, conform  # noqa: E402
from expost.torch.mechanism import TrainingMechanism, training_mechanism  # noqa: E402
from expost.torch.tracking import Tracker, track  # noqa: E402
from expost.torch.training import Step, Trainer, Training, prepare, train  # noqa: E402

__all__ = [
    "Adversary",
    "ModuleGradients",
    "NoisyCount",
    "SGDMechanism",
    "Step",
    "TorchModel",
    "TorchTask",
    "TorchTraining",
    "Tracker",
    "Trainer",
    "Training",
    "TrainingMechanism",
    "Transcript",
    "conform",
    "gradient_scores",
    "noisy_count",
    "plant",
    "prepare",
    "torch_target",
    "track",
    "train",
    "training_mechanism",
]
