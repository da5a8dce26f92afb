"""diffprivlib and expost: the time of a fit, and whether its models keep their ε.

    python -m papers.diffprivlib_066.finding

Optional, and no part of the tests: diffprivlib 0.6.6 needs a scikit-learn before 1.8, so it is
installed into an environment of its own, in a temporary folder (or in ``--environment``, which is
kept). Its models come over as JSON. Of each it knows the noise that the seed drew, and compares:

noise      ∥∇J(θ)∥ over many fits against the Gamma law that expost claims (Kolmogorov–Smirnov);
residual   ∇J(θ) + b against the solver's tolerance, and what it left above the minimum;
intervals  the loss of the minimiser behind θ, which b determines, against the interval of θ;
guarantee  how often an exposure is proved to pass the ε that was guaranteed;
time       one fit of each, alternating.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import gamma, kstest
from sklearn.datasets import load_iris

from expost import PrivateLogisticRegression
from expost.errors import ConvergenceError, InvalidInput, WrongRows
from expost.glm import minimise
from papers.diffprivlib_066.reading import PrivateForeign, profile, read_private

SEED = 20261115
FITS = 300
REQUIREMENTS = ("diffprivlib==0.6.6", "scikit-learn<1.8")
ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
# What diffprivlib's solver is told: it stops at a relative decrease of 64 spacings of float64.
STOP = 64 * np.finfo(np.float64).eps


class LogisticRegression(SimpleNamespace):
    """The public attributes of a fitted model that came over as JSON."""

    __module__ = "diffprivlib.models.logistic_regression"


@dataclass(frozen=True)
class Case:
    """Rows, and the settings of the fits on them."""

    name: str
    X: np.ndarray
    y: np.ndarray
    settings: dict[str, Any]


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with diffprivlib, installed if necessary."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install = subprocess.run([*command, *REQUIREMENTS], capture_output=True, text=True)
        if install.returncode:
            sys.exit(f"pip install {' '.join(REQUIREMENTS)} failed:\n{install.stderr.strip()}")
    return python


class Library:
    """A process that fits with diffprivlib."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [str(python), str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{WORKER.name} ended with status {self._process.wait()}")
        return json.loads(line)

    def fits(self, case: Case, seeds: list[int]) -> list[dict[str, Any]]:
        """Return the fits of a case, one for each seed."""
        data = self._folder / "rows.npz"
        np.savez(data, X=case.X, y=case.y)
        request = {"data": str(data), "settings": case.settings, "seeds": seeds}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: list[dict[str, Any]] = self._answer()
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def model_of(case: Case, fit: dict[str, Any]) -> LogisticRegression:
    """Return a fit as a model that can be read."""
    defaults = {"epsilon": 1.0, "C": 1.0, "fit_intercept": True}
    arrays = {name: np.array(fit[name]) for name in ("coef_", "intercept_", "n_iter_", "classes_")}
    return LogisticRegression(**{**fit, **defaults, **case.settings, **arrays})


def gradient(private: PrivateForeign, number: int) -> np.ndarray:
    """Return ∇J(θ) of one fit, in units of q̃."""
    fit = private.fits[number]
    problem = fit.problem
    slope = problem.loss.slope(problem.held.X @ fit.theta, problem.held.y)
    return slope @ problem.held.X + problem.count * problem.penalty * fit.theta


def left_over(private: PrivateForeign, b: np.ndarray, r: np.ndarray) -> float:
    """½rᵀH⁻¹r, what the solver left, in units of the decrease at which it stops."""
    problem, theta = private.fits[-1].problem, private.fits[-1].theta
    z = problem.held.X @ theta
    H = (problem.held.X * problem.loss.curvature(z, problem.held.y)[:, None]).T @ problem.held.X
    H += np.diag(problem.count * problem.penalty)
    value = problem.loss.value(z, problem.held.y).sum() + b @ theta
    value += problem.count * problem.penalty @ theta**2 / 2
    gap = r @ np.linalg.solve(H, r) / 2 / problem.count
    return float(gap / (STOP * max(1.0, abs(value) / problem.count)))


def outside(private: PrivateForeign, noises: np.ndarray) -> int | None:
    """Rows whose loss at the minimiser for the true b lies outside the interval for θ.

    None where that b leaves no minimiser, or none that float64 can find.
    """
    losses, exact = private.row_losses(), np.zeros(private.rows)
    for fit, b in zip(private.fits, noises, strict=True):
        tilted = replace(fit.problem, linear=b / private.rows)
        try:
            minimum = minimise(tilted, tolerance=1e-11, start=fit.theta)
            exact += fit.exact_losses(minimum.theta)
        except (ConvergenceError, InvalidInput):
            return None
    slack = 1e-9 * (1 + np.abs(exact))
    return int(np.sum((exact < losses.low - slack) | (exact > losses.high + slack)))


def check_reading(library: Library, case: Case, count: int) -> dict[str, object]:
    """Noise, residual, intervals and guarantee over fits of one case."""
    norms, residuals, left, widths, exposures = [], [], [], [], []
    refused = broken = missed = unknown = 0
    tol = case.settings.get("tol", 1e-4)
    for seed, fit in enumerate(library.fits(case, list(range(count)))):
        model = model_of(case, fit)
        private = read_private(model, case.X, case.y)
        assert private is not None
        noises = np.array(fit["noise"]) / private.stretch
        try:
            result = profile(model, case.X, case.y)
        except WrongRows:
            raise
        except InvalidInput:
            refused += 1
            continue
        for number, b in enumerate(noises):
            g = gradient(private, number)
            norms.append(float(np.linalg.norm(g)))
            residuals.append(float(np.max(np.abs(g + b))) * private.stretch / private.rows)
        if residuals[-1] > tol:
            # It was not the gradient that stopped the solver.
            left.append(left_over(private, noises[-1], gradient(private, -1) + noises[-1]))
        beyond = outside(private, noises)
        missed, unknown = missed + (beyond or 0), unknown + (beyond is None)
        broken += result.guarantee_exceeded
        widths.append(float(np.max(result.loss_high - result.loss_low)))
        exposures.append(float(np.max(result.exposure)))
        if seed == 0:
            held, law = private.held, private.fits[0].law
    scale = 1 / law.rate
    ks = kstest(norms, gamma(law.dimension, scale=scale).cdf)
    wrong = kstest(norms, gamma(law.dimension, scale=1.25 * scale).cdf)
    figures: dict[str, object] = {
        "fits": count,
        "settings": case.settings,
        "rows": len(case.X),
        "held": _digits([held])[0] if np.isfinite(held) else "not bounded",
        "refused, no minimiser to find": refused,
        "guarantee exceeded": broken,
        "largest exposure, median and most": _digits([np.median(exposures), max(exposures)]),
        "widest interval, median": _digits([np.median(widths)])[0],
        "rows outside their interval": missed,
        "rows looked at": (count - refused - unknown) * len(case.X),
        "residual / tol, most": _digits([max(residuals) / tol])[0],
    }
    if left:
        figures["fits that the objective stopped"] = len(left)
        figures["left above the minimum / least decrease, most"] = _digits([max(left)])[0]
    if not refused:
        # Where fits are refused the others' noise is not a plain draw of the law.
        figures["noise, KS p-value"] = _digits([ks.pvalue])[0]
        figures["noise, KS p-value at scale x 1.25"] = _digits([wrong.pvalue])[0]
    print(case.name, *(f"  {name}: {value}" for name, value in figures.items()), sep="\n")
    return figures


def _digits(values: list[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def made_up(rows: int, columns: int, norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of up to 1.1 times a norm, and labels that follow the first column."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((rows, columns))
    X *= norm * rng.uniform(0.2, 1.1, (rows, 1)) / np.linalg.norm(X, axis=1)[:, None]
    return X, np.where(X[:, 0] > 0.3 * norm * rng.standard_normal(rows), 1, 0)


def lonely(norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Thirty rows of which one is alone along its axis."""
    X = np.zeros((30, 2))
    X[:, 0] = norm * np.linspace(-1, 1, 30)
    X[-1] = [0.0, norm]
    return X, np.where(X.sum(axis=1) > 0, 1, 0)


def cases() -> list[Case]:
    """Return all cases, in the order of the page."""
    X, y = load_iris(return_X_y=True)
    two = y > 0
    plain = {"max_iter": 1000}
    rows, labels = made_up(500, 5, 1.0)
    return [
        Case("500 x 5, q = 1", rows, labels, {"data_norm": 1.0, **plain}),
        Case(
            "500 x 5, q = 12, tol = 1e-12",
            *made_up(500, 5, 12.0),
            {"data_norm": 12.0, "epsilon": 8.0, "tol": 1e-12, **plain},
        ),
        Case(
            "500 x 5, q = 100, no intercept",
            *made_up(500, 5, 100.0),
            {"data_norm": 100.0, "fit_intercept": False, "C": 0.1, **plain},
        ),
        Case(
            "500 x 5, columns of 1e-3 to 10, tol = 1e-12",
            X=rows * [1, 1e-3, 10, 1e-2, 3],
            y=labels,
            settings={"data_norm": 20.0, "epsilon": 9.0, "tol": 1e-12, **plain},
        ),
        Case("iris, three classes", X, y, {"data_norm": 12.0, "epsilon": 2.0, **plain}),
        Case("iris, two classes", X[two], y[two], {"data_norm": 12.0, "epsilon": 5.0, **plain}),
        *(
            Case(
                f"a lonely row, q = {norm:g}, no intercept",
                *lonely(norm),
                {"data_norm": norm, "epsilon": 1.0, "fit_intercept": False, **plain},
            )
            for norm in (12.0, 100.0)
        ),
    ]


def fit_times(library: Library, times: int) -> dict[str, object]:
    """One fit of each, both by objective perturbation with norm-Laplace noise."""
    rows, columns = 48_842, 14
    X, y = made_up(rows, columns, 0.9)
    case = Case("time", X, y, {"data_norm": 1.0, "max_iter": 1000})
    ours = PrivateLogisticRegression(
        mechanism="objective",
        noise="laplace",
        calibration="published",
        regularization=1 / rows,
        data_norm=1.0,
        classes=(0, 1),
    )
    seconds = np.empty((times + 1, 2))
    for k in range(times + 1):
        start = time.perf_counter()
        ours.fit(X, y)
        seconds[k, 0] = time.perf_counter() - start
        seconds[k, 1] = library.fits(case, [k])[0]["seconds"]
    seconds = seconds[1:]
    ratios = seconds[:, 0] / seconds[:, 1]
    name = f"a fit of expost to 1e-12 / of diffprivlib to 1e-4, {rows:,} × {columns}"
    print(f"{name}: {np.median(ratios):.2f} ({ratios.min():.2f} … {ratios.max():.2f})")
    return {
        "median": round(float(np.median(ratios)), 3),
        "range": [round(float(end), 3) for end in (ratios.min(), ratios.max())],
        "seconds, medians of ours and theirs": _digits(list(np.median(seconds, axis=0))),
    }


def main() -> None:
    """Run every case, and record the figures if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, help="a folder for the environment, kept")
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--fits", type=int, default=FITS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = Library(environment(options.environment or folder / "environment"), folder)
        table: dict[str, object] = {"versions beside": library.versions}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in cases():
                table[case.name] = check_reading(library, case, options.fits)
            table["time of a fit"] = fit_times(library, options.times)
        library.close()
    if options.record:
        sys.path.insert(0, str(ROOT / "tests"))
        from evidence import record  # type: ignore[import-not-found]  # the tests' own

        command = "python -m papers.diffprivlib_066.finding --record"
        record("diffprivlib", command=command, seed=SEED, figures=table)


if __name__ == "__main__":
    main()
