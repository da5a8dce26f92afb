"""The page: each claim of the paper compared with the result, then the figures.

One self-contained file, no script, nothing from the network; everything is escaped by Jinja, and
the content policy allows the page's own style sheet and the pictures inside it alone.
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from jinja2 import Environment, PackageLoader, StrictUndefined

from expost.report.html import style_sheet
from papers.common.claims import Claim, Verdict
from papers.common.exhibits import Exhibit

__all__ = ["Paper", "render_page"]

_MARKS = {Verdict.HOLDS: "good", Verdict.PARTLY: "half", Verdict.FAILS: "bad"}
_SIGNS = {"<": "<", "<=": "≤", ">=": "≥", "==": "="}


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The paper: who and when, its title, the data it is reproduced on, and why that is public.

    ``rows``: whether there are rows at all of which the page shows exact figures.
    """

    name: str
    title: str
    data: str
    made_from: str
    rows: bool = True


def render_page(
    paper: Paper,
    *,
    claims: Sequence[Claim],
    exhibits: Sequence[Exhibit],
    pictures: Mapping[str, bytes],
    source: str,
    seed: int,
    made: str,
) -> str:
    """Return the page; the same results give the same bytes."""
    environment = _environment()
    style = f"{style_sheet()}\n{_source(environment, 'claims.css')}"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("claims.html").render(
        paper=paper,
        claims=claims,
        exhibits=exhibits,
        pictures={name: base64.b64encode(data).decode() for name, data in pictures.items()},
        titles={exhibit.name: exhibit.title for exhibit in exhibits},
        source=source,
        seed=seed,
        made=made,
        version=version("expost"),
        style=style,
        style_hash=f"sha256-{digest}",
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("papers.common", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "mark": _MARKS.__getitem__,
        "sign": _SIGNS.__getitem__,
        "digits": _digits,
    }
    return environment


def _digits(value: float) -> str:
    """Four digits; integers as they are."""
    if math.isnan(value):
        return "not a number"
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.4g}"


def _source(environment: Environment, name: str) -> str:
    loader = environment.loader
    assert loader is not None
    return loader.get_source(environment, name)[0]
