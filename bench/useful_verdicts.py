"""The verdicts of ``choose_epsilon`` on the tables of the utility benchmark, and rows needed.

    python bench/useful_verdicts.py            prints the verdicts
    python bench/useful_verdicts.py --record   also writes docs/evidence/useful-verdicts.json

Rows needed: of a table of n rows, n/4 are drawn and asked; the answer's estimate of the rows that
would be enough is set beside the verdict on all rows.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pyarrow as pa

import expost
from expost.report import document_of
from measure import record
from tables import TABLES, RawTable

SEED = 18
SUBSAMPLED = ("letter", "cardiotocography", "satimage", "imbalanced", "wine")


def verdict(table: RawTable, rows: Any, **options: Any) -> dict[str, Any]:
    """Ask of some rows of a table, and return what is recorded of the answer."""
    columns = {name: column[rows] for name, column in table.columns.items()}
    columns["label"] = np.where(table.y[rows] > 0, "yes", "no")
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        choice = expost.choose_epsilon(
            pa.table(columns), target="label", random_state=SEED, **options
        )
    utility = choice.utility
    assert utility is not None
    return {
        "rows": len(columns["label"]),
        "verdict": choice.verdict,
        "recommended": choice.recommended,
        "ceiling": choice.ceiling,
        "enough": choice.enough,
        "share": choice.share,
        "rows_needed": choice.rows_needed,
        "sentence": document_of(choice).verdict.text,
        "posterior": None if choice.posteriors is None else vars(choice.posteriors),
        "best": {name: curve.best for name, curve in utility.curves.items()},
        "base_rate": {name: curve.base_rate for name, curve in utility.curves.items()},
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    """Ask of every table, and of a quarter of some."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    recorded = parser.parse_args().record
    figures: dict[str, Any] = {"tables": {}, "quarters": {}}
    for name, load in TABLES.items():
        table = load()
        whole = verdict(table, slice(None))
        figures["tables"][name] = whole
        print(f"{name}: {whole['sentence']}", flush=True)
        if name in SUBSAMPLED:
            order = np.random.default_rng(SEED).permutation(table.rows)[: table.rows // 4]
            part = verdict(table, np.sort(order))
            figures["quarters"][name] = part
            print(f"  a quarter: {part['sentence']}", flush=True)
    if recorded:
        record("useful-verdicts", __file__, SEED, figures)


if __name__ == "__main__":
    main()
