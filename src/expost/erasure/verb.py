"""The verb ``forget`` for rows in memory."""

import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.erasure.certificate import Certificate, Erasure, Record
from expost.erasure.plan import ErasurePlan, data_digest, request_digest
from expost.errors import InvalidInput
from expost.glm import Objective
from expost.ledger import Ledger, append, ledger_path, now
from expost.neighbouring.persons import read_persons
from expost.noise.coins import exponentials
from expost.profiles.verb import find_target
from expost.release import Release
from expost.types import IntArray

__all__ = ["check_coupling", "check_request", "forget", "is_fresh_by_default"]


def forget(
    model: Any,
    X: Any,
    y: Any,
    *,
    remove: Any = None,
    insert: Any = None,
    persons: Any = None,
    fresh: bool | None = None,
    requests_independent: bool = False,
    ledger: str | Path | None = None,
) -> Erasure:
    """Return a model with the law of a release made without some rows.

    Parameters
    ----------
    model : Any
        A released model, the path of its model.json, or a fitted expost estimator. Output or
        objective perturbation, made without a seed.
    X, y : Any
        Its training rows and their labels, in their order; with ``insert`` also the rows that
        enter.
    remove : Any, optional
        The rows that leave: their numbers from 0, or with ``persons`` the labels of persons, all of
        whose rows leave.
    insert : Any, optional
        Instead: the rows of ``X`` that the model was not made from, and that enter.
    persons : Any, optional
        The person of each row of ``X``.
    fresh : bool, optional
        True: draw the model independently of the present one, which is exact for any request.
        False: keep the present model where that is possible; only for requests that do not depend
        on it. None: fresh, unless ``requests_independent`` is declared and no report of the model
        is listed in ``ledger``.
    requests_independent : bool, default=False
        The declaration that the request depends neither on the present model nor on an earlier one
        or its fate. The certificate repeats it.
    ledger : str or Path, optional
        The ledger of the data set. It lists the erasure before a coin is tossed, and refuses a
        request that it lists already. None: list the result yourself
        (:func:`expost.ledger.list_release`).

    Returns
    -------
    Erasure
        The model after, with its public certificate and the curator's record.

    Raises
    ------
    InvalidInput
        If no row is named, or a row or person that is not in the data.
    ReleaseRefused
        If the model is seeded, without noise, or of a mechanism whose erasure is not exact.
    WrongRows
        If the rows cannot have made the model.
    """
    target = find_target(model, None)
    if target is None or target.release is None:
        raise InvalidInput(
            f"model: {type(model).__name__} was not released by output or objective perturbation;"
            " pass a fitted expost estimator, its release_, or the path of a model.json. Train a"
            " network of DP-SGD again without the rows: its steps are not stored."
        )
    release = target.release
    named = _named(remove, insert)
    all_rows = target.objective(X, y)
    numbers, names = _numbers(named, persons, all_rows.count)
    path = None if ledger is None else ledger_path(ledger)
    before = None if path is None or not path.exists() else Ledger.load(path)
    if fresh is None:
        fresh = is_fresh_by_default(release, requests_independent, before)
    plan = ErasurePlan(
        release=release,
        changed=len(numbers),
        is_insertion=insert is not None,
        is_fresh=bool(fresh),
        requests_independent=requests_independent,
    )
    present, changed = plan.objectives(all_rows, numbers)
    plan.check_rows(present)
    pair = None if plan.is_fresh else plan.pair(all_rows, numbers)
    model_sum = release.to_json()["sha256"]
    if path is None:
        key = secrets.token_hex(32)
        request = request_digest(key, model_sum, names)
    else:
        key, request = _charge(path, plan, model_sum, names, changed)
    start = time.perf_counter()
    coin = None if pair is None else float(exponentials(1)[0])
    coupled = plan.drawn(all_rows, numbers, pair, coin=coin)
    seconds = time.perf_counter() - start
    after = plan.release_of(coupled.theta, request)
    certificate = Certificate.of(
        plan, after, errors=plan.errors(pair), data=data_digest(key, changed.rows)
    )
    record = Record.of(certificate, coupled, coin, seconds)
    return Erasure(release=after, certificate=certificate, record=record)


def is_fresh_by_default(
    release: Release, requests_independent: bool, ledger: Ledger | None
) -> bool:
    """Return whether a model is redrawn where nothing was said.

    Parameters
    ----------
    release : Release
        The model before.
    requests_independent : bool
        The curator's declaration.
    ledger : Ledger or None
        The ledger of the data set.

    Returns
    -------
    bool
        False only if the requests are declared independent, and no report of the data set that
        invites people to look themselves up is listed.
    """
    published = ledger is not None and any(entry.kind == "report" for entry in ledger.entries)
    return published or not requests_independent


def check_request(ledger: Ledger, request: str) -> None:
    """Refuse a request that a ledger lists already.

    Parameters
    ----------
    ledger : Ledger
        The ledger.
    request : str
        The keyed hash of the request.

    Raises
    ------
    InvalidInput
        If it is listed: its coin is not tossed a second time.
    """
    if ledger.holds(request):
        raise InvalidInput(
            "remove: the ledger lists this request for this model already; its coin is not tossed a"
            " second time. Use the model that it gave, or resume the run that listed it."
        )


def check_coupling(ledger: Ledger, plan: ErasurePlan, *, run: str | None = None) -> None:
    """Refuse a second coupling of one model: choosing between two results changes the law.

    Parameters
    ----------
    ledger : Ledger
        The ledger.
    plan : ErasurePlan
        The change.
    run : str, optional
        The run that makes it, whose own entry counts as the first one.

    Raises
    ------
    InvalidInput
        If the ledger lists another coupling of the model.
    """
    model = plan.release.to_json()["sha256"]
    known = [entry for entry in ledger.entries if entry.coupled_with == model]
    if not plan.is_fresh and any(run is None or entry.run != run for entry in known):
        raise InvalidInput(
            "remove: the ledger lists a change of this model that may have kept it, and a model is"
            " kept or redrawn once; name the model that this change gave, and the rows that remain"
            " to be erased from it."
        )


def _charge(
    path: Path, plan: ErasurePlan, model: str, names: list[Any], changed: Objective
) -> tuple[str, str]:
    """List the erasure, and return the key of the ledger and the request's keyed hash."""
    if not path.parent.is_dir():
        raise InvalidInput(f"ledger={str(path)!r}: its folder does not exist; create it.")
    known: dict[str, str] = {}

    def entries(ledger: Ledger) -> list[Any]:
        request = request_digest(ledger.salt, model, names)
        check_request(ledger, request)
        check_coupling(ledger, plan)
        known.update(key=ledger.salt, request=request)
        return [plan.entry(request, name="model.json", made=now(), data=None)]

    append(path, entries)
    return known["key"], known["request"]


def _named(remove: Any, insert: Any) -> list[Any]:
    """Return the rows or persons that leave or enter."""
    if (remove is None) is (insert is None):
        raise InvalidInput("remove, insert: name the rows that leave, or those that enter.")
    name, given = ("remove", remove) if insert is None else ("insert", insert)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        given = [given]
    named = [item.item() if isinstance(item, np.generic) else item for item in given]
    if not named:
        raise InvalidInput(f"{name}: names no row; name at least one.")
    return named


def _numbers(named: list[Any], persons: Any, count: int) -> tuple[IntArray, list[Any]]:
    """Return the numbers of the rows that change, ascending, and what the request is about."""
    if persons is None:
        rows = [_checks.integer("remove", row, least=0) for row in named]
        if max(rows) >= count:
            raise InvalidInput(f"remove: row numbers must be below {count}, the number of rows.")
        numbers = np.unique(np.array(rows, dtype=np.int64))
        return numbers, [int(row) for row in numbers]
    partition = read_persons(persons, count)
    index = {name: number for number, name in enumerate(partition.names)}
    absent = sum(name not in index for name in named)
    if absent:
        raise InvalidInput(
            f"remove: {absent} of {len(named)} persons have no row in the data; nothing is erased,"
            " and no certificate is made."
        )
    owners = np.array([index[name] for name in named])
    return np.flatnonzero(np.isin(partition.owner, owners)), named
