"""``expost check`` and ``expost verify``: exit codes, files, and figures that never leave."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import evidence
from expost.files.manifest import write_manifest
from expost.policy import Policy, check
from gates import edited_audit, make_gate
from papers.datasets import load_adult
from program import mode, refused

# The model is drawn without a seed from 60 rows, so that its AUC may be anything: a limit that it
# keeps in every run.
POLICY = """
[guarantee]
epsilon = 1
delta = 1e-5
audience = "public"
[rows]
certainty = 0.99
quantiles = [{ share = 0.5, certainty = 0.98 }]
above = [{ certainty = 0.6, rows = 59, share = 0.97 }]
[utility]
auc = 0.01
[attacks]
required = ["lira-online"]
auc = 0.98
tpr = [{ fpr = 0.01, at_most = 0.97 }]
[evidence]
age = 1
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture
def policy(tmp_path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def figures_of(made: Path) -> set[str]:
    """Every curator-only figure of the profile and the audit, to three digits or more."""
    table = pq.read_table(made / "profile" / "profile.CURATOR-ONLY.parquet")
    names = ("loss", "exposure", "posterior", "certainty", "expected", "distance")
    values = [value for name in names for value in table.column(name).to_pylist()]
    audit = json.loads((made / "audit" / "figures.CURATOR-ONLY.json").read_text())
    for attack in audit["attacks"].values():
        for figure in attack.values():
            if isinstance(figure, dict):
                values += [figure["value"], figure["low"], figure["high"]]
    profile = json.loads((made / "profile" / "profile.CURATOR-ONLY.json").read_text())
    values += [value for value in profile["fit"].values() if isinstance(value, float)]
    shown = {f"{abs(value):.{digits}g}" for value in values for digits in (4, 6, 17)}
    # As Python writes it: rounded to fewer digits it may end in another one.
    shown |= {repr(abs(value)) for value in values}
    # What is as short as a limit or a count may stand there by chance.
    return {text for text in shown if len(text.replace("0.", "").replace(".", "")) >= 4}


def keys_of(made: Path) -> set[str]:
    table = pq.read_table(made / "profile" / "profile.CURATOR-ONLY.parquet")
    return set(table.column("id").to_pylist())


def assert_clean(text: str, made: Path) -> None:
    assert not [figure for figure in figures_of(made) if figure in text]
    assert not [key for key in keys_of(made) if key in text]


def test_the_gate_passes_and_no_curator_only_figure_leaves(program, made, policy, tmp_path):
    junit, markdown = tmp_path / "expost.xml", tmp_path / "expost.md"
    results = (made / "profile", made / "audit")
    options = ("--policy", policy, "--junit", junit, "--markdown", markdown)
    done = program("check", *results, *options)
    assert (done.code, done.err) == (0, "")
    assert "satisfied" in done.out
    written = program("check", *results, "--policy", policy, "--json")
    assert written.code == 0
    assert json.loads(written.out)["verdict"] == "satisfied"
    for text in (done.out, written.out, junit.read_text(), markdown.read_text()):
        assert_clean(text, made)
    # Verdicts on curator-only figures need review.
    assert mode(junit) == mode(markdown) == 0o600
    # Power: with --curator the figures are on stdout, and there alone.
    for extra in ((), ("--json",)):
        curator = program("check", *results, *options, "--force", "--curator", *extra)
        with pytest.raises(AssertionError):
            assert_clean(curator.out, made)
        assert_clean(junit.read_text() + markdown.read_text(), made)


def test_junit_has_a_case_for_every_limit(program, made, policy, tmp_path):
    junit = tmp_path / "expost.xml"
    done = program(
        "check", made / "profile", "--policy", policy, "--fail-on", "epsilon>0.5", "--junit", junit
    )
    assert done.code == 3
    suites = ElementTree.parse(junit).getroot()
    outcome = check(made / "profile", Policy.from_toml(POLICY).merged(Policy.of("epsilon>0.5")))
    cases = list(suites.iter("testcase"))
    assert [case.get("name") for case in cases] == [each.limit.text for each in outcome.findings]
    assert suites.get("tests") == str(len(cases))
    assert suites.get("failures") == str(len(list(suites.iter("failure")))) == "1"
    # No audit is given.
    assert suites.get("errors") == str(len(list(suites.iter("error")))) == "3"
    assert [case.get("name") for case in cases if case.find("failure") is not None] == [
        "ε is at most 0.5"
    ]


@pytest.mark.parametrize(
    ("expressions", "code"),
    [
        (("epsilon>1",), 0),
        (("epsilon>1", "delta>1e-5", "age>1"), 0),
        (("epsilon>0.9",), 3),
        (("r2<0.5",), 4),
        (("r2<0.5", "epsilon>0.9"), 3),
    ],
)
def test_exit_codes(program, made, expressions, code):
    options = [part for expression in expressions for part in ("--fail-on", expression)]
    done = program("check", made / "profile", *options)
    assert (done.code, done.err) == (code, "")
    assert done.out


def test_public_limits_make_public_files(program, made, tmp_path):
    junit = tmp_path / "expost.xml"
    done = program("check", made / "profile", "--fail-on", "epsilon>1", "--junit", junit)
    assert (done.code, mode(junit)) == (0, 0o644)


def test_a_refuted_guarantee_makes_no_public_file(program, made, tmp_path):
    """Whether an audit refutes a guarantee is curator-only, and so is a verdict that follows."""
    refuted = edited_audit(made, tmp_path / "refuted", guarantee_refuted=True)
    junit, markdown = tmp_path / "expost.xml", tmp_path / "expost.md"
    done = program(
        "check", made / "profile", refuted, "--fail-on", "epsilon>1", "--junit", junit,
        "--markdown", markdown,
    )  # fmt: skip
    assert (done.code, mode(junit), mode(markdown)) == (3, 0o600, 0o600)
    for text in (done.out, markdown.read_text()):
        assert "review" in text.lower()
        assert "Public:" not in text


def test_mistakes_are_refused(program, made, policy, tmp_path):
    out = tmp_path / "o.xml"
    results = made / "profile"
    refused(program("check", results, "--junit", out), out, "--policy | --fail-on")
    bad = tmp_path / "bad.toml"
    bad.write_text("[guarantee]\nepsilom = 1\n")
    words = "guarantee.epsilom | Did you mean 'epsilon'"
    refused(program("check", results, "--policy", bad, "--junit", out), out, words)
    refused(program("check", results, "--fail-on", "epsilon", "--junit", out), out, "--fail-on")
    refused(program("check", tmp_path, "--policy", policy, "--junit", out), out, "holds no result")
    missing = tmp_path / "none" / "o.xml"
    done = program("check", results, "--policy", policy, "--junit", missing)
    refused(done, missing, "its folder does not exist")


def test_no_input_and_no_file_is_written_over(program, made, policy, tmp_path):
    folder = Path(shutil.copytree(made / "profile", tmp_path / "profile"))
    model = folder / "model.json"
    before = model.read_bytes()
    for path in (model, policy):
        done = program("check", model, "--policy", policy, "--junit", path, "--force")
        assert done.code == 2
        assert "is an input" in done.err
    done = program("check", folder, "--policy", policy, "--markdown", model)
    assert done.code == 2
    assert "exists" in done.err
    for given in (folder, folder / "profile.CURATOR-ONLY.json"):
        for option in ("--junit", "--markdown"):
            done = program("check", folder, given, "--policy", policy, option, model, "--force")
            assert done.code == 2
            assert "in a folder of results" in done.err
    assert model.read_bytes() == before


def test_a_second_policy_is_refused_and_not_ignored(program, made, policy, tmp_path):
    out, weak = tmp_path / "o.xml", tmp_path / "weak.toml"
    weak.write_text("[guarantee]\nepsilon = 1000\n")
    for second in (("--policy", weak), (f"--policy={weak}",)):
        done = program("check", made / "profile", "--policy", policy, *second, "--junit", out)
        refused(done, out, "--policy | given twice")


def test_two_outputs_are_two_files(program, made, policy, tmp_path):
    out = tmp_path / "o"
    done = program("check", made / "profile", "--policy", policy, "--junit", out, "--markdown", out)
    refused(done, out, "name two files")


# -- expost verify ----------------------------------------------------------------------------------


def test_verify_prints_a_line_for_each_file(program, tmp_path):
    folder = tmp_path / "dossier"
    (folder / "figures").mkdir(parents=True)
    files = {"a.json": "a", "b.json": "b", "figures/c.png": "c"}
    for name, text in files.items():
        (folder / name).write_text(text)
    write_manifest(folder, files)
    done = program("verify", folder)
    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()] == [["ok", name] for name in files]
    (folder / "b.json").write_text("B")
    (folder / "figures" / "c.png").unlink()
    (folder / "d.json").write_text("d")
    done = program("verify", folder)
    assert done.code == 3
    assert [line.split() for line in done.out.splitlines()] == [
        ["ok", "a.json"],
        ["changed", "b.json"],
        ["additional", "d.json"],
        ["missing", "figures/c.png"],
    ]
    listed = json.loads(program("verify", folder, "--json").out)
    assert listed["status"]["b.json"] == "changed"


def test_verify_refuses_a_folder_without_a_manifest(program, tmp_path):
    refused(program("verify", tmp_path), tmp_path / "o", "holds no manifest")
    refused(program("verify", tmp_path / "none"), tmp_path / "o", "none")


# -- a recorded run on real data --------------------------------------------------------------------


@pytest.mark.long
def test_the_gate_passes_and_fails_on_adult(program, tmp_path, monkeypatch):
    """One release of Adult, its audit, and two policies: one that it satisfies, one that it does not."""
    monkeypatch.chdir(tmp_path)
    table = load_adult().table.drop_columns(["split"])
    number = pyarrow.array(np.arange(table.num_rows))
    table = table.append_column("number", number)
    pyarrow.csv.write_csv(table.slice(0, 4_000), "adult.csv")
    pyarrow.csv.write_csv(table.slice(4_000, 4_000), "others.csv")
    common = ("adult.csv", "--target", "income", "--id", "number")
    assert program("profile", *common, "--epsilon", 1, "--out", "report").code == 0
    attacked = ("--model", "report/model.json", "--holdout", "others.csv", "--references", 8)
    assert program("audit", *common, *attacked, "--out", "audit").code == 0
    limits = """[guarantee]\nepsilon = {}\ndelta = 1e-5
[rows]\ncertainty = {}\nquantiles = [{{ share = 0.99, certainty = 0.7 }}]
[utility]\nauc = 0.7
[attacks]\nrequired = ["lira-online", "rmia-online"]\nauc = 0.6
[evidence]\nage = 30\n"""
    Path("pass.toml").write_text(limits.format(1, 0.75))
    Path("fail.toml").write_text(limits.format(0.5, 0.501))
    ledger = "adult.ledger.CURATOR-ONLY.json"
    runs = {
        "passing": ("report", "audit", "--policy", "pass.toml"),
        "failing": ("report", "audit", "--policy", "fail.toml"),
        "not answerable": ("report", "--policy", "pass.toml"),
        "one-liner": ("report/model.json", ledger, "--fail-on", "composed_epsilon>1.5"),
    }
    figures = {}
    for name, arguments in runs.items():
        done = program("check", *arguments, "--junit", "o.xml", "--markdown", "o.md", "--force")
        figures[name] = {
            "command": " ".join(("expost check", *arguments)),
            "exit_code": done.code,
            "printed": done.out.splitlines(),
        }
    codes = {name: run["exit_code"] for name, run in figures.items()}
    assert codes == {"passing": 0, "failing": 3, "not answerable": 4, "one-liner": 0}
    evidence.record(
        "gate",
        command="pytest -m long tests/test_cli_check.py",
        seed=None,
        figures={"rows": 4_000, "runs": figures},
    )
