"""Saved models of other libraries, loaded to be attacked.

=====================  ===========================================================================
pickle, joblib         only with ``trust_pickle``: to load one is to run code that it contains
skops                  types that skops does not trust are refused by name
XGBoost                JSON or UBJSON, with the names of categories that it stores (≥ 3.1)
LightGBM               text
ONNX                   run by onnxruntime on the CPU, from memory: no file next to it is read
=====================  ===========================================================================

Each loader imports its library when it is needed. What it returns answers rows of the raw table,
the columns by the names that the file has, with a probability for each class, or a number.
"""

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from expost.auditing.boosters import load_lightgbm, load_xgboost
from expost.auditing.onnx_model import load_onnx
from expost.auditing.saved_model import EXTRA, LoadedModel
from expost.errors import ExpostError, InvalidInput, require
from expost.files.model_format import MOST_BYTES, MOST_GIB, ModelFormat, model_format
from expost.notices import listed

__all__ = ["check_trust", "load_model"]

# The formats that run no code of the file, and their loaders.
_LOADERS = {
    ModelFormat.XGBOOST: load_xgboost,
    ModelFormat.LIGHTGBM: load_lightgbm,
    ModelFormat.ONNX: load_onnx,
}


def load_model(
    path: str | Path, *, trust_pickle: bool = False, trust_types: Sequence[str] = ()
) -> LoadedModel:
    """Load a saved model of another library, safely.

    Parameters
    ----------
    path : str | Path
        The file; its format is recognised by its content.
    trust_pickle : bool, default=False
        Load a pickle or joblib file. Loading it runs code that the file contains: pass True only
        if you trust its maker.
    trust_types : Sequence[str], default=()
        Names of types in a skops file to trust, beyond those that skops trusts.

    Returns
    -------
    LoadedModel
        The model, and the columns that it takes.

    Raises
    ------
    InvalidInput
        If the file is not a model of a known format, is not trusted, or cannot be loaded.
    MissingExtra
        If the library of the format is not installed.
    """
    path = Path(path)
    kind = check_trust(path, trust_pickle=trust_pickle)
    try:
        if kind is ModelFormat.PICKLE:
            return _pickled(path)
        if kind is ModelFormat.SKOPS:
            return _skops(path, trust_types)
        return _LOADERS[kind](path)
    except ExpostError:
        raise
    except MemoryError:
        raise InvalidInput(f"{path}: does not fit into memory.") from None
    # A broken file may raise anything in the library that reads it.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{path}: looks like a file of {kind.value}, but cannot be loaded"
            f" ({type(error).__name__}). It is broken, of another version, or needs a package that"
            " is not installed; save the model again."
        ) from None


def check_trust(path: str | Path, *, trust_pickle: bool) -> ModelFormat:
    """Return the format of a saved model; refuse a pickle that is not trusted.

    Parameters
    ----------
    path : str | Path
        The file, of which only the first bytes are read.
    trust_pickle : bool
        Whether code in a pickle may run.

    Returns
    -------
    ModelFormat
        A format of another library.

    Raises
    ------
    InvalidInput
        If the format is not known, or a pickle is not trusted.
    """
    kind = model_format(path)
    if kind is None or not kind.is_foreign:
        raise InvalidInput(
            f"{path}: is not a saved model of a known format: joblib or pickle, skops, XGBoost,"
            " LightGBM or ONNX. Export it to ONNX, or compute its answers and pass them as"
            " --arrays."
        )
    if kind is ModelFormat.PICKLE and trust_pickle is not True:
        raise InvalidInput(
            f"{path}: is a pickle (joblib), and loading it runs code that it contains, with your"
            " rights. It was not read further. If you trust its maker, pass --trust-pickle"
            " (in Python: expost.auditing.load_model(path, trust_pickle=True).answering() as the"
            " model); else ask for a skops or ONNX file."
        )
    return kind


# -- scikit-learn ----------------------------------------------------------------------------------


def _pickled(path: Path) -> LoadedModel:
    joblib = require("joblib", caller="a joblib file", extra=EXTRA)
    with catch_warnings(record=True) as raised:
        simplefilter("always")
        try:
            model = joblib.load(path)
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"{path}: needs the package {error.name!r}, with which it was saved; install it."
            ) from None
        except (pickle.UnpicklingError, EOFError) as error:
            raise InvalidInput(f"{path}: is not a whole pickle ({type(error).__name__}).") from None
    return _estimator(path, model, "joblib", _version_notice(raised))


def _version_notice(raised: Sequence[Any]) -> tuple[str, ...]:
    if not any(each.category.__name__ == "InconsistentVersionWarning" for each in raised):
        return ()
    return (
        "The model was saved with another version of scikit-learn; its answers may differ from"
        " those it gave then.",
    )


def _skops(path: Path, trust_types: Sequence[str]) -> LoadedModel:
    with zipfile.ZipFile(path) as content:
        if sum(entry.file_size for entry in content.infolist()) > MOST_BYTES:
            raise InvalidInput(f"{path}: unpacks to more than {MOST_GIB} GiB.")
    io = require("skops.io", caller="a skops file", extra=EXTRA)
    unknown = [
        name for name in io.get_untrusted_types(file=path) if name not in frozenset(trust_types)
    ]
    if unknown:
        options = " ".join(f"--trust-type {name}" for name in unknown[:3])
        raise InvalidInput(
            f"{path}: contains types that skops does not trust: {listed(unknown)}. A type"
            " may run code when it is loaded, with your rights. Only if you know these and trust"
            f" the maker of the file, pass {options}{' …' if len(unknown) > 3 else ''} (in Python:"
            " expost.auditing.load_model(path, trust_types=[…]).answering() as the model)."
        )
    with catch_warnings(record=True) as raised:
        simplefilter("always")
        model = io.load(path, trusted=list(trust_types))
    return _estimator(path, model, "skops", _version_notice(raised))


def _estimator(path: Path, model: Any, kind: str, notices: tuple[str, ...]) -> LoadedModel:
    """Return an estimator of scikit-learn's interface."""
    if not hasattr(model, "predict") and not hasattr(model, "predict_proba"):
        raise InvalidInput(
            f"{path}: holds a {type(model).__name__}, not a model with predict or predict_proba."
        )
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)

    def finish(rows: Any, classes: tuple[str, ...] | None) -> Any:
        del rows
        if classes is not None:
            raise InvalidInput("--classes: the model knows its own; leave it out.")
        return model

    return LoadedModel(
        path=path,
        description=f"{type(model).__name__} ({kind})",
        columns=None if names is None else tuple(map(str, names)),
        width=None if width is None else int(width),
        as_matrix=names is None and width is not None,
        finish=finish,
        is_trainable=hasattr(model, "fit"),
        notices=notices,
    )
