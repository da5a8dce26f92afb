"""``expost risk`` as its users meet it."""

import json
import warnings

import numpy as np
import pytest

import expost
from expost import PrivateLogisticRegression
from expost.errors import PrivacyLeakWarning, SeededReleaseWarning, UselessModelWarning
from expost.jobs.pages import read_page
from expost.profiles.identifiability import identifiability
from expost.profiles.stored import StoredProfile
from expost.types import Audience
from program import listed, mode, names, refused
from runs import make_release
from settings import OUTPUT

TRAINING = ("--sampling-rate", "0.01", "--steps", "10")


@pytest.fixture
def ask(program):
    """Run ``expost risk``."""
    return lambda *arguments: program("risk", *arguments)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("--epsilon", "1", "--delta", "1e-5"), {"epsilon": 1.0, "delta": 1e-5}),
        (("--epsilon", "1"), {"epsilon": 1.0}),
        (("--mu", "0.5", "--delta", "1e-6"), {"mu": 0.5, "delta": 1e-6}),
        (("--max-posterior", "0.9"), {"max_posterior": 0.9}),
        (("--advantage", "0.2", "--delta", "1e-5"), {"advantage": 0.2, "delta": 1e-5}),
        (
            ("--tpr", "0.05", "--fpr", "0.001"),
            {"true_positive_rate": 0.05, "false_positive_rate": 0.001},
        ),
        (("--mu", "0.5", "--baseline", "1/1000"), {"mu": 0.5, "baseline": 1 / 1000}),
        (
            ("--epsilon", "1", "--baseline", "reconstruction=1e-6,attribute-inference=1/2"),
            {"epsilon": 1.0, "baseline": {"reconstruction": 1e-6, "attribute_inference": 0.5}},
        ),
        (("--one-in", "100", "--prior", "0.001"), {"one_in": 100.0, "prior": 0.001}),
        (
            ("--epsilon", "1", "--delta", "1e-6", "--releases", "3", "--exceeded", "0.01"),
            {"epsilon": 1.0, "delta": 1e-6, "releases": 3, "exceeded": 0.01},
        ),
        (
            ("--noise-multiplier", "1.1", "--delta", "1e-5", *TRAINING, "--relation", "replace"),
            {
                "noise_multiplier": 1.1,
                "delta": 1e-5,
                "sampling_rate": 0.01,
                "steps": 10,
                "relation": "replace",
            },
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_command_prints_what_the_verb_returns(ask, arguments, options):
    risk = identifiability(**options)
    done = ask(*arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{risk}\n"
    machine = ask(*arguments, "--json")
    assert json.loads(machine.out) == {"files": {}, **json.loads(risk.to_json())}


@pytest.mark.parametrize(
    "value", ["0", "1/0", "1/2/3", "much", "membership=0.1", "reconstruction=2", "0.1,0.2",
              "reconstruction=0.1,reconstruction=0.2"],
)  # fmt: skip
def test_what_is_no_baseline_is_refused(ask, value):
    done = ask("--epsilon", "1", "--baseline", value)
    assert (done.code, done.out) == (2, "")
    assert "baseline" in done.message


def test_a_released_model(ask, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        model = PrivateLogisticRegression(
            epsilon=2.0, **OUTPUT, data_norm=5.0, classes=[0, 1], random_state=0
        ).fit(X, np.where(X[:, 0] > 0, 1, 0))
    path = model.release_.save(tmp_path / "model.json")
    done = ask(path)
    assert done.code == 0
    assert "logistic by output perturbation" in done.out
    assert "this model" in done.out
    machine = json.loads(ask(path, "--json-curator").out)
    assert machine["figures"]["epsilon"]["values"]["model"] == 2.0
    # Drawn from a seed it is not for everybody, and what is told of it is not either.
    assert machine["audience"] == "needs-review"
    assert done.out.endswith(f"{Audience.NEEDS_REVIEW.meaning}\n")
    assert "* The model behind" in done.out


def saved(path, **options):
    """A model whose classes were read from the rows, unless they are given."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = PrivateLogisticRegression(epsilon=2.0, **OUTPUT, data_norm=5.0, **options)
        model.fit(X, np.where(X[:, 0] > 0, 1, 0))
    path.parent.mkdir(exist_ok=True)
    return model.release_.save(path)


def test_the_answer_about_a_model_has_its_audience(ask, program, tmp_path):
    model, page, plot = saved(tmp_path / "own" / "hers.json"), tmp_path / "x", tmp_path / "r.png"
    done = ask(model, "--delta", "1e-5", "--releases", "2", "--out", page, "--plot", plot)
    assert done.code == 0, done.err
    assert Audience.NEEDS_REVIEW.meaning in done.out
    names = {"report.CURATOR-ONLY.html", "report.CURATOR-ONLY.md", "summary.CURATOR-ONLY.json"}
    assert {path.name for path in listed(page)} == names
    assert {mode(path) for path in listed(page)} == {0o600}
    assert not plot.exists()
    assert mode(tmp_path / "r.CURATOR-ONLY.png") == 0o600
    (document,) = read_page(page / "summary.CURATOR-ONLY.json").documents
    assert (document.audience, document.source) == (Audience.NEEDS_REVIEW, "hers.json")
    refused(
        program("report", page, "--public", "--out", tmp_path / "site"), tmp_path / "site",
        "nothing here is public | risk: needs-review",
    )  # fmt: skip
    # A later page of the same folder that is for everybody leaves nothing of it.
    assert ask("--epsilon", "1", "--out", page, "--force").code == 0
    assert {path.name for path in listed(page)} == {"report.html", "report.md", "summary.json"}


def test_a_page_for_everybody_names_no_file_of_the_curators(ask, tmp_path):
    for name, source in (("model.json", "model.json"), ("canary.json", "a released model")):
        model = saved(tmp_path / "canary-folder" / name, classes=[0, 1])
        done = ask(model, "--out", tmp_path / source)
        assert done.code == 0, done.err
        assert Audience.PUBLIC.meaning in done.out
        (document,) = read_page(tmp_path / source / "summary.json").documents
        assert (document.audience, document.source) == (Audience.PUBLIC, source)
        for path in (tmp_path / source).iterdir():
            assert "canary" not in path.read_text(), path.name


def test_the_figure(ask, tmp_path):
    path = tmp_path / "risk.png"
    done = ask("--epsilon", "1", "--delta", "1e-5", "--plot", path)
    assert done.code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert mode(path) == 0o644
    assert str(path) in done.out
    machine = ask("--max-posterior", "0.9", "--plot", path, "--json")
    assert json.loads(machine.out)["files"] == {"plot": str(path)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mu", "1", "--plot", "risk.png"), "name a delta"),
        (("--epsilon", "1", "--plot", "no/folder/risk.png"), "no/folder"),
        (("--epsilon", "1", "--plot", "risk.pdf", "--out", "risk.png"), "must end in .png"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    ask, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    refused(ask(*arguments), tmp_path / "risk.png", words)


def test_the_rows_of_a_profile(program, tmp_path):
    """The folder or the file of a profile: what the verb states of the same profile in memory."""
    make_release(tmp_path)
    folder = tmp_path / "profile"
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with warnings.catch_warnings():
        # So few rows are useless, which is not the subject here.
        warnings.simplefilter("ignore", UselessModelWarning)
        model = PrivateLogisticRegression(epsilon=1.0, data_norm=5.0, classes=[0, 1], **OUTPUT)
        model.fit(X, y)
        profile = expost.profile(model, X, y)
    held = tmp_path / "held"
    held.mkdir()
    model.release_.save(held / "model.json")
    profile.to_json(held / "profile.json")
    expected = identifiability(profile, baseline=0.01, prior=0.2)
    stored = StoredProfile.load(held / "profile.CURATOR-ONLY.json")
    own = stored.identifiability(0.2, baseline=0.01)
    for name in ("posterior_high", "attack_bound", "baseline_posterior", "advantage_high"):
        np.testing.assert_allclose(getattr(own, name), getattr(expected, name), rtol=1e-9)
    assert own.worst_case == expected.worst_case
    for path in (folder, folder / "profile.CURATOR-ONLY.json"):
        out = tmp_path / path.stem
        done = program("risk", path, "--baseline", "1/1000", "--out", out / "risk")
        assert (done.code, done.err) == (0, "")
        assert "from 0.1 %" in done.out
        assert all("CURATOR-ONLY" in name for name in names(out / "risk"))
        assert {mode(out / "risk" / name) for name in names(out / "risk")} == {0o600}
        assert json.loads(program("risk", path, "--json").out) == {"files": {}}
    refused(program("risk", folder, "--fpr", 0.1), tmp_path / "o", "prior and baseline")
    refused(program("risk", folder, "--plot", tmp_path / "x.png"), tmp_path / "x.png", "--plot")
    refused(program("risk", tmp_path / "published"), tmp_path / "o", "holds no profile")
    (folder / "model.json").unlink()
    refused(program("risk", folder / "profile.CURATOR-ONLY.json"), tmp_path / "o", "model.json")
