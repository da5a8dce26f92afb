"""DP-SGD with PyTorch: the exposure of every row of a neural network, from one training run.

Needs the extra ``torch``.
"""

from expost.errors import require

require("torch", caller="expost.torch", extra="torch")

# Only now: without torch the one sentence above is all that is said.
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript  # noqa: E402
from expost.torch._adversarial import (  # noqa: E402
    AdversarialTraining,
    adversarial_regularization,
)
from expost.torch._adversary import strong_adversary  # noqa: E402
from expost.torch._attacks import (  # noqa: E402
    ModuleGradients,
    TorchModel,
    TorchTraining,
    gradient_scores,
    torch_target,
)
from expost.torch._defences import (  # noqa: E402
    AdversarialDefence,
    DPSGDDefence,
    Perceptron,
)
from expost.torch._experiment import Experiment  # noqa: E402
from expost.torch._federated import (  # noqa: E402
    Ascent,
    FederatedGame,
    FederatedRun,
    federated_game,
    federated_rounds,
)
from expost.torch._mechanism import TrainingMechanism, training_mechanism  # noqa: E402
from expost.torch._sensitivity import (  # noqa: E402
    Sensitivity,
    dataset_sensitivity,
    gradient_sensitivity,
)
from expost.torch._track import Tracker, track  # noqa: E402
from expost.torch._train import train  # noqa: E402
from expost.torch._trainer import Step  # noqa: E402
from expost.torch._training import Training  # noqa: E402

__all__ = [
    "AdversarialDefence",
    "AdversarialTraining",
    "Adversary",
    "Ascent",
    "DPSGDDefence",
    "Experiment",
    "FederatedGame",
    "FederatedRun",
    "ModuleGradients",
    "Perceptron",
    "SGDMechanism",
    "Sensitivity",
    "Step",
    "TorchModel",
    "TorchTraining",
    "Tracker",
    "Training",
    "TrainingMechanism",
    "Transcript",
    "adversarial_regularization",
    "dataset_sensitivity",
    "federated_game",
    "federated_rounds",
    "gradient_scores",
    "gradient_sensitivity",
    "strong_adversary",
    "torch_target",
    "track",
    "train",
    "training_mechanism",
]
