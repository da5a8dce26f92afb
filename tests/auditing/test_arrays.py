"""Answers from elsewhere: the same evidence whichever quantity and file they come in."""

import numpy as np
import pandas as pd
import pytest

from expost.auditing.arrays import arrays_of, read_arrays
from expost.auditing.evidence import LARGEST
from expost.errors import InvalidInput

N, M, K, OUTSIDE = 40, 3, 4, 10


def answers(seed=0):
    """Probabilities of a target and three references, and who was where."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(K), size=(1 + M, N + OUTSIDE))
    return {
        "p": p,
        "labels": rng.integers(K, size=N + OUTSIDE),
        "member": rng.random(N) < 0.5,
        "inside": rng.random((M, N)) < 0.5,
    }


def own(signals):
    return np.take_along_axis(signals["p"], signals["labels"][None, :, None], axis=2)[:, :, 0]


def given(quantity, signals):
    """What arrays_of takes of it."""
    p = own(signals)
    quantities = {
        "losses": -np.log(p),
        "confidence": np.log(p) - np.log1p(-p),
        "probabilities": signals["p"],
        "own": p,
    }[quantity]
    return {
        ("probabilities" if quantity == "own" else quantity): quantities[0, :N],
        "references": quantities[1:, :N],
        "inside": signals["inside"],
        "population": quantities[0, N:],
        "population_references": quantities[1:, N:],
        "labels": signals["labels"][:N],
        "population_labels": signals["labels"][N:],
        "member": signals["member"],
    }


@pytest.mark.parametrize("quantity", ["losses", "confidence", "probabilities", "own"])
def test_every_quantity_gives_the_log_odds(quantity):
    signals = answers()
    p = own(signals)
    expected = np.log(p) - np.log1p(-p)
    arrays = arrays_of(**given(quantity, signals))
    evidence = arrays.evidence
    np.testing.assert_allclose(evidence.confidence, expected[0, :N], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evidence.references, expected[1:, :N], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evidence.population, expected[0, N:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        evidence.population_references, expected[1:, N:], rtol=1e-4, atol=1e-5
    )
    assert np.array_equal(evidence.inside, signals["inside"])
    assert np.array_equal(evidence.labels, signals["labels"][:N])
    assert np.array_equal(evidence.population_labels, signals["labels"][N:])
    assert np.array_equal(arrays.member, signals["member"])
    wide = quantity == "probabilities"
    assert evidence.views.shape == (N, 3 if wide else 0)
    assert evidence.reference_views.shape == ((M, N, 3) if wide else (0, N, 0))
    if wide:
        expected = np.sort(signals["p"][1:, :N])[..., ::-1][..., :3]
        np.testing.assert_allclose(evidence.reference_views, expected, rtol=1e-5)


def test_losses_alone_are_enough():
    arrays = arrays_of(losses=[0.0, 1.0, np.inf])
    assert arrays.evidence.confidence[[0, 2]].tolist() == [LARGEST, -LARGEST]
    assert (arrays.evidence.models, arrays.member, arrays.classes) == (0, None, None)


def test_labels_may_be_words():
    p = [[0.2, 0.8], [0.3, 0.7]]
    arrays = arrays_of(probabilities=p, labels=["no", "yes"])
    np.testing.assert_allclose(
        arrays.evidence.confidence, np.log([0.2 / 0.8, 0.7 / 0.3]), rtol=1e-5
    )
    assert arrays.classes.tolist() == ["no", "yes"]
    # A class without rows: its column is known by its number alone.
    few = arrays_of(probabilities=[[0.2, 0.7, 0.1]], labels=[2]).evidence
    np.testing.assert_allclose(few.confidence, np.log([0.1 / 0.9]), rtol=1e-5)
    mixed = arrays_of(probabilities=p, labels=[0, 1], references=[[0.5, 0.5]], inside=[[1, 0]])
    assert mixed.evidence.reference_views.shape == (0, 2, 2)


@pytest.mark.parametrize("quantity", ["losses", "probabilities", "own"])
def test_npz(quantity, tmp_path):
    content = given(quantity, answers())
    path = tmp_path / "answers.npz"
    np.savez(path, **content)
    loaded, other = read_arrays(path).evidence, arrays_of(**content).evidence
    for name in ("confidence", "references", "inside", "population", "views", "reference_views"):
        assert np.array_equal(getattr(loaded, name), getattr(other, name))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["loss", "confidence", "probability"])
def test_tables(kind, column, tmp_path):
    signals = answers()
    quantity = {"loss": "losses", "confidence": "confidence", "probability": "own"}[column]
    quantities = given(quantity, signals)
    name = "probabilities" if quantity == "own" else quantity
    both = np.concatenate([quantities[name], quantities["population"]])
    frame = pd.DataFrame(
        {
            "id": [f"row {row}" for row in range(N + OUTSIDE)],
            column: both,
            "member": np.concatenate([signals["member"], np.zeros(OUTSIDE, dtype=bool)]).astype(
                int
            ),
            "population": [0] * N + [1] * OUTSIDE,
            "label": np.array(["a", "b", "c", "d"])[signals["labels"]],
        }
    )
    for j in range(M):
        frame[f"reference_{j}"] = np.concatenate(
            [quantities["references"][j], quantities["population_references"][j]]
        )
        frame[f"inside_{j}"] = np.concatenate([signals["inside"][j], np.zeros(OUTSIDE, dtype=bool)])
        frame[f"inside_{j}"] = frame[f"inside_{j}"].astype(int)
    # Not in order: the population may stand anywhere.
    order = np.random.default_rng(1).permutation(N + OUTSIDE)
    order = np.concatenate([order[order >= N], np.arange(N)])
    frame = frame.iloc[order]
    path = tmp_path / f"answers.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    arrays = read_arrays(path)
    expected = arrays_of(**quantities).evidence
    np.testing.assert_allclose(arrays.evidence.confidence, expected.confidence, rtol=1e-6)
    np.testing.assert_allclose(arrays.evidence.references, expected.references, rtol=1e-6)
    assert sorted(arrays.evidence.population) == pytest.approx(sorted(expected.population))
    assert np.array_equal(arrays.evidence.inside, expected.inside)
    assert np.array_equal(arrays.evidence.labels, expected.labels)
    assert np.array_equal(arrays.member, signals["member"])
    assert arrays.ids.tolist() == [f"row {row}" for row in range(N)]
    assert arrays.classes.tolist() == ["a", "b", "c", "d"]


def test_a_table_of_truth_values(tmp_path):
    frame = pd.DataFrame({"loss": [0.1, 0.2], "member": [True, False]})
    frame.to_parquet(tmp_path / "answers.parquet")
    assert read_arrays(tmp_path / "answers.parquet").member.tolist() == [True, False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "exactly one"),
        ({"losses": [1.0], "confidence": [1.0]}, "exactly one"),
        ({"losses": [np.nan, 1.0]}, "the target"),
        ({"confidence": [np.nan, 1.0]}, "the target has NaN"),
        ({"probabilities": [1.2, 0.5]}, "from 0 to 1"),
        ({"probabilities": [[0.5, 0.5]]}, "labels"),
        ({"probabilities": [[0.5, 0.5]], "labels": ["a"]}, "columns"),
        ({"losses": [[1.0]]}, "one number for each row"),
        ({"losses": [1.0], "references": [[1.0]]}, "inside"),
        ({"losses": [1.0, 2.0], "references": [[1.0]], "inside": [[1, 0]]}, "reference 0"),
        ({"losses": [1.0], "references": [[np.nan]], "inside": [[1]]}, "reference 0"),
        ({"losses": [1.0], "references": [[1.0]], "inside": [[0.5]]}, "inside"),
        ({"losses": [1.0], "references": [[1.0]], "inside": [[1, 0]]}, "inside"),
        ({"losses": [1.0, 2], "references": 5, "inside": 5}, "references: must have a line"),
        ({"losses": [[1], [2, 3]]}, "losses: has lines of different lengths"),
        ({"losses": [1.0, 2], "member": ["yes", "no"]}, "member: must be true or false"),
        ({"losses": [1.0], "member": [2]}, "member"),
        ({"losses": [1.0], "member": [1, 0]}, "member"),
        ({"losses": [1.0], "labels": [1, 0]}, "labels"),
        ({"losses": [1.0], "ids": [1, 0]}, "ids"),
        ({"losses": [1.0], "population_references": [[1.0]]}, "population_references"),
        (
            {"losses": [1.0], "references": [[1.0]], "inside": [[1]], "population": [1.0]},
            "population_references",
        ),
    ],
)
def test_what_does_not_fit_is_refused(content, message):
    with pytest.raises(InvalidInput, match=message):
        arrays_of(**content)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "answers.npz"
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_arrays(path)
    path.write_bytes(b"PK nothing")
    with pytest.raises(InvalidInput, match="not an npz"):
        read_arrays(path)
    np.savez(path, losses=np.array([{}], dtype=object))
    with pytest.raises(InvalidInput, match="not an npz"):
        read_arrays(path)
    np.savez_compressed(path, losses=np.linspace(0, 1, 99) ** 2)
    whole = path.read_bytes()
    start = whole.index(b"losses.npy") + len(b"losses.npy") + 40
    broken = 0
    for offset in range(start, start + 60):
        path.write_bytes(whole[:offset] + bytes([255 - whole[offset]]) + whole[offset + 1 :])
        with pytest.raises(InvalidInput, match="not an npz"):
            read_arrays(path)
        broken += 1
    assert broken == 60
    np.savez(path, loss=[1.0])
    with pytest.raises(InvalidInput, match="'loss'"):
        read_arrays(path)
    np.savez(path, losses=[np.nan])
    with pytest.raises(InvalidInput, match=r"answers\.npz: .*the target"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"loss": [1.0, 2.0]}, "member"),
        ({"loss": [1.0, None], "member": [1, 0]}, "empty cells"),
        ({"loss": [1.0, 2.0], "confidence": [1.0, 2.0], "member": [1, 0]}, "one of"),
        ({"loss": [1.0, 2.0], "member": [1, 0], "reference_1": [1.0, 1.0]}, "inside_j"),
        ({"loss": [1.0, 2.0], "member": [1, 0], "population": [1, 0]}, "is a member"),
        ({"loss": [1.0, 2.0], "member": [0, 0], "population": [1, 1]}, "every row belongs"),
        (
            {
                "loss": [1.0, 2.0],
                "member": [1, 0],
                "population": [0, 1],
                "reference_1": [1.0, 1.0],
                "inside_1": [1, 1],
            },
            "inside a reference",
        ),
    ],
)
def test_tables_that_do_not_fit(columns, message, tmp_path):
    path = tmp_path / "answers.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    with pytest.raises(InvalidInput, match=message):
        read_arrays(path)
