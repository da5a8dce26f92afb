"""The estimator that a person named: a class that can be imported, and its parameters.

    sklearn.ensemble.RandomForestClassifier
    sklearn.linear_model.LogisticRegression:C=10,solver=liblinear

Parameters are Python literals; a bare word is a text. Nothing is evaluated but literals.
"""

import ast
from importlib import import_module
from typing import Any

from expost.errors import InvalidInput
from expost.groups.columns import printable

__all__ = ["named_estimator"]


def named_estimator(text: str) -> Any:
    """The estimator, not fitted; anything without ``fit`` and ``predict_proba`` is refused."""
    path, colon, parameters = text.partition(":")
    name = f"--estimator {printable(text)!r}"
    model = _imported(path, name)
    settings = _parameters(parameters, name) if colon else {}
    try:
        estimator = model(**settings)
    # Whatever a class of somebody else's raises: it is the user's parameter that is wrong.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: {model.__name__} does not take these parameters ({printable(error, 200)})."
        ) from None
    for method in ("fit", "predict_proba", "get_params"):
        if not hasattr(estimator, method):
            hint = "; pass probability=True" if "probability" in _settings(estimator) else ""
            raise InvalidInput(
                f"{name}: has no {method}: an audit needs a class of scikit-learn's interface that"
                f" gives probabilities{hint}."
            )
    return estimator


def _settings(estimator: Any) -> Any:
    return estimator.get_params() if hasattr(estimator, "get_params") else {}


def _imported(path: str, name: str) -> type:
    """The class at a dotted path."""
    module, dot, attribute = path.rpartition(".")
    if not dot or not all(part.isidentifier() for part in path.split(".")):
        raise InvalidInput(
            f"{name}: must be a class with its module, as sklearn.ensemble.RandomForestClassifier."
        )
    try:
        found = getattr(import_module(module), attribute)
    except ImportError:
        raise InvalidInput(
            f"{name}: the module {module!r} cannot be imported; install it, or put its folder on"
            " PYTHONPATH."
        ) from None
    except AttributeError:
        raise InvalidInput(f"{name}: {module!r} has no {attribute!r}.") from None
    # A module of the user's runs when it is imported, and may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{name}: the module {module!r} raises {type(error).__name__} when it is imported;"
            " mend it."
        ) from None
    if not isinstance(found, type):
        raise InvalidInput(f"{name}: is no class; name one that is fitted by fit(X, y).")
    if not hasattr(found, "fit"):
        # Before there is an instance: to make one of subprocess.Popen is to run a program.
        raise InvalidInput(
            f"{name}: has no fit: an audit needs a class of scikit-learn's interface that gives"
            " probabilities."
        )
    return found


def _parameters(text: str, name: str) -> dict[str, Any]:
    """``a=1,b=sqrt,c=(10, 5)`` as a dict."""
    remedy = "must be param=value with commas between, as n_estimators=50,max_features=sqrt"
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidInput(f"{name}: {remedy}.") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise InvalidInput(f"{name}: {remedy}.")
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise InvalidInput(f"{name}: {remedy}.")
        if keyword.arg in found:
            raise InvalidInput(f"{name}: gives {keyword.arg!r} twice; give it once.")
        if isinstance(keyword.value, ast.Name):
            found[keyword.arg] = keyword.value.id
            continue
        try:
            found[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise InvalidInput(
                f"{name}: the value of {keyword.arg!r} is no literal; put a text in quotes."
            ) from None
    return found
