"""A mechanism of another package: one file and an entry point, and all of expost knows it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import expost
from conformance import laws
from conformance.subjects import REMOVE, Coordinate
from expost.errors import InvalidInput
from expost.mechanisms import MECHANISMS
from expost.mechanisms.base import GROUP
from plug_ins.coordinate_laplace import CoordinatePerturbation

PLUG_IN = Path(__file__).parent / "plug_ins" / "coordinate_laplace.py"


def install(site: Path, value: str, *, name: str = "coordinate", source: str | None = None) -> None:
    """Write the module and the metadata of a distribution, as pip would."""
    module = value.partition(":")[0]
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(PLUG_IN.read_text() if source is None else source)
    folder = site / f"{module}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")


# -- the laws: conformance/test_laws.py runs all of them on it ----------------------------------


def test_a_wrong_loss_dies(monkeypatch):
    """Power: the ℓ₂ norm for the ℓ₁ norm breaks the first law."""
    row_losses = CoordinatePerturbation.row_losses

    def wrong(self, theta, neighbours):
        result = row_losses(self, theta, neighbours)
        short = result.loss / np.sqrt(self.dimension)
        return replace(result, loss=short, low=short - 1e-9, high=short + 1e-9)

    monkeypatch.setattr(CoordinatePerturbation, "row_losses", wrong)
    with pytest.raises(AssertionError):
        laws.losses_are_the_brute_force_log_ratio(Coordinate(loss="logistic"), REMOVE)


# -- everything else, in another process -----------------------------------------------------------

SCRIPT = """
import json, sys, warnings
from pathlib import Path
import numpy as np
import expost
from expost.mechanisms import MECHANISMS, OutputPerturbation
from expost.release import Release

warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
assert "coordinate" in tuple(MECHANISMS)
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3)) / 3
y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)
settings = {"data_norm": 2.0, "classes": (-1, 1), "regularization": 0.1}
model = expost.PrivateLogisticRegression(epsilon=2.0, mechanism="coordinate", **settings).fit(X, y)
how = model.release_.mechanism
assert type(how).__module__ == "coordinate_laplace"

# model.json, and back.
path = model.save(folder / "model.json")
again = Release.load(path)
assert again.to_json() == model.release_.to_json()
assert again.mechanism == how
assert expost.PrivateLogisticRegression.load(path).mechanism == "coordinate"

profile = expost.profile(path, X, y)
assert np.all(np.abs(profile.loss) <= 2.0)
assert np.all((profile.loss_low <= profile.loss) & (profile.loss <= profile.loss_high))
assert np.all(profile.expected > 0) and np.all(profile.expected_error > 0)
added = expost.profile(model, X, y, relation="add", candidates=(X[:2] / 2, y[:2]))
persons = expost.profile(model, X, y, persons=np.arange(60) // 3)
assert len(added.loss) == 2 and len(persons.loss) == 20 and persons.worst_case == 6.0

# The rows of others are refused.
exposed = expost.PrivateLogisticRegression(epsilon=1e4, mechanism="coordinate", **settings)
try:
    expost.profile(exposed.fit(X, y), X[::-1], y)
except expost.errors.WrongRows:
    pass
else:
    raise AssertionError

choice = expost.choose_epsilon(
    X, y, mechanism="coordinate", models=40, folds=2, epsilons=[0.5, 2.0, 8.0], random_state=0,
    **settings,
)
assert "coordinate perturbation" in choice.description

answer = expost.identifiability(model)
assert "coordinate" in str(answer)
assert expost.identifiability(profile).advantage is not None

report = expost.publish(path, X, y)
bound, _, _ = report.bound(X, y)
assert np.all(bound >= np.abs(profile.loss)) and np.all(bound <= 2.0)
assert report.load(report.save(folder / "report.json")).to_json() == report.to_json()

print(json.dumps({"epsilon": choice.ceiling, "exposure": float(profile.exposure.max())}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plug-in") / "site"
    install(folder, "coordinate_laplace:CoordinatePerturbation")
    return folder


def run(site, *command):
    source = str(Path(expost.__file__).parent.parent)
    paths = os.pathsep.join([str(site), source])
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "100"}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr + made.stdout
    return made.stdout


def test_every_verb_knows_it(site, tmp_path):
    printed = json.loads(run(site, sys.executable, "-c", SCRIPT, str(tmp_path)).splitlines()[-1])
    assert 0 < printed["exposure"] <= 2


# What a published report needs to be known without the rows.
ENCODING = {
    "columns": {"a": {"mean": 0.5, "scale": 0.3}, "b": {"mean": 0.5, "scale": 0.3}},
    "target": {"classes": ["no", "yes"]},
    "data_norm": 3,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0, 1, (2, 80)).round(3)
    label = np.where(a + 0.3 * rng.normal(size=80) > 0.5, "yes", "no")
    rows = "\n".join(f"{x},{y},{z}" for x, y, z in zip(a, b, label, strict=True))
    path = tmp_path_factory.mktemp("table") / "people.csv"
    path.write_text(f"a,b,label\n{rows}\n")
    return path


@pytest.mark.parametrize("blocks", [False, True], ids=["memory", "blocks"])
def test_every_command_and_the_page_know_it(site, table, tmp_path, blocks):
    program = [sys.executable, "-c", "from expost.cli.main import program; program()"]
    arguments = [str(table), "--target", "label", "--mechanism", "coordinate"]
    arguments += ["--engine", "local"] if blocks else []
    (tmp_path / "encoding.json").write_text(json.dumps(ENCODING))
    out = tmp_path / "profile"
    run(site, *program, "profile", *arguments, "--epsilon", "2",
        "--encoding", str(tmp_path / "encoding.json"), "--out", str(out))  # fmt: skip
    pages = "".join(page.read_text() for page in out.glob("*.html"))
    assert "coordinate perturbation" in pages
    model = json.loads(next(out.glob("model.json")).read_text())
    assert model["mechanism"]["kind"] == "coordinate"
    ledger = table.with_name("people.ledger.CURATOR-ONLY.json")
    assert "coordinate" in ledger.read_text()
    listed = run(site, *program, "ledger", str(out))
    assert "coordinate" in listed
    run(site, *program, "epsilon", *arguments, "--models", "20", "--folds", "0", "--out",
        str(tmp_path / "epsilon"))  # fmt: skip
    rows = [argument for argument in arguments if argument not in ("--mechanism", "coordinate")]
    published = tmp_path / "published"
    run(site, *program, "publish", *rows, "--model", str(out / "model.json"),
        "--out", str(published))  # fmt: skip
    pages = "".join(page.read_text() for page in published.glob("*.html"))
    assert "coordinate perturbation" in pages


# -- broken plug-ins -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nothing_of_this_name", r"cannot be loaded \(ModuleNotFoundError"),
        ("raise RuntimeError('no')", r"cannot be loaded \(RuntimeError: no\)"),
        ("class Broken:\n    kind = 'broken'", r"has no .*noises"),
        (
            "from expost.mechanisms import OutputPerturbation as Broken",
            r"calls itself 'output'",
        ),
    ],
)
def test_a_broken_plug_in_is_one_sentence(tmp_path, monkeypatch, source, sentence):
    module = f"broken_{abs(hash(source)) % 10**8}"
    install(tmp_path / "site", f"{module}:Broken", name="broken", source=source)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert "broken" in MECHANISMS
    with pytest.raises(InvalidInput, match=sentence) as error:
        MECHANISMS.create("broken")
    assert str(error.value).startswith("mechanism='broken': ")
    assert str(error.value).count("; ") == 1
    # A broken plug-in that is not asked for does no harm.
    assert MECHANISMS["output"].kind == "output"


def test_a_plug_in_cannot_replace_a_mechanism(tmp_path, monkeypatch):
    install(tmp_path / "site", "another:CoordinatePerturbation", name="output")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert MECHANISMS["output"].__name__ == "OutputPerturbation"
    assert list(MECHANISMS).count("output") == 1


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidInput, match=r"mechanism='nothing'.*'output'"):
        MECHANISMS.create("nothing")
