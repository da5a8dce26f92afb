"""Every row's figures in a page: in the order of the ranks, rounded so that bounds stay bounds."""

import base64
import dataclasses
import json
import struct

import numpy as np
import pytest

import expost
from expost.report import document_of, render_html
from expost.report.html import script
from expost.report.rows import MOST_ROWS, packed_rows, rows_of_profile
from expost.report.slider import slider_of_profile
from report.conftest import HOSTILE, noiseless, synthetic


def data_of(page):
    """What the page holds for its script."""
    return page.partition('id="expost-data">')[2].partition("</script>")[0]


def unpacked(text, kind="f"):
    content = base64.b64decode(text)
    return list(struct.unpack(f"<{len(content) // 4}{kind}", content))


def test_rows_stand_in_the_order_of_their_ranks():
    profile = synthetic(40)
    rows = rows_of_profile(profile)
    naive = sorted(range(40), key=lambda row: -abs(profile.loss[row]))
    assert list(rows.numbers) == naive
    assert [abs(loss) for loss in rows.loss] == sorted(map(abs, rows.loss), reverse=True)
    for rank, row in enumerate(naive):
        assert rows.loss[rank] == profile.loss[row]
        assert (rows.low[rank], rows.high[rank]) == (
            profile.loss_low[row],
            profile.loss_high[row],
        )
        assert rows.distance[rank] == profile.distance[row]
    assert (rows.unit, rows.total, rows.rows, rows.in_order) == ("row", 40, 40, True)


def test_packed_figures_are_right_to_single_precision_and_widths_are_rounded_up():
    profile = synthetic(500)
    profile.losses.high[:] += np.random.default_rng(2).exponential(1e-6, 500)
    rows = rows_of_profile(profile)
    packed = packed_rows(rows)
    assert unpacked(packed["numbers"], "I") == list(rows.numbers)
    loss, distance, within = (
        np.array(unpacked(packed[name])) for name in ("loss", "distance", "within")
    )
    np.testing.assert_allclose(loss, rows.loss, rtol=6e-8)
    np.testing.assert_allclose(distance, rows.distance, rtol=6e-8)
    exact = np.maximum(np.array(rows.high) - rows.loss, np.array(rows.loss) - rows.low)
    assert np.all(within >= exact)
    assert np.all(within <= exact * (1 + 1.2e-7))
    # Rounding to nearest would not have done.
    assert np.any(exact.astype(np.float32) < exact)


@pytest.mark.parametrize("value", [np.inf, 1e300, 1e-300, 0.0, np.pi])
def test_widths_at_the_ends_of_single_precision(value):
    profile = synthetic(3)
    profile.losses.high[:] = profile.loss + value
    profile.losses.low[:] = profile.loss - value
    rows = rows_of_profile(profile)
    with np.errstate(over="ignore"):
        within = np.array(unpacked(packed_rows(rows)["within"]))
    assert np.all(within >= rows.within)


def test_an_infinite_loss_is_within_nothing():
    profile = synthetic(3)
    for ends in (profile.losses.loss, profile.losses.high):
        ends[1] = np.inf
    rows = rows_of_profile(profile)
    assert rows.numbers[0] == 1
    assert rows.within[0] == np.inf
    assert unpacked(packed_rows(rows)["loss"])[0] == np.inf


def test_many_rows_are_cut_to_the_most_exposed():
    rows = rows_of_profile(synthetic(300), most=100)
    every = rows_of_profile(synthetic(300))
    assert (len(rows), rows.total, rows.rows) == (100, 300, 300)
    assert rows.numbers == every.numbers[:100]
    assert len(every) == 300
    assert MOST_ROWS == 100_000


def test_without_noise_there_are_distances():
    profile = noiseless(20)
    rows = rows_of_profile(profile)
    assert rows.noiseless
    assert list(rows.distance) == sorted(profile.distance, reverse=True)
    assert unpacked(packed_rows(rows)["within"]) == [0.0] * 20


def test_persons_and_candidates_do_not_stand_in_the_order_of_a_table(laplace):
    release, X, y, _ = laplace
    persons = rows_of_profile(expost.profile(release, X, y, persons=np.arange(len(X)) // 2))
    assert (persons.unit, persons.total, persons.rows) == ("person", 75, 150)
    assert persons.keys is not None
    assert not persons.in_order
    added = rows_of_profile(
        expost.profile(release, X, y, relation="add", candidates=(X[:5], y[:5]))
    )
    assert (added.unit, added.total, added.in_order) == ("candidate", 5, False)


def test_keys_are_printable_and_cut():
    keys = ["a", HOSTILE, "x" * 999, "b\u2028c"]
    rows = rows_of_profile(synthetic(4, ids=tuple(keys)))
    by_number = dict(zip(rows.numbers, rows.keys, strict=True))
    assert by_number[0] == "a"
    assert "\\n\\u202e" in by_number[1]
    assert len(by_number[2]) == 200
    assert by_number[3] == "b\\u2028c"


def test_the_block_of_data_cannot_be_left(laplace):
    release, _, _, profile = laplace
    names = ("</script><b>", "<!--", "&amp;\u2029", *map(str, range(147)))
    profile = dataclasses.replace(profile, ids=names)
    rows, slider = rows_of_profile(profile), slider_of_profile(profile, release)
    text = data_of(render_html(document_of(profile, release=release)))
    assert not {"<", ">", "&", "\u2028", "\u2029"} & set(text)
    value = json.loads(text)["profile"]
    assert sorted(value["search"]["keys"]) == sorted(rows.keys)
    assert "</script><b>" in value["search"]["keys"]
    assert value["slider"]["exact"]["quantiles"] == list(slider.exact.quantiles)
    assert value["slider"]["start"] == slider.start


def test_adult_with_ids_stays_small():
    profile = synthetic(48_842, ids=tuple(f"person-{number:06d}" for number in range(48_842)))
    page = render_html(document_of(profile))
    assert 1_000_000 < len(data_of(page).encode()) < len(page.encode()) < 2_500_000


@pytest.mark.parametrize(("form", "most"), [(False, 30_000), (True, 50_000)])
def test_the_script_is_one_closed_expression(form, most):
    text = script(form=form)
    assert text.startswith("(() => {\n'use strict';")
    assert text.endswith("})();\n")
    for word in (
        "</script",
        "fetch(",
        "XMLHttpRequest",
        "innerHTML",
        "eval(",
        "import(",
        "document.write",
    ):
        assert word not in text
    assert len(text.encode()) < most
