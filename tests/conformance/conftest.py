"""The plug-in of the tests is a mechanism here, as it is where its package is installed."""

import pytest

from expost.mechanisms import MECHANISMS
from plug_ins.coordinate_laplace import CoordinatePerturbation


@pytest.fixture(autouse=True)
def plug_in(monkeypatch):
    monkeypatch.setitem(MECHANISMS._own, CoordinatePerturbation.kind, CoordinatePerturbation)
