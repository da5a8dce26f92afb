"""Write the tables of options in docs/cli.md from the requests of the commands.

python tools/docs_options.py [--check]
"""

import argparse
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from typer.main import get_command  # noqa: E402 (needs the path)

from expost.cli.app import app  # noqa: E402 (needs the path)
from expost.jobs import requests  # noqa: E402 (needs the path)
from expost.jobs.options import flag_of, options_of  # noqa: E402 (needs the path)

PAGE = ROOT / "docs" / "cli.md"
START, END = "<!-- options: begin (tools/docs_options.py) -->", "<!-- options: end -->"


def main() -> None:
    """Write the page, or with --check fail if it is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text()
    new = with_tables(page)
    if parser.parse_args().check and new != page:
        raise SystemExit(f"{PAGE}: is not up to date; run python tools/docs_options.py")
    PAGE.write_text(new)


def with_tables(page: str) -> str:
    """Return the page with the tables between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """Return a table of options for each command, in the order of the help."""
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    return "\n".join(_table(name, command) for name, command in commands.items())


def _table(name: str, command: Any) -> str:
    request = getattr(requests, f"{name.capitalize()}Request")
    options, items = options_of(request), {item.name: item for item in fields(request)}
    lines = [f"### expost {name}", "", "| option | | default |", "|---|---|---|"]
    for parameter in command.params:
        if parameter.name in options:
            option = options[parameter.name]
            flag = flag_of(parameter.name, option)
            value = f" {option.metavar}" if option.panel is not None and option.metavar else ""
            text = f"`{flag}{value}` | {option.help}"
            lines.append(f"| {text} | {_default(option, items[parameter.name])} |")
    return "\n".join([*lines, ""])


def _default(option: Any, item: Any) -> str:
    if item.default is MISSING:
        return "required" if option.default is None else option.default
    if option.default is not None:
        return str(option.default)
    if item.default is None or item.default is False or item.default == ():
        return ""
    return f"`{item.default:g}`" if isinstance(item.default, float) else f"`{item.default}`"


if __name__ == "__main__":
    main()
