"""The examples of docs/dp-sgd.md, run as they stand."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "dp-sgd.md"
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e-[0-9]+)?")


def example(marker):
    """The one example of the page that contains this text."""
    blocks = re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if marker in block)
    return block


def run(block):
    """Run an example, and return how many numbers it printed as the page shows them."""
    names, shown = {}, 0
    for step in doctest.DocTestParser().get_examples(block):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(step.source, PAGE.name, "single"), names)
        # The last digits of a training may differ from one processor to another.
        assert NUMBER.sub("", out.getvalue()) == NUMBER.sub("", step.want)
        printed, wanted = (
            [float(number) for number in NUMBER.findall(text)]
            for text in (out.getvalue(), step.want)
        )
        np.testing.assert_allclose(printed, wanted, rtol=0.1, atol=1e-4)
        shown += len(wanted)
    return shown
