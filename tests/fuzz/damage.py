"""Bytes and JSON, broken in the ways in which files break, or are broken."""

import copy
import json
import random
import re
from typing import Any

# What stands in a text where it should not.
_TEXT = [b"\x00", b"\xff", b"\xef\xbb\xbf", b'"', b"'", b",", b"\r", b"\n", b"\r\n", b"\n\n", b";"]
_TEXT += [b"\t", b"[" * 50, b"{" * 50, b"1e999", b"-1e999", b"NaN", b"\\ud800", b"\xed\xa0\x80"]
_TEXT += [b"9" * 400, b"\x1a", b"\xc2\x85", b"\xe2\x80\xa8", b'""', b'"a\nb"', b"\\", b"null"]
_EXTREMES = [0, 1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]


def damaged(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """``data`` changed in one to three places; ``other`` is a file to take pieces from."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = _once(rng, data, other)
    return data


def _once(rng: random.Random, data: bytes, other: bytes) -> bytes:
    size = len(data)
    start, end = sorted((rng.randint(0, size), rng.randint(0, size)))
    match rng.randrange(12):
        case 0 if size:
            position = rng.randrange(size)
            return (
                data[:position]
                + bytes([data[position] ^ 1 << rng.randrange(8)])
                + data[position + 1 :]
            )
        case 1 if size:
            position = rng.randrange(size)
            return data[:position] + bytes([rng.randrange(256)]) + data[position + 1 :]
        case 2:
            return data[:start]
        case 3:
            return data[end:]
        case 4:
            return data[:start] + data[min(end, start + rng.choice([1, 8, 60])) :]
        case 5:
            piece = data[start : start + rng.choice([4, 60, 400])]
            return data[:start] + piece * rng.choice([2, 2, 50]) + data[start:]
        case 6 | 7:
            return data[:start] + rng.choice(_TEXT) + data[start:]
        case 8:
            # Lengths, offsets and counts of binary formats.
            width = rng.choice([1, 2, 4, 8])
            number = rng.choice(_EXTREMES) % 2 ** (8 * width)
            return data[:start] + number.to_bytes(width, rng.choice(["little", "big"])) + data[start + width :]  # fmt: skip
        case 9:
            return data[:start] + bytes(end - start) + data[end:]
        case 10:
            position = rng.randint(0, len(other))
            return data[:start] + other[position : position + rng.choice([20, 200, 10**6])]
        case _:
            # The last bytes of Parquet and Arrow files say how the rest is read.
            tail = max(0, size - rng.choice([8, 30, 400]))
            position = rng.randint(tail, size)
            return data[:position] + bytes([rng.randrange(256)]) + data[position + 1 :]


# JSON --------------------------------------------------------------------------------------------

NESTED: Any = 0
for _ in range(60):
    NESTED = [NESTED]
_VALUES: list[Any] = [None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e308, 5e-324, 1e-300, 10**15]
_VALUES += [
    2**53,
    2**63,
    10**30,
    10**400,
    float("inf"),
    "infinity",
    "",
    "public",
    "curator-only",
    "needs-review",
]
_VALUES += ["\u202e\x00", "\ud800", "a" * 3000, "NaN", "1", [], {}, [1.0], ["a", "b"], [[]], [None]]
_VALUES += [{"audience": "public"}, {"kind": "numeric"}, NESTED, [[1], [2, 3]], [0.5] * 300]


def altered(rng: random.Random, value: Any) -> Any:
    """A copy of ``value`` with one to three of its places changed."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        value = _altered(rng, value)
    return value


def _altered(rng: random.Random, value: Any) -> Any:
    places = list(_places(value))
    if not places:
        return rng.choice(_VALUES)
    parent, step = rng.choice(places)
    match rng.randrange(8):
        case 0:
            del parent[step]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(["another", "", "sha256", "format", "\ud800"])] = rng.choice(_VALUES)
        case 1:
            parent.insert(step, rng.choice(_VALUES))
        case 2:
            # A value of the right sort from elsewhere.
            there, which = rng.choice(places)
            parent[step] = copy.deepcopy(there[which])
        case 3 if isinstance(parent[step], int | float):
            # Not every one of these is a number still.
            parent[step] = _nearby(rng, parent[step])
        case 4 if isinstance(parent[step], list):
            parent[step] = _reordered(rng, parent[step])
        case _:
            parent[step] = copy.deepcopy(rng.choice(_VALUES))
    return value


def _nearby(rng: random.Random, number: Any) -> Any:
    if isinstance(number, float) and not abs(number) < 1e300:
        return 1.0
    factor = rng.choice([-1, 2, 0.5, 1 + 1e-12, 1e200, 1e-200])
    return rng.choice([number * factor if abs(number) < 1e50 else 0, number + 1, str(number), [number], bool(number), int(number)])  # fmt: skip


def _reordered(rng: random.Random, values: list[Any]) -> list[Any]:
    return rng.choice(
        [values[::-1], values[:-1], values + values, sorted(values, key=str), values[1:]]
    )


def _places(value: Any) -> Any:
    """(container, key) of every value inside, but for the middle of long lists."""
    if isinstance(value, dict):
        keys: Any = list(value)
    elif isinstance(value, list):
        keys = sorted({0, len(value) // 2, len(value) - 1}) if value else []
    else:
        return
    for key in keys:
        yield value, key
        yield from _places(value[key])


def spelled(rng: random.Random, value: Any) -> bytes:
    """``value`` as JSON, now and then in a spelling that not every reader takes."""
    text = json.dumps(value, indent=rng.choice([None, None, 1]), ensure_ascii=rng.random() < 0.9)
    match rng.randrange(24):
        case 0:
            return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
        case 1:
            return text.encode(rng.choice(["utf-16", "utf-32", "utf-16-le"]), "surrogatepass")
        case 2:
            return re.sub(r": (-?[0-9.]+)", rng.choice([r": \1e0", r": +\1", r": 0\1", r": \1."]), text, count=rng.choice([0, 1])).encode("utf-8", "surrogatepass")  # fmt: skip
        case 3:
            # Each name twice, or one of them.
            return re.sub(r'("\w+"): ', r'\1: 1, \1: ', text, count=rng.choice([0, 1, 1])).encode("utf-8", "surrogatepass")  # fmt: skip
        case 4:
            depth = rng.choice([500, 900, 2000, 10**5])
            inner = rng.choice(["[" * depth + "]" * depth, '{"a":' * depth + "0" + "}" * depth])
            return re.sub(r": [0-9.]+", lambda _: ": " + inner, text, count=1).encode("utf-8", "surrogatepass")  # fmt: skip
        case 5:
            digits = rng.choice(["9" * 300, "9" * 5000, "1e400", "-1e400", "1e-400", "NaN", "-Infinity", "0." + "3" * 5000])  # fmt: skip
            return re.sub(r": [0-9.]+", ": " + digits, text, count=rng.choice([0, 1])).encode("utf-8", "surrogatepass")  # fmt: skip
        case 6:
            return (text + rng.choice([" ", "\n\n", "{}", "\x00", ",", "//"])).encode("utf-8", "surrogatepass")  # fmt: skip
    return text.encode("utf-8", "surrogatepass")
