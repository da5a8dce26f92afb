"""``expost check`` and ``expost verify``: results compared with a policy, files with a manifest.

Standard output, JUnit XML and Markdown may end up in build logs: they hold verdicts and limits, and
measured values only where those are public. JUnit and Markdown keep the names that the caller gave
them, because a pipeline looks for these names; their mode follows the audience of the check.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from expost.errors import InvalidInput
from expost.files.atomic import is_same_file, write_bytes
from expost.files.manifest import FileStatus, Salts, manifest_in, verify_manifest
from expost.jobs.requests import CheckRequest, VerifyRequest
from expost.notices import listed
from expost.policy import Policy, PolicyCheck, Verdict, check
from expost.report import page_of, render_markdown, render_text

__all__ = ["junit", "lines", "run", "verified"]


def run(request: CheckRequest) -> tuple[PolicyCheck, dict[str, Path]]:
    """Return the verdicts, and the files that were written."""
    policy = _policy(request)
    outputs = {"junit": request.junit, "markdown": request.markdown}
    named = {name: path for name, path in outputs.items() if path is not None}
    for name, path in named.items():
        _check_output(f"--{name}", path, request)
    if len({path.resolve() for path in named.values()}) < len(named):
        raise InvalidInput(f"--markdown {str(request.markdown)!r}: is --junit too; name two files.")
    outcome = check(request.paths, policy)
    contents = {"junit": junit(outcome), "markdown": render_markdown(page_of(outcome))}
    files = {
        name: write_bytes(path, outcome.audience, contents[name].encode())
        for name, path in named.items()
    }
    return outcome, files


def _policy(request: CheckRequest) -> Policy:
    stated = Policy.of(*request.fail_on) if request.fail_on else None
    if request.policy is not None:
        return Policy.load(request.policy).merged(stated)
    if stated is None:
        raise InvalidInput(
            "--policy: state the limits in a policy.toml, or one limit with --fail-on 'epsilon>1'."
        )
    return stated


def _check_output(flag: str, path: Path, request: CheckRequest) -> None:
    """Refuse to write over a result or, without --force, over any file."""
    inputs = [*request.paths, *([] if request.policy is None else [request.policy])]
    if any(is_same_file(path, each) for each in inputs):
        raise InvalidInput(f"{flag} {str(path)!r}: is an input; name another file.")
    if path.exists() and not request.force:
        raise InvalidInput(
            f"{flag} {str(path)!r}: exists; name another file, or pass --force to write over it."
        )
    if path.exists() and any(is_same_file(path.parent, each) for each in request.paths):
        raise InvalidInput(
            f"{flag} {str(path)!r}: is in a folder of results; name a file in another folder."
        )
    if not path.absolute().parent.is_dir():
        raise InvalidInput(f"{flag} {str(path)!r}: its folder does not exist; create it.")


def lines(outcome: PolicyCheck, *, curator: bool) -> str:
    """Return what the command prints; curator-only values only on request."""
    return render_text(page_of(outcome, curator=curator))


def junit(outcome: PolicyCheck) -> str:
    """Return the verdicts as JUnit XML: a violated limit fails, an unanswered one is an error."""
    counts = {verdict: len(outcome.of(verdict)) for verdict in Verdict}
    totals = {
        "tests": str(len(outcome.findings)),
        "failures": str(counts[Verdict.VIOLATED]),
        "errors": str(counts[Verdict.NOT_ANSWERABLE]),
    }
    suites = ElementTree.Element("testsuites", {"name": "expost check", **totals})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "policy", **totals})
    tags = {Verdict.VIOLATED: "failure", Verdict.NOT_ANSWERABLE: "error"}
    for finding in outcome.findings:
        fields = finding.fields()
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": fields["key"], "name": fields["text"]}
        )
        remarks = [fields["reason"]] if fields["reason"] else []
        if "measured" in fields:
            remarks.append(f"measured: {fields['measured']}")
        if finding.verdict in tags:
            named = {"type": finding.verdict.value, "message": fields["text"]}
            part = ElementTree.SubElement(case, tags[finding.verdict], named)
            part.text = "; ".join(remarks)
        elif remarks:
            ElementTree.SubElement(case, "system-out").text = "; ".join(remarks)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The files of a folder, compared with its manifest."""

    manifest: Path
    files: tuple[FileStatus, ...]

    @property
    def holds(self) -> bool:
        """Whether all files are listed and unchanged; a result may be not checked."""
        return all(file.status in ("ok", "not checked") for file in self.files)

    def lines(self) -> list[str]:
        """Return one line for each file and result, and what was not checked."""
        lines = [f"{file.status:<11}  {file.name}" for file in self.files]
        unchecked = [file.name for file in self.files if file.status == "not checked"]
        if unchecked:
            lines.append(
                f"Not checked: {listed(unchecked)}. The results are compared where"
                f" {Salts.NAME} is in the folder."
            )
        return lines


def verified(request: VerifyRequest) -> Verified:
    """Compare the files of a folder with its manifest."""
    for result in request.results:
        if not result.exists():
            raise InvalidInput(f"results: {str(result)!r} does not exist; name it where it is.")
    path = manifest_in(request.folder)
    return Verified(manifest=path, files=verify_manifest(request.folder, request.results))
