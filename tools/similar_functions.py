"""Find functions that are written more than once.

Two functions are similar if difflib.SequenceMatcher gives their syntax trees a ratio of at least
0.75. A tree is the sequence of its node types in source order, without names, constants,
annotations, decorators and docstrings. Functions of fewer than 8 statements and fewer than 40
nodes are left out.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

SIMILAR = 0.75
_STATEMENTS, _NODES = 8, 40
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method outside other functions, with the tokens of its syntax tree."""

    path: str
    line: int
    name: str
    tokens: tuple[str, ...]

    @property
    def location(self) -> str:
        """Its file, line and qualified name."""
        return f"{self.path}:{self.line} {self.name}"


def functions_of(sources: dict[str, str]) -> list[Function]:
    """Return the functions that are long enough to be compared."""
    functions = []
    for path, source in sources.items():
        for name, node in _definitions(ast.parse(source)):
            statements = sum(isinstance(each, ast.stmt) for each in ast.walk(node)) - 1
            tokens = tuple(_tokens(node))
            if statements >= _STATEMENTS or len(tokens) >= _NODES:
                functions.append(Function(path=path, line=node.lineno, name=name, tokens=tokens))
    return functions


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield prefix + child.name, child
        else:
            inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
            yield from _definitions(child, inner)


def _tokens(node: ast.AST) -> Iterator[str]:
    """Yield the types of the nodes of a function in source order."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        children = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(node, _DEFINITIONS) and is_string(children[0]):
            children = children[1:]
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                yield from _tokens(child)


def similar_pairs(functions: Sequence[Function]) -> list[tuple[float, Function, Function]]:
    """Return the pairs of similar functions with their ratios, the most similar first.

    Three upper bounds of the ratio come before SequenceMatcher, the cheapest first: the lengths,
    the multisets of tokens (as ``quick_ratio``), and the longest common subsequence.
    """
    ordered = sorted(functions, key=lambda f: (len(f.tokens), f.path, f.line))
    counts = [Counter(function.tokens) for function in ordered]
    masks = [_masks(function.tokens) for function in ordered]
    pairs = []
    for right, second in enumerate(ordered):
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(second.tokens)
        for left in range(right - 1, -1, -1):
            first = ordered[left]
            total = len(first.tokens) + len(second.tokens)
            if 2 * len(first.tokens) < SIMILAR * total:
                break
            if 2 * (counts[left] & counts[right]).total() < SIMILAR * total:
                continue
            if 2 * _common(first.tokens, masks[right], len(second.tokens)) < SIMILAR * total:
                continue
            matcher.set_seq1(first.tokens)
            if matcher.ratio() >= SIMILAR:
                former, other = sorted((first, second), key=lambda f: (f.path, f.line))
                pairs.append((matcher.ratio(), former, other))
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1].location, pair[2].location))


def _masks(tokens: Sequence[str]) -> dict[str, int]:
    masks: dict[str, int] = defaultdict(int)
    for index, token in enumerate(tokens):
        masks[token] |= 1 << index
    return dict(masks)


def _common(tokens: Sequence[str], masks: dict[str, int], length: int) -> int:
    """Return the length of the longest common subsequence (Hyyrö 2004, a bit per token)."""
    whole = (1 << length) - 1
    state = whole
    for token in tokens:
        matched = state & masks.get(token, 0)
        state = ((state + matched) | (state - matched)) & whole
    return length - state.bit_count()


def is_string(statement: ast.AST) -> bool:
    """Return whether a statement is a string alone, as docstrings are."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
