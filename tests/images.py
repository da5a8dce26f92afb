"""A Dockerfile executed without a daemon: each stage is a copy-on-write view of this machine.

The base image is the one thing that differs: a stage starts from the root folder of this machine and
its Python, not from the image that FROM names. Everything else is done as written: COPY with the
exceptions of .dockerignore, RUN in a chroot, ENV, WORKDIR, USER, ENTRYPOINT. It needs root, and a
kernel that mounts overlays.

    unshare --mount python tests/images.py CONTEXT SCRATCH -- ARGUMENT… [-- ARGUMENT…]…

builds the image with its build arguments from the environment, runs its entry point once for each list of arguments, and prints one JSON object
with the user and the exit codes.
"""

import glob
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# What an index or a proxy of this machine needs; an image gets nothing else from outside.
PASSED = re.compile(r"^(PIP_|SSL_|REQUESTS_|https?_proxy|no_proxy)", re.IGNORECASE)


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line)
    ]


def allowed(ignore: str, path: str) -> bool:
    """Whether a .dockerignore that excludes everything has an exception for the path."""
    lines = [line for line in ignore.splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    return any(line == f"!{path.rstrip('/')}" for line in lines)


@dataclass
class Stage:
    """One stage: its root folder, and what its instructions have set."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    entry: list[str] = field(default_factory=list)

    def inside(self, path: str) -> Path:
        return self.root / os.path.normpath(os.path.join(self.folder, path)).lstrip("/")

    def run(self, command: list[str]) -> subprocess.CompletedProcess:
        """Run a command in the root folder of the stage, as its user."""
        account = self.account()

        def enter() -> None:
            os.chroot(self.root)
            os.chdir(self.folder)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

        passed = {name: text for name, text in os.environ.items() if PASSED.search(name)}
        own = {"PATH": BASE_PATH, "HOME": account.pw_dir, **passed, **self.environment}
        return subprocess.run(command, env=own, preexec_fn=enter, capture_output=True, text=True)

    def account(self) -> pwd.struct_passwd:
        for line in (self.root / "etc/passwd").read_text().splitlines():
            name, password, uid, gid, *rest = line.split(":")
            if name == self.user:
                return pwd.struct_passwd((name, password, int(uid), int(gid), *rest))
        raise LookupError(self.user)


# `python` of a stage is the interpreter behind this one.
BASE_PATH = os.pathsep.join([f"{sys.base_prefix}/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def start(scratch: Path, number: int) -> Stage:
    """Return a new stage: an overlay over the root folder of this machine."""
    upper, work, root = (scratch / f"{name}{number}" for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir(parents=True)
    layers = f"lowerdir=/,upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root)], check=True)
    subprocess.run(["mount", "--rbind", "/dev", str(root / "dev")], check=True)
    # The interpreter may be in a folder that only root can enter: not so in an image.
    base = Path(sys.base_prefix)
    for folder in (base, *base.parents):
        inside = root / folder.relative_to("/")
        inside.chmod(inside.stat().st_mode | 0o055)
    (root / "tmp").chmod(0o1777)
    return Stage(root=root)


def copy(stage: Stage, stages: dict[str, Stage], context: Path, rest: str) -> None:
    words = rest.split()
    source = stages[words.pop(0).partition("=")[2]].root if words[0].startswith("--from=") else None
    *names, target = words
    for name in names:
        if source is None:
            assert allowed((context / ".dockerignore").read_text(), name), name
            path = context / name
        else:
            path = source / name.lstrip("/")
        destination = stage.inside(target)
        if path.is_dir():
            leave_out = shutil.ignore_patterns("__pycache__", "*.CURATOR-ONLY.*")
            shutil.copytree(path, destination, symlinks=True, dirs_exist_ok=True, ignore=leave_out)
        else:
            destination = destination / path.name if target.endswith("/") else destination
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, destination)


def build(context: Path, scratch: Path) -> Stage:
    """Execute the Dockerfile of a folder; return its last stage."""
    stages: dict[str, Stage] = {}
    stage = None
    for word, rest in instructions((context / "Dockerfile").read_text()):
        if word == "FROM":
            stage = start(scratch, len(stages))
            stages[rest.partition(" AS ")[2] or str(len(stages))] = stage
            continue
        assert stage is not None
        if word == "COPY":
            copy(stage, stages, context, rest)
        elif word == "RUN":
            done = stage.run(["/bin/sh", "-c", rest])
            assert done.returncode == 0, (rest, done.stdout, done.stderr)
        elif word == "ARG":
            name, _, text = rest.partition("=")
            stage.environment[name] = os.environ.get(name, text)
        elif word == "ENV":
            name, _, text = rest.partition("=")
            stage.environment[name] = text.replace("$PATH", BASE_PATH)
        elif word == "WORKDIR":
            stage.folder = rest
            stage.inside(".").mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            stage.user = rest
        elif word == "ENTRYPOINT":
            stage.entry = json.loads(rest)
        else:
            assert word in ("CMD", "VOLUME"), word
    assert stage is not None
    return stage


def main() -> None:
    context, scratch = map(Path, sys.argv[1:3])
    stage = build(context, scratch)
    results = []
    for arguments in " ".join(sys.argv[4:]).split(" -- "):
        done = stage.run([*stage.entry, *arguments.split()])
        results.append({"code": done.returncode, "out": done.stdout, "err": done.stderr})
    owner = {Path(p).name: os.stat(p).st_uid for p in glob.glob(str(stage.inside("*")))}
    print(
        json.dumps(
            {"user": stage.user, "uid": stage.account().pw_uid, "runs": results, "files": owner}
        )
    )


if __name__ == "__main__":
    main()
