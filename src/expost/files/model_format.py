"""Formats of saved models, recognised by content.

Only the first bytes of a file are read, and the tags of its outermost fields where a format has no
mark of its own (ONNX). Nothing is unpacked and no code of the file is run. The name of a file
decides nothing: a pickle called model.onnx is a pickle.
"""

import os
import stat
import zipfile
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from expost.errors import InvalidInput

__all__ = ["MOST_BYTES", "MOST_GIB", "ModelFormat", "audit_command", "model_format"]

# A larger file is refused before it is read.
MOST_GIB = 4
MOST_BYTES = MOST_GIB * 2**30
_HEAD = 4096
# The first bytes of compressed files, as joblib writes them: zlib, gzip, bz2, xz, lzma, lz4.
_COMPRESSED = (
    *(b"x\x01", b"x\x5e", b"x\x9c", b"x\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ"),
    *(b"\x5d\x00\x00", b'\x04"M\x18'),
)
# The types of lengths with which UBJSON begins the first name of an object.
_LENGTHS = b"iUIlL"
# The numbers of the fields of onnx.ModelProto, and that of its graph.
_ONNX_FIELDS, _GRAPH = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}), 7
_VARINT, _DELIMITED = 0, 2


class ModelFormat(Enum):
    """The format of a saved model; its value is the name in messages."""

    EXPOST = "JSON"
    XGBOOST = "XGBoost"
    LIGHTGBM = "LightGBM"
    ONNX = "ONNX"
    SKOPS = "skops"
    PICKLE = "pickle or joblib"

    @property
    def is_foreign(self) -> bool:
        """Whether another library wrote it."""
        return self is not ModelFormat.EXPOST

    @property
    def keeps_training(self) -> bool:
        """Whether the file holds an object that can be trained again, not answers alone."""
        return self in (ModelFormat.EXPOST, ModelFormat.SKOPS, ModelFormat.PICKLE)


def model_format(path: str | Path) -> ModelFormat | None:
    """Return the format of a saved model, or None if it is not a known one.

    Parameters
    ----------
    path : str | Path
        The file.

    Returns
    -------
    ModelFormat | None
        The format; any other JSON file counts as expost's own, whose reader checks it.

    Raises
    ------
    InvalidInput
        If the file cannot be read, is no regular file, or is larger than :data:`MOST_BYTES`.
    """
    path = Path(path)
    try:
        # A pipe would block, and a device has no end.
        information = path.stat()
        if not stat.S_ISREG(information.st_mode):
            raise InvalidInput(f"{path}: is not a file; name a saved model.")
        if information.st_size > MOST_BYTES:
            raise InvalidInput(
                f"{path}: has {information.st_size / 2**30:.3g} GiB; models of more than"
                f" {MOST_GIB} GiB are not loaded. Compute its answers elsewhere and"
                " pass them as --arrays."
            )
        with path.open("rb") as file:
            return _format(file)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def audit_command(path: str | Path | None, kind: ModelFormat | None = None) -> str:
    """Return the command that attacks a saved model, of a format that may need trust."""
    name = "FILE" if path is None else str(path)
    trust = " --trust-pickle (only if you trust its maker)" if kind is ModelFormat.PICKLE else ""
    return f"expost audit DATA --target COLUMN --model {name} --holdout OTHERS{trust}"


def _format(file: BinaryIO) -> ModelFormat | None:
    head = file.read(_HEAD)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        inner = start[1:].lstrip()
        if inner[:1] and inner[0] in _LENGTHS and inner[:1] != b'"':
            return ModelFormat.XGBOOST
        return ModelFormat.XGBOOST if inner.startswith(b'"learner"') else ModelFormat.EXPOST
    if start.replace(b"\r\n", b"\n").startswith(b"tree\nversion=v"):
        return ModelFormat.LIGHTGBM
    if head.startswith(b"PK\x03\x04"):
        return _zipped(file)
    if len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return ModelFormat.PICKLE
    if head.startswith(_COMPRESSED):
        return ModelFormat.PICKLE
    return ModelFormat.ONNX if _is_onnx(file) else None


def _zipped(file: BinaryIO) -> ModelFormat | None:
    """Return the format of a zip file by the names of its entries."""
    try:
        with zipfile.ZipFile(file) as content:
            names = set(content.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return None
    return ModelFormat.SKOPS if "schema.json" in names else None


def _is_onnx(file: BinaryIO) -> bool:
    """Return whether the outermost fields are those of a model, up to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    fields: set[int] = set()
    while file.tell() < size:
        tag = _varint(file)
        if tag is None or tag >> 3 not in _ONNX_FIELDS:
            return False
        value = _varint(file)
        if value is None or tag & 7 not in (_VARINT, _DELIMITED):
            return False
        if tag & 7 == _DELIMITED:
            if file.tell() + value > size:
                return False
            file.seek(value, os.SEEK_CUR)
        fields.add(tag >> 3)
    return _GRAPH in fields


def _varint(file: BinaryIO) -> int | None:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
