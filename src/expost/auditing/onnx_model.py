"""Saved models in the ONNX format, run by onnxruntime on the CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expost.auditing.saved_model import (
    EXTRA,
    LoadedModel,
    SavedModel,
    as_frame,
    as_probabilities,
    ordered_classes,
    typed,
    without_rounding,
)
from expost.errors import InvalidInput, require
from expost.notices import listed
from expost.types import FloatArray

__all__ = ["load_onnx"]

_ONNX_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


def load_onnx(path: Path) -> LoadedModel:
    """Load a model from memory; files that it names are not read."""
    runtime = require("onnxruntime", caller="an ONNX file", extra=EXTRA)
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    # From memory: weights in other files, which a path in the model names, are not read.
    session = runtime.InferenceSession(
        path.read_bytes(), sess_options=settings, providers=["CPUExecutionProvider"]
    )
    inputs = session.get_inputs()
    for each in inputs:
        if each.type not in _ONNX_TYPES or not 1 <= len(each.shape) <= 2:
            raise InvalidInput(
                f"{path}: its input {each.name!r} is {each.type} of {len(each.shape)} axes; only"
                " columns of numbers and strings are supported."
            )
    matrix = len(inputs) == 1 and inputs[0].shape[-1] != 1
    width = inputs[0].shape[-1] if matrix else len(inputs)
    reader = _OnnxAnswers(session=session, output=_onnx_output(session, path), matrix=matrix)
    return LoadedModel(
        path=path,
        description=f"ONNX {session.get_modelmeta().producer_name or 'model'}, {width} columns",
        columns=None if matrix else tuple(each.name for each in inputs),
        width=width if isinstance(width, int) else None,
        as_matrix=matrix and inputs[0].type != "tensor(string)",
        finish=reader.finish,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _OnnxAnswers:
    """A session, the output that is read, and whether its input is one matrix."""

    session: Any
    output: Any
    matrix: bool

    def finish(self, rows: Any, classes: tuple[str, ...] | None) -> SavedModel:
        """Return the model; its classes are the keys of its answers, or their numbers."""
        if rows is None:
            raise InvalidInput(
                "an ONNX model states its classes in its answers: pass"
                " expost.auditing.load_model(path).answering(rows) with some rows."
            )
        answers = self.run(rows)
        description = f"ONNX {self.session.get_modelmeta().producer_name or 'model'}"
        if isinstance(answers, list):
            if classes is not None:
                raise InvalidInput("--classes: the model knows its own; leave it out.")
            keys = sorted(answers[0])

            def evaluate(X: Any) -> FloatArray:
                return without_rounding([[row[key] for key in keys] for row in self.run(X)])

            return SavedModel(description=description, evaluate=evaluate, classes_=np.array(keys))
        count = answers.shape[1]
        if count == 1 and classes is None and len(self.session.get_outputs()) == 1:
            return SavedModel(
                description=description,
                evaluate=lambda X: np.ravel(self.run(X)),
                classes_=None,
                is_assumed=True,
            )

        def probabilities(X: Any) -> FloatArray:
            answers = without_rounding(self.run(X))
            return as_probabilities(answers[:, 0], False) if count == 1 else answers

        return SavedModel(
            description=description,
            evaluate=probabilities,
            classes_=ordered_classes(max(2, count), classes),
            is_numbered=classes is None,
        )

    def run(self, X: Any) -> Any:
        """Return (n, K) numbers, or for each row a dict of probabilities by class."""
        inputs = self.session.get_inputs()
        frame = as_frame(X, None if self.matrix else [each.name for each in inputs])
        size = inputs[0].shape[0]
        if not isinstance(size, int) or size < 1:
            return self._run(frame)
        # A model for a fixed number of rows: the last part is filled with its last row.
        parts = []
        for start in range(0, len(frame), size):
            rows = np.minimum(np.arange(start, start + size), len(frame) - 1)
            parts.append(self._run(frame.iloc[rows])[: len(frame) - start])
        if isinstance(parts[0], list):
            return [row for part in parts for row in part]
        return np.concatenate(parts)

    def _run(self, frame: Any) -> Any:
        inputs, feeds = self.session.get_inputs(), {}
        for index, each in enumerate(inputs):
            kind = _ONNX_TYPES[each.type]
            cells = frame if self.matrix else frame.iloc[:, [index]]
            values = typed(cells, kind)
            feeds[each.name] = values if len(each.shape) == 2 else values[:, 0]
        (answers,) = self.session.run([self.output.name], feeds)
        if isinstance(answers, list):
            return answers
        answers = np.asarray(answers, dtype=np.float64)
        return answers[:, None] if answers.ndim == 1 else answers


def _onnx_output(session: Any, path: Path) -> Any:
    """Return the output with probabilities or predictions; refuse to guess among several."""
    outputs = session.get_outputs()
    maps = [each for each in outputs if each.type.startswith("seq(map(")]
    floats = [each for each in outputs if each.type in ("tensor(float)", "tensor(double)")]
    likely = maps or [each for each in floats if "prob" in each.name.lower()] or floats
    if len(likely) != 1:
        names = listed([f"{each.name} ({each.type})" for each in outputs])
        raise InvalidInput(
            f"{path}: has {len(likely)} outputs that could be probabilities or predictions, of"
            f" {names}; export it with exactly one."
        )
    return likely[0]
