"""``expost dossier``: the page, Markdown and JSON of a dossier, public results, and a manifest.

Only public results are copied. Others hold rows or figures of rows, which stay where they are: the
manifest commits to every result, and a curator-only dossier names them with their checksums.
"""

import json
from pathlib import Path

from expost.dossier import Dossier, make_dossier
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.files.manifest import NAMES, Salts, write_manifest
from expost.jobs.output import NOTHING_LEFT, check_page_folder, made_now, writing
from expost.jobs.requests import DossierRequest
from expost.jobs.workspace import Workspace, held
from expost.report import Context, page_of, render_html, render_markdown
from expost.types import Audience

__all__ = ["run"]


def run(request: DossierRequest) -> tuple[Dossier, dict[str, Path]]:
    """Return the dossier, and the files that were written."""
    check_page_folder(request.out, force=request.force)
    for path in request.paths:
        if path.resolve() == request.out.resolve():
            raise InvalidInput(
                f"out={str(request.out)!r}: is a folder of results; name another folder."
            )
    dossier = make_dossier(
        request.paths,
        context=request.deployment,
        audience=request.audience,
        baseline=request.baseline,
    )
    inputs = [file.path for file in dossier.files]
    with held(request.out, force=request.force, inputs=inputs, page=True) as workspace:
        return dossier, _store(workspace, dossier)


def _store(workspace: Workspace, dossier: Dossier) -> dict[str, Path]:
    """Write all files, or none; the manifest last."""
    out, audience = workspace.out, dossier.audience
    page = page_of(dossier, context=Context(made=made_now()))
    fields = json.dumps(dossier.fields(), indent=1, ensure_ascii=False, allow_nan=False)
    contents = {"report": ("html", render_html(page)), "text": ("md", render_markdown(page))}
    contents["figures"] = ("json", fields)
    files: dict[str, Path] = {}
    with writing(out, NOTHING_LEFT), workspace.all_or_none():
        for name, (suffix, content) in contents.items():
            path = out / audience.file_name("dossier", suffix)
            files[name] = write_bytes(path, audience, content.encode())
        for file in dossier.copies:
            name = file.kind.partition(" ")[0]
            files[name] = write_bytes(out / file.copy, Audience.PUBLIC, file.content)
        workspace.remove(NAMES)
        files["manifest"] = write_manifest(
            out, [path.name for path in files.values()], results=dossier.results
        )
        files["salts"] = out / Salts.NAME
        workspace.remove_results(keep=files.values())
    return files
