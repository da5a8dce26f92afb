"""An option is declared once: Python and the command line have the same names and defaults."""

import importlib.util
import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.main import get_command

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge, data
from expost.cli.app import app
from expost.conformance import Claims, conform
from expost.dossier import make_dossier
from expost.errors import InvalidInput
from expost.jobs import requests
from expost.jobs.options import Option, flag_of, options_of
from expost.jobs.requests import (
    AuditRequest,
    ConformRequest,
    DossierRequest,
    EpsilonRequest,
    ForgetRequest,
    ProfileRequest,
    PublishRequest,
    RiskRequest,
)
from expost.jobs.requests.base import MISSING as MISSING_CELLS
from program import refused
from runs import PERSON, make_release

REQUIRED = "required"
# Fields whose name in Python is another, and why.
RENAMED = {
    "id_column": "ids",  # also a sequence of keys in Python
    "person_column": "persons",  # also a sequence of persons in Python
    "seed": "random_state",  # the name of scikit-learn
}
# Flags of shared options that are not the name in Python, as docs/cli.md lists them.
FLAGS = {
    "--id": ("ids", "names a column; also a sequence of keys in Python"),
    "--person": ("persons", "names a column; also a sequence of persons in Python"),
    "--seed": ("random_state", "the name of scikit-learn"),
    "--group": ("groups", "repeatable: one column each time"),
    "--attack": ("attacks", "repeatable: one attack each time"),
    "--tpr": ("true_positive_rate", "short"),
    "--fpr": ("false_positive_rate", "short"),
}
# Commands without a function that has the same options, and why.
NO_FUNCTION = {
    "card": "the files are the result; expost.report has render_card",
    "check": "expost.policy.check takes a policy; the rest are files and exit codes",
    "demo": "data that is there",
    "doctor": "an installation",
    "encoding": "a file to fill in; expost.data.Encoding reads it",
    "ledger": "methods of expost.Ledger",
    "lookup": "PublishedReport.bound takes a row of numbers, this one takes cells of a form",
    "report": "a page of stored results; expost.report has the parts",
    "verify": "expost.files.manifest.verify_manifest takes a folder alone",
}
# Options of the command line alone.
PROGRAM = {
    "as_json": "Python returns a result, and prints nothing",
    "curator_json": "to_dict(audience='curator-only') of the result",
    "open_page": "Python returns a result, and prints nothing",
    "log_json": "progress= takes an object that listens",
    "source": "X, y",
    "query": "X is a Query",
}
FOLDER = {
    "out": "the verb writes no files; the result has save()",
    "force": "the verb writes no files",
    "resume": "the verb writes no files",
    "ledger": "expost.Ledger lists a model",
}
TABLE = {
    "target": "y, or the model knows it",
    "id_column": "the result has the order of the rows",
    "drop": "X has the columns to use",
    "missing": "cells of a frame are missing or not",
}
# Parameters of Python alone.
PYTHON = {"X": "source", "y": "source", "progress": "--log-json and the bar"}
ARRAYS = {
    "fit_intercept": "a table always has one",
    "intercept_scaling": "a table always has one",
    "huber_width": "arrays only",
    "rows_per_person": "arrays only; --max-rows-per-person of profile",
    "ranges": "an encoding.json says the same",
    "estimator": "an object",
    "workers": "threads; OMP_NUM_THREADS and --engine local:4",
}
WITHOUT = "has no default in one of them"


def defaults_of(request: type) -> dict[str, object]:
    names = options_of(request)
    return {
        item.name: REQUIRED if item.default is MISSING else item.default
        for item in fields(request)
        if item.name in names
    }


def parameters_of(*functions) -> dict[str, object]:
    collected = {}
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            default = parameter.default
            collected.setdefault(name, REQUIRED if default is parameter.empty else default)
    return collected


VERBS = {
    "epsilon": (
        EpsilonRequest,
        (expost.choose_epsilon,),
        PROGRAM | {"picture": "choice.plot()"},
        PYTHON | ARRAYS,
        {"target": WITHOUT, "out": WITHOUT},
    ),
    "profile": (
        ProfileRequest,
        # A model is fitted, and then profiled.
        (expost.profile, PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge),
        PROGRAM
        | {name: TABLE[name] for name in ("target", "drop", "missing")}
        | {
            "ledger": FOLDER["ledger"],
            "loss": "one estimator for each loss",
            "max_rows_per_person": "rows_per_person of the estimator",
            "cap_rows": "X has the rows to use",
        },
        PYTHON
        | {name: ARRAYS[name] for name in ARRAYS if name not in ("estimator", "workers")}
        | {
            "relation": "arrays only",
            "candidates": "arrays only",
            "calibration": "the calibration of the papers, for comparisons",
            "publishing": "with regularization='for-publishing'; arrays only",
        },
        {"out": WITHOUT, "model": WITHOUT, "mechanism": "that of θ, or of the estimator"},
    ),
    "publish": (
        PublishRequest,
        (expost.publish,),
        PROGRAM | FOLDER | {name: TABLE[name] for name in ("target", "id_column")},
        PYTHON,
        {},
    ),
    "forget": (
        ForgetRequest,
        (expost.forget,),
        PROGRAM
        | {name: FOLDER[name] for name in ("out", "force", "resume")}
        | {"target": TABLE["target"], "id_column": "persons="}
        | dict.fromkeys(("engine", "memory"), "X is in memory"),
        {name: PYTHON[name] for name in ("X", "y")} | {"persons": "--id"},
        {"remove": "() or None: nothing is named", "insert": "() or None: nothing is named"},
    ),
    "audit": (
        AuditRequest,
        (expost.audit,),
        PROGRAM
        | {name: FOLDER[name] for name in ("out", "force", "resume")}
        | {name: TABLE[name] for name in ("target", "drop", "missing")}
        | {
            "holdout": "X_out, y_out",
            "estimator": "model is an object",
            "trust_pickle": "a parameter of expost.auditing.load_model",
            "trust_types": "a parameter of expost.auditing.load_model",
            "classes": "a parameter of what load_model returns",
            "arrays": "expost.auditing.audit.audit_arrays",
        },
        PYTHON
        | {
            "X_out": "--holdout",
            "y_out": "--holdout",
            "train": "a function",
            "regression": "read from the target",
            "exposure": "a profile, an object",
            "checkpoint": "--out and --resume",
        },
        {"model": WITHOUT, "groups": "columns by name, or names of columns"},
    ),
    "risk": (
        RiskRequest,
        (expost.identifiability,),
        {name: PROGRAM[name] for name in ("as_json", "curator_json", "open_page")}
        | {name: FOLDER[name] for name in ("out", "force")}
        | {"model": "subject", "plot": "answer.plot()"},
        {"subject": "MODEL"},
        {},
    ),
    "conform": (
        ConformRequest,
        (conform, Claims),
        {name: PROGRAM[name] for name in ("as_json", "open_page")}
        | {name: FOLDER[name] for name in ("out", "force")}
        | {"arrays": "expost.torch.conform, or that of expost.conformance"},
        {"claims": "the options of the claims", "seeded": "a function", "name": "TRAINER"},
        {"relation": "a Neighbouring, whose value it is"},
    ),
    "dossier": (
        DossierRequest,
        (make_dossier,),
        {name: PROGRAM[name] for name in ("as_json", "curator_json", "open_page")}
        | {name: FOLDER[name] for name in ("out", "force")}
        | {"deployment": "context="},
        {"context": "the field is called deployment"},
        {"audience": "an Audience, whose value it is"},
    ),
}


@pytest.mark.parametrize("command", sorted(VERBS))
def test_python_and_the_command_line_have_the_same_names_and_defaults(command):
    request, verbs, program_only, python_only, otherwise = VERBS[command]
    typed = {RENAMED.get(name, name): value for name, value in defaults_of(request).items()}
    alone = {RENAMED.get(name, name): why for name, why in program_only.items()}
    called = parameters_of(*verbs)
    shared = typed.keys() & called.keys()
    assert typed.keys() - shared == alone.keys()
    assert called.keys() - shared == python_only.keys()
    own = {each.name: RENAMED.get(each.name, each.name) for each in fields(request)}
    for field, option in options_of(request).items():
        flag = flag_of(field, option).partition("/")[0]
        if option.panel is not None and own[field] in shared:
            expected = "--" + own[field].replace("_", "-")
            assert flag == expected or FLAGS[flag][0] == own[field], (command, flag)
    differing = {name for name in shared if typed[name] != called[name]}
    assert differing == otherwise.keys()
    assert all([*alone.values(), *python_only.values(), *otherwise.values()]), "each has a reason"


def test_every_command_has_a_function_or_a_reason():
    assert VERBS.keys() | NO_FUNCTION.keys() == get_command(app).commands.keys()
    assert not VERBS.keys() & NO_FUNCTION.keys()


def test_the_page_lists_the_flags_with_another_name():
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()
    text = page.partition("## Options")[2].partition("<!-- options")[0]
    assert not [flag for flag in FLAGS if f"`{flag}`" not in text]
    assert not [name for name in NO_FUNCTION if f"`{name}`" not in text]


@pytest.mark.parametrize("command", ["epsilon", "profile"])
def test_the_estimators_have_the_defaults_of_their_options(command):
    request = VERBS[command][0]
    typed = {RENAMED.get(name, name): value for name, value in defaults_of(request).items()}
    for kind in (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge):
        for name, value in parameters_of(kind).items():
            assert typed.get(name, value) == value, (kind, name)


def test_every_field_of_every_command_is_an_option_with_the_same_default():
    program = get_command(app)
    for name, command in program.commands.items():
        request = request_of(name)
        options = options_of(request)
        parameters = {each.name: each for each in command.params if each.name in options}
        assert parameters.keys() == options.keys()
        for item in fields(request):
            if item.name in options:
                parameter, option = parameters[item.name], options[item.name]
                needed = item.default is MISSING and option.default is None
                assert parameter.required is needed, (name, item.name)
                flag = flag_of(item.name, option).partition("/")[0]
                assert flag in (*parameter.opts, option.metavar)
                assert option.help.endswith("."), (name, item.name)


def test_constants_that_are_written_twice_are_the_same():
    assert MISSING_CELLS == data.MISSING


def test_an_option_that_repeats_its_default_is_given():
    plain = ProfileRequest(source="x.csv", target="y", out="o")
    stated = ProfileRequest(source="x.csv", target="y", out="o", stated=("epsilon",))
    assert not plain.is_given("epsilon")
    assert stated.is_given("epsilon")
    assert ProfileRequest(source="x.csv", target="y", out="o", epsilon=2).is_given("epsilon")
    assert not ProfileRequest(
        source="x.csv", target="y", out="o", regularization="auto", stated=("regularization",)
    ).sets("regularization")


def test_the_page_of_the_command_line_has_the_options_as_they_are():
    path = Path(__file__).parent.parent / "tools" / "docs_options.py"
    spec = importlib.util.spec_from_file_location("docs_options", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text()
    assert tool.with_tables(page) == page, "run python tools/docs_options.py"


def test_an_option_is_described_without_typer():
    assert all(isinstance(item, Option) for item in options_of(EpsilonRequest).values())


# Every option that takes a value reaches its check -------------------------------------------------

# By its field: a value that no check passes, and what else must be given for it to matter.
# The checks themselves have tables of their own: test_validate.py, test_epsilon.py, data/, …
FOLDER_OPTIONS = {"out": "{folder}/people.csv"}
TABLE_OPTIONS = FOLDER_OPTIONS | {
    "source": "none.csv",
    "target": "wealth",
    "query": "people",
    "id_column": "nobody",
    "engine": "cloud",
    "memory": "much",
    "drop": "nobody",
    "encoding": "none.json",
    "data_norm": "nan",
    "classes": "yes",
    "label_range": "0,80",
    "mechanism": "nonsense",
    "noise": "uniform",
    "delta": "nan",
    "loss": "hinge",
    "regularization": "0",
    "margin": "-1",
    "seed": "-1",
}
NONSENSE = {
    "encoding": {
        "source": "none.csv --template",
        "encoding": "none.json",
        "target": "nobody --template",
        "id_column": "nobody --template",
        "drop": "nobody --template",
        "file": "no/x.json --template",
    },
    "demo": FOLDER_OPTIONS | {"epsilon": "nan", "ledger": "no/x.json"},
    "profile": TABLE_OPTIONS
    | {
        "epsilon": "nan",
        "private_encoding": "0",
        "model": "none.json",
        "person_column": "nobody",
        "max_rows_per_person": "0 --person city",
        "top": "-1 --epsilon inf",
        "ledger": "no/x.json",
    },
    "epsilon": TABLE_OPTIONS
    | {
        "max_posterior": "1",
        "prior": "0",
        "quantile": "0.2",
        "share": "1",
        "measure": "r2",
        "tolerance": "0",
        "rows": "nan",
        "epsilons": "-1",
        "models": "1",
        "folds": "1",
    },
    "publish": FOLDER_OPTIONS
    | {
        "source": "none.csv",
        "target": "city",
        "query": "people",
        "id_column": "nobody",
        "engine": "cloud",
        "memory": "much",
        "model": "none.json",
        "kind": "exact",
        "epsilon_gradient": "nan --kind data-dependent --epsilon-hessian 1",
        "epsilon_hessian": "nan --kind data-dependent --epsilon-gradient 1",
        "delta": "7 --kind data-dependent --epsilon-gradient 1 --epsilon-hessian 1",
        "failure_probability": "nan",
        "ledger": "no/x.json --kind data-dependent --epsilon-gradient 1 --epsilon-hessian 1",
    },
    "forget": FOLDER_OPTIONS
    | {
        "source": "none.csv",
        "target": "city",
        "query": "people",
        "id_column": "nobody",
        "remove": "kanarie",
        "insert": "kanarie --remove p001",
        "engine": "cloud",
        "memory": "much",
        "model": "none.json",
        "ledger": "no/x.json",
    },
    "audit": {
        "model": "none.json --holdout {table}",
        "estimator": "os.system",
        "arrays": "none.npz",
        **{
            name: f"{value} --estimator sklearn.tree.DecisionTreeClassifier"
            for name, value in {
                **FOLDER_OPTIONS,
                "source": "none.csv",
                "target": "wealth",
                "query": "people",
                "id_column": "nobody",
                "holdout": "none.csv",
                "population": "none.csv",
                "groups": "nobody",
                "drop": "nobody",
                "references": "-1",
                "attacks": "gossip",
                "delta": "2",
                "confidence": "nan",
                "seed": "-1",
                "workers": "0",
                "classes": "no,yes",
                "trust_types": "os.system",
                "propensity": "2",
            }.items()
        },
    },
    "lookup": FOLDER_OPTIONS | {"report": "none.json", "values": "height=3", "label": "rich"},
    "risk": FOLDER_OPTIONS
    | {
        "model": "none.json",
        "epsilon": "nan",
        "delta": "1 --epsilon 1",
        "mu": "-1",
        "noise_multiplier": "nan",
        "sampling_rate": "1.5 --noise-multiplier 1",
        "steps": "0 --noise-multiplier 1",
        "relation": "swap --noise-multiplier 1",
        "releases": "0 --epsilon 1",
        "max_posterior": "0.3",
        "advantage": "0",
        "true_positive_rate": "0.001",
        "one_in": "5",
        "rows": "-1 --features 2 --epsilon 1",
        "features": "-1 --rows 100 --epsilon 1",
        "prior": "0 --epsilon 1",
        "false_positive_rate": "nan --epsilon 1",
        "exceeded": "nan --epsilon 1",
        "baseline": "1/1 --epsilon 1",
        "plot": "risk.pdf --epsilon 1",
    },
    "ledger": FOLDER_OPTIONS | {"paths": "none.json", "add": "none.json", "delta": "nan"},
    "report": FOLDER_OPTIONS | {"paths": "none"},
    "check": {
        "paths": "none.json",
        "policy": "none.toml",
        "fail_on": "epsilon>=1",
        "junit": "none/o.xml",
        "markdown": "none/o.md",
    },
    "conform": {
        "trainer": "nowhere:step",
        "out": FOLDER_OPTIONS["out"],
        "arrays": "tables",
        "clip": "nan",
        "noise_multiplier": "nan",
        "sampling_rate": "1.5",
        "learning_rate": "nan",
        "divisor": "nan",
        "relation": "swap",
        "not_finite": "hidden",
        "norm_budget": "nan",
        "delta": "7",
        "false_alarm": "nan",
        "steps": "1",
    },
    "verify": {"folder": "none", "results": "{folder} missing-result"},
    "card": FOLDER_OPTIONS
    | {"paths": "none.json", "name": "a/b/c", "license": "GPL!", "baseline": "2"},
    "doctor": {},
    "dossier": FOLDER_OPTIONS
    | {
        "paths": "none",
        "deployment": "cloud",
        "audience": "everybody",
        "baseline": "2",
    },
}
# Options that take any text.
ANY_TEXT = {"missing"}
# What each command needs besides; an option that comes later counts.
NEEDED = {
    "encoding": "{table}",
    "profile": "{table} --target income",
    "epsilon": "{table} --target income",
    "publish": "{table} --target income --model {model}",
    "forget": "{table} --target income --model {model} --id number --remove p017",
    "audit": "{table} --target income",
    "lookup": "{report} {person}",
    "ledger": "{model}",
    "report": "{folder}/profile",
    "check": "{folder}/profile --fail-on epsilon>1",
    "card": "{model}",
    "conform": "os:getcwd --arrays numpy --clip 1 --noise-multiplier 1",
    "dossier": "{folder}/profile --context api",
}


def request_of(command):
    return next(
        kind for kind in vars(requests).values()
        if isinstance(kind, type) and kind.__name__.lower() == f"{command}request"
    )  # fmt: skip


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("released"))


@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command in NONSENSE for name in NONSENSE[command]]
)
def test_every_option_reaches_its_check(program, released, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    places = {
        "folder": released,
        "table": released / "people.csv",
        "model": released / "profile" / "model.json",
        "report": released / "published" / "report.json",
        "person": " ".join(PERSON),
    }
    option = options_of(request_of(command))[name]
    value, *more = NONSENSE[command][name].format(**places).split()
    needed = NEEDED.get(command, "").format(**places).split()
    if option.panel is None:
        given = [value, *needed[1:], *more]
    else:
        given = [*needed, flag_of(name, option), value, *more]
    done = program(command, *given)
    refused(done, tmp_path / "expost-profile", "")
    named = (flag_of(name, option), f"{name}=", f"{name}:", value.partition("=")[0])
    assert any(words in done.message for words in named), done.message
    assert not list(tmp_path.iterdir())


BEFORE_READING = (
    *("epsilon", "mechanism", "noise", "delta", "loss", "regularization", "margin", "seed"),
    *("data_norm", "label_range", "classes", "memory", "max_rows_per_person", "ledger", "out"),
    "top",
)


@pytest.mark.parametrize("command", ["profile", "epsilon"])
def test_what_no_table_can_make_right_is_refused_before_one_is_read(
    program, released, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    options = options_of(request_of(command))
    for name in BEFORE_READING:
        if name in NONSENSE[command]:
            words = NONSENSE[command][name].format(folder=released).split()
            needed = ("none.csv", "--target", "income")
            done = program(command, *needed, flag_of(name, options[name]), *words)
            assert (done.code, done.out) == (2, ""), name
            assert "none.csv" not in done.message, name


def test_every_option_with_a_value_is_among_them():
    for command in get_command(app).commands:
        kinds = get_type_hints(request_of(command))
        valued = {
            name
            for name in options_of(request_of(command))
            if kinds[name] not in (bool, bool | None)
        }
        assert valued - ANY_TEXT == NONSENSE[command].keys(), command


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("profile", "T", "--target", "incme"), "Did you mean 'income'?"),
        (("profile", "T", "--target", "Income"), "Did you mean 'income'?"),
        (("epsilon", "T", "--target", "income", "--drop", "ctiy"), "Did you mean 'city'?"),
        (("profile", "T", "--target", "income", "--loss", "logistc"), "Did you mean 'logistic'?"),
        (("profile", "T", "--targt", "income"), "(Possible options: --target)"),
        (("profile", "T", "--target", "income", "--mechanism", "objectve"), "'auto', 'output'"),
        (("profile", "T", "--target", "income", "--noise", "gausian"), "'auto', 'laplace'"),
        (
            (
                "audit",
                "T",
                "--target",
                "income",
                "--estimator",
                "sklearn.tree.DecisionTreClasifier",
            ),
            "Did you mean 'DecisionTreeClassifier'?",
        ),
        (("profle", "T"), "Did you mean 'profile'?"),
    ],
)
def test_a_wrong_name_gets_the_one_that_was_meant(
    program, people_csv, tmp_path, monkeypatch, words, meant
):
    monkeypatch.chdir(tmp_path)
    done = program(*(str(people_csv) if word == "T" else word for word in words))
    refused(done, tmp_path / "expost-profile", meant)


def test_a_name_like_no_other_gets_no_guess(program, people_csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = program("profile", people_csv, "--target", "zzz")
    refused(done, tmp_path / "expost-profile", "column 'zzz': is not in")
    assert "Did you mean" not in done.err
    done = program("profile", people_csv, "--target", "income", "--estimator", "x")
    refused(done, tmp_path / "expost-profile", "No such option: --estimator")
    assert "Possible" not in done.err


def test_python_guesses_too(people_csv):
    with pytest.raises(InvalidInput, match="Did you mean 'max_posterior'"):
        expost.choose_epsilon(str(people_csv), target="income", max_posteror=0.6)


def test_signatures_of_verbs_show_types_and_no_options_of_the_command_line():
    for name in expost.__all__:
        verb = getattr(expost, name)
        if inspect.isfunction(verb):
            assert "Option(" not in str(inspect.signature(verb)), name
    assert inspect.signature(expost.choose_epsilon).parameters["drop"].annotation == tuple[str, ...]
