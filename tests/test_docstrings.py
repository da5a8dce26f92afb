"""Docstrings: every public parameter and result is described, and a symbol keeps its case."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
from functools import cache, cached_property
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


# Sub-packages of the documented API: those whose names are listed in ``__all__``.
PACKAGES = (
    "accounting", "auditing", "conformance", "data", "dossier", "engine", "epsilon", "erasure",
    "mechanisms", "neighbouring", "noise", "policy", "profiles", "publishing", "report", "risk",
    "selection", "torch",
)  # fmt: skip
HEADING = re.compile(r"(?m)^(\S.*)\n-{3,}$")
ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)( : \S.*)?")
# A name in double backticks, and its meaning in the next column.
ALIGNED = re.compile(r"(?m)^ *(``[^`]+``(, )?)+ {2,}\S")


def sections(text):
    """Return the sections of a numpydoc docstring by their headings."""
    _, *parts = HEADING.split(inspect.cleandoc(text or ""))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries(section):
    """Return the names of a section of parameters, and whether each entry has a type."""
    heads = [ENTRY.fullmatch(line) for line in section.splitlines() if line and line[0] != " "]
    return [
        (name.strip(" *"), head[2] is not None) for head in heads for name in head[1].split(",")
    ]


def documented(text, *headings):
    found = sections(text)
    return {name for heading in headings for name, _ in entries(found.get(heading, ""))}


def is_ours(value):
    return getattr(value, "__module__", "").startswith("expost")


def public_names():
    """Return every function and class of ``__all__``, of the package and of its sub-packages."""
    modules = [expost, expost.errors]
    for name in PACKAGES:
        if name != "torch" or importlib.util.find_spec("torch"):
            modules.append(importlib.import_module(f"expost.{name}"))
    values = [getattr(module, name) for module in modules for name in names_of(module)]
    chosen = [value for value in values if inspect.isclass(value) or inspect.isfunction(value)]
    return [value for value in dict.fromkeys(chosen) if is_ours(value)]


def names_of(module):
    if hasattr(module, "__all__"):
        return module.__all__
    return [name for name, value in vars(module).items() if is_ours(value) and name[0] != "_"]


PUBLIC = public_names()
CLASSES = [value for value in PUBLIC if inspect.isclass(value)]
PROTOCOLS = [value for value in CLASSES if getattr(value, "_is_protocol", False)]


@cache
def members(cls):
    """Return the public attributes, properties and methods of ours that ``cls`` has, by name."""
    found = {}
    for base in reversed(cls.__mro__):
        if is_ours(base):
            found |= dict.fromkeys(vars(base).get("__annotations__", {})) | vars(base)
    return {name: value for name, value in found.items() if name[0] != "_"}


def sources(cls, name):
    """Return the docstrings of a method: its own, then those of the classes that it implements.

    A class implements a protocol if it, or a public subclass of it, has all members.
    """
    family = [other for other in CLASSES if cls in other.__mro__]
    protocols = [
        protocol
        for protocol in PROTOCOLS
        if any(set(members(protocol)) <= set(members(other)) for other in family)
    ]
    found = [vars(base).get(name) for base in (*cls.__mro__, *protocols) if is_ours(base)]
    return [inspect.unwrap(getattr(value, "__func__", value)).__doc__ for value in found if value]


def callables():
    for value in PUBLIC:
        if inspect.isfunction(value):
            yield value.__qualname__, value, [value.__doc__]
    for cls in CLASSES:
        for name, value in members(cls).items():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and is_ours(function):
                yield f"{cls.__qualname__}.{name}", function, sources(cls, name)


def faults_of(function, text):
    """Return what the sections of a docstring lack, or have too much, compared with a signature."""
    signature = inspect.signature(function)
    wanted = set(signature.parameters) - {"self", "cls"}
    named = documented(text, "Parameters", "Other Parameters")
    faults = [f"{name} is not documented" for name in sorted(wanted - named)]
    faults += [f"{name} is no parameter" for name in sorted(named - wanted)]
    returns = signature.return_annotation not in (None, "None")
    if returns and not {"Returns", "Yields"} & set(sections(text)):
        faults.append("has no Returns")
    return faults


def test_the_public_interface_is_found():
    names = {value.__name__ for value in PUBLIC}
    assert {"profile", "Profile", "PrivateRidge", "Guarantee", "audit_arrays", "Noise"} <= names
    assert len(names) > 100


def test_parameters_and_returns_of_every_public_function_are_documented():
    faults = [
        f"{name}: {', '.join(faults_of(function, texts[0]))}"
        for name, function, texts in callables()
        if all(faults_of(function, text) for text in texts)
    ]
    assert faults == []


def fields_of(cls):
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.name[0] != "_"}
    if "__init__" in vars(cls) and cls not in PROTOCOLS:
        return set(inspect.signature(cls).parameters)
    return {name for name in vars(cls).get("__annotations__", {}) if name[0] != "_"}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fields_of_every_public_class_are_documented(cls):
    named = set()
    for base in cls.__mro__:
        if is_ours(base):
            named |= documented(base.__doc__, "Parameters", "Attributes")
    assert fields_of(cls) - named == set()
    given = documented(cls.__doc__, "Parameters")
    assert not given or given <= set(inspect.signature(cls).parameters)


def test_every_public_parameter_has_a_type():
    texts = [(name, text) for name, _, texts in callables() for text in texts]
    texts += [(cls.__qualname__, cls.__doc__) for cls in CLASSES]
    untyped = {
        f"{name}: {entry}"
        for name, text in texts
        for heading in ("Parameters", "Attributes")
        for entry, typed in entries(sections(text).get(heading, ""))
        if not typed
    }
    assert untyped == set()


def test_a_property_is_a_noun():
    found = [
        f"{cls.__qualname__}.{name}"
        for cls in CLASSES
        for name, value in members(cls).items()
        if isinstance(value, property | cached_property)
        and (value.__doc__ or "Return").startswith("Return")
    ]
    assert found == []


def test_no_docstring_aligns_names_in_columns():
    found = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, text in docstrings(ast.parse(path.read_text("utf-8")))
        if ALIGNED.search(text)
    ]
    assert found == []


def documents_all(a, b=1, **options):
    """Do it.

    Parameters
    ----------
    a, b : int
        Numbers.
    **options : Any
        Others.

    Returns
    -------
    int
        A number.
    """


def documents_another(a, c):
    """Do it.

    Parameters
    ----------
    a : int
        A number.
    b : int
        Another one.
    """


def test_the_comparison_with_a_signature():
    assert faults_of(documents_all, documents_all.__doc__) == []
    assert faults_of(documents_another, documents_another.__doc__) == [
        "c is not documented", "b is no parameter", "has no Returns",
    ]  # fmt: skip
    assert ALIGNED.search("One line.\n\n``a``, ``b``  what they are.")
    assert not ALIGNED.search("``a`` is what it is.  A sentence.")
