"""Figures of the long tests, kept as docs/evidence/<name>.json with what is needed to redo them."""

import datetime
import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "evidence"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "expost")


def record(name: str, *, command: str, seed: int | None, figures: Any) -> Path:
    """Write ``figures`` with command, seed, commit, versions and UTC date; NaN is refused.

    ``seed`` is None only where nothing is drawn, or the operating system draws.
    """
    versions = {package: version(package) for package in _PACKAGES}
    content = {
        "name": name,
        "command": command,
        "seed": seed,
        "figures": figures,
        "versions": {"python": platform.python_version(), **versions},
        "commit": revision(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path = FOLDER / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def revision() -> str:
    """The commit that the figures were made at."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, check=True
    ).stdout.strip()
