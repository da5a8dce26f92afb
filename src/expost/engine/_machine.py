"""What the last bits of a result depend on besides the rows: versions, processor, BLAS."""

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from threadpoolctl import threadpool_info

from expost.errors import InvalidInput

__all__ = ["PACKAGES", "check_machines", "check_versions", "machine", "versions"]

# What reads the rows and computes with them.
PACKAGES = ("expost", "numpy", "scipy", "pyarrow", "duckdb")


@cache
def versions() -> dict[str, str | None]:
    """The version of each of the packages, here."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def machine() -> tuple[str, ...]:
    """The packages here, the processor as NumPy sees it, and the kernels that BLAS chose."""
    import scipy.linalg  # brings a BLAS of its own

    del scipy
    found = {
        f"{library['internal_api']} {library['version']} for {library.get('architecture', 'any')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    vectors = np.show_config(mode="dicts")["SIMD Extensions"]
    known = (*vectors.get("baseline", ()), *vectors.get("found", ()))
    packages = (f"{name} {number}" for name, number in versions().items())
    return (*packages, platform.machine(), f"NumPy for {', '.join(known)}", *sorted(found))


def check_versions(workers: Mapping[str, Mapping[str, str | None]]) -> None:
    """Raise unless every worker has the packages that are here."""
    for address, found in workers.items():
        for package, here in versions().items():
            there = found.get(package)
            if there != here:
                raise InvalidInput(
                    f"engine: {address} has {package} {there or '(not installed)'}, and here it is"
                    f" {here}: the same rows would give other bytes there; install the same version"
                    " in both."
                )


def check_machines(workers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What all the workers have in common, where they compute alike; else raise."""
    kinds = {kind: address for address, kind in workers.items()}
    (first, one), *others = kinds.items()
    if others:
        other, two = others[0]
        differing = sorted({*first} ^ {*other})
        raise InvalidInput(
            f"engine: {one} and {two} compute differently ({'; '.join(differing)}), so that the"
            " result would depend on who gets which rows; install the same on all and take one kind"
            " of processor, or set OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES alike for all."
        )
    return first
