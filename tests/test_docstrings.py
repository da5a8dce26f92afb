"""Docstrings keep the case of a symbol, even at the start (core defect 10)."""

import ast
import re
from pathlib import Path

import pytest

import expost

SOURCE = Path(expost.__file__).parent
# A capital letter in the place of a function or a scalar that is written small: its derivative,
# its argument, a difference, or the logarithm and the exponential.
SYMBOL = re.compile(
    r"""
      [A-Z][′″‴]                            # F′(z; y)
    | [A-Z]\ [−+·=≤≥<>]\ [a-zα-ω0-9|∣∥(]    # Z − y
    | (Log1p|Log|Exp|Expm1|Max|Min|Sqrt|Sigmoid|Sign)\(
    """,
    re.VERBOSE,
)
# Matrices, laws and sets that the papers write with a capital letter.
CAPITAL = re.compile(r"[A-EG-Y]\ [−+·=≤≥<>]")


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), text


def begins_with_a_capitalised_symbol(text):
    return SYMBOL.match(text) is not None and CAPITAL.match(text) is None


def test_no_docstring_capitalises_a_symbol():
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 100
    found = [
        f"{path.relative_to(SOURCE)}: {name}: {text.splitlines()[0]}"
        for path in paths
        for name, text in docstrings(ast.parse(path.read_text("utf-8")))
        if begins_with_a_capitalised_symbol(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["F′(z; y)", "F″(z; y).", "F‴ = f″…", "Z − y", "Log(1 + e^(−yz)).", "Max(0, 1 − yz)."],
)
def test_a_capitalised_symbol_is_found(text):
    assert begins_with_a_capitalised_symbol(text)


@pytest.mark.parametrize(
    "text",
    ["f′(z; y)", "z − y", "X − 1", "Log ratios of rows.", "A − B of matrices.", "P(ℓ > b).",
     "Λ > 0.", "Maximum of the rows.", "Return F′(z)."],
)  # fmt: skip
def test_what_is_no_symbol_of_a_scalar(text):
    assert not begins_with_a_capitalised_symbol(text)
