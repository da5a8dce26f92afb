"""Outside of mechanisms/ and noise/ nothing asks for a mechanism's or a noise's class or name."""

import ast
from pathlib import Path

import pytest

import expost
from expost.mechanisms import MECHANISMS

SOURCE = Path(expost.__file__).parent
ALLOWED = ("mechanisms", "noise")
CLASSES = {"OutputPerturbation", "ObjectivePerturbation", "MinimiserPerturbation", "Perturbation"}
CLASSES |= {"NormLaplace", "Gaussian", "NormLaplaceLaw", "GaussianLaw"}
# Guarantees that know their noise; risk/ composes them by their laws.
GUARANTEES = {"NormLaplaceNoise", "GaussianNoise"}
NAMES = {*MECHANISMS, *(noise for kind in MECHANISMS.values() for noise in kind.noises)}


def sources():
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] not in ALLOWED:
            yield path


def names_in(node):
    """Every identifier of an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def literals_in(node):
    """The strings of a literal, or of a tuple, list or set of them."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant)}


def class_tests(tree, classes=CLASSES | GUARANTEES):
    """Lines that ask for a class: isinstance, issubclass, type(…) is, and patterns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "isinstance",
            "issubclass",
        ):
            tested = node.args[1]
        elif isinstance(node, ast.MatchClass):
            tested = node.cls
        elif isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Call) and getattr(side.func, "id", "") == "type"
            for side in (node.left, *node.comparators)
        ):
            tested = ast.Tuple(elts=[node.left, *node.comparators])
        else:
            continue
        if classes & set(names_in(tested)):
            yield node.lineno if hasattr(node, "lineno") else tested.lineno


def name_tests(tree):
    """Lines that compare something to the name of a mechanism or a noise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(NAMES & literals_in(side) for side in sides):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and NAMES & literals_in(node.value):
            yield node.value.lineno


def found_in(path):
    tree = ast.parse(path.read_text())
    where = path.relative_to(SOURCE)
    classes = CLASSES if where.parts[0] == "risk" else CLASSES | GUARANTEES
    lines = {*class_tests(tree, classes), *name_tests(tree)}
    return [f"{where}:{line}" for line in sorted(lines)]


def test_no_caller_tests_for_a_class_or_a_name():
    assert [line for path in sources() for line in found_in(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(how, OutputPerturbation)",
        "isinstance(how, mechanisms.ObjectivePerturbation | Other)",
        "type(law) is Gaussian",
        "how.kind == 'objective'",
        "how.noise != 'laplace'",
        "mechanism in (None, 'objective')",
        "'gaussian' == noise",
        "match how:\n    case OutputPerturbation():\n        pass",
        "match how.noise:\n    case 'laplace':\n        pass",
    ],
)
def test_every_kind_of_class_test_is_detected(text):
    tree = ast.parse(text)
    assert [*class_tests(tree), *name_tests(tree)]


@pytest.mark.parametrize(
    "text",
    ["how.closed_form is None", "how.delta is None", "isinstance(loss, Squared)", "kind == 'x'"],
)
def test_capabilities_may_be_asked_for(text):
    tree = ast.parse(text)
    assert not [*class_tests(tree), *name_tests(tree)]
