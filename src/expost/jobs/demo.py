"""``expost demo``: the profile of a table that scikit-learn ships."""

from typing import Any

from sklearn.datasets import load_breast_cancer

from expost.jobs.requests import DemoRequest, ProfileRequest

__all__ = ["demo_request"]


def demo_request(request: DemoRequest) -> ProfileRequest:
    """Return the request to profile the breast-cancer data, keyed by patient."""
    patients = load_breast_cancer()
    columns: dict[str, Any] = {
        str(name): patients.data[:, index] for index, name in enumerate(patients.feature_names)
    }
    columns["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    columns["patient"] = [f"patient {number}" for number in range(1, len(patients.target) + 1)]
    return ProfileRequest(
        source=columns,
        name="breast cancer, 569 patients",
        target="diagnosis",
        id_column="patient",
        classes=("benign", "malignant"),
        epsilon=request.epsilon,
        out=request.out,
        ledger=request.ledger,
        force=request.force,
        open_page=request.open_page,
        as_json=request.as_json,
        curator_json=request.curator_json,
        log_json=request.log_json,
        stated=tuple(name for name in request.stated if name == "epsilon"),
    )
