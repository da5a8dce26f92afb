"""Options of scikit-learn's logistic models that 1.8 renamed, as the installed version names them."""

from typing import Any

from sklearn.linear_model import LogisticRegressionCV

_BY_RATIO = "use_legacy_attributes" in LogisticRegressionCV().get_params()

L1: dict[str, Any] = {"l1_ratio": 1.0} if _BY_RATIO else {"penalty": "l1"}
ELASTIC_NET: dict[str, Any] = {"l1_ratio": 0.5} | ({} if _BY_RATIO else {"penalty": "elasticnet"})
# L2 chosen by cross-validation; from 1.8 on its default is deprecated and warns.
CROSS_VALIDATED: dict[str, Any] = (
    {"l1_ratios": (0.0,), "use_legacy_attributes": False} if _BY_RATIO else {}
)
