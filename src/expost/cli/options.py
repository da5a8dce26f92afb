"""Commands from requests: the fields of a dataclass become the options of a command."""

import inspect
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperOption

from expost.jobs.options import Option, flag_of, options_of

if TYPE_CHECKING:
    from expost.jobs.requests import Request

__all__ = ["add_command", "with_values"]

# The values that options mean which are given without one.
_ALONE: dict[str, str] = {}

_Request = TypeVar("_Request", bound="Request")


def add_command(
    app: typer.Typer,
    name: str,
    request: type[_Request],
    run: Callable[[_Request], None],
    *,
    panel: str,
) -> None:
    """Register ``run`` as a command whose options are the fields of ``request``."""
    hints, options = get_type_hints(request), options_of(request)
    _ALONE.update(
        {flag_of(key, item): item.alone for key, item in options.items() if item.alone is not None}
    )
    items = {item.name: item for item in fields(request)}

    def call(context: typer.Context, **values: Any) -> None:
        source = context.get_parameter_source
        stated = tuple(name for name in values if str(getattr(source(name), "name", "")) == _GIVEN)
        given = {name: _value(options[name], name, values[name]) for name in stated}
        if "out" in options and _is_new(items["out"], options["out"]) and "out" not in given:
            from expost.jobs.output import default_folder

            given["out"] = default_folder(name, resume=given.get("resume", False))
        run(request(**given, stated=stated))

    parameters = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_annotation(item, options[item.name], hints[item.name]),
            default=_default(item, options[item.name]),
        )
        for item in (items[name] for name in options)
    ]
    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    call.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in (first, *parameters)}
    call.__doc__ = inspect.getdoc(run)
    app.command(name, cls=_Command, rich_help_panel=panel)(call)


class _Command(TyperCommand):
    """A command that answers an unknown option with the one that was meant.

    It refuses a second value of an option: the first one would be ignored.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        given = [*args]
        try:
            rest = super().parse_args(ctx, args)
            _, _, order = self.make_parser(ctx).parse_args(args=given)
            for each in self.params:
                single = isinstance(each, TyperOption) and not (each.multiple or each.is_flag)
                if single and order.count(each) > 1:
                    hint = f"'{each.opts[0]}'"
                    raise typer.BadParameter("is given twice; state it once.", param_hint=hint)
            return rest
        except Exception as error:
            if hasattr(error, "possibilities") and hasattr(error, "option_name"):
                from expost._checks import closest

                flags = {flag.strip("-"): flag for each in self.params for flag in each.opts}
                meant = closest(error.option_name.strip("-"), flags)
                error.possibilities = None if meant is None else [flags[meant]]
            raise


def with_values(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of the program with a value for each option that may stand alone.

    What follows such an option is its value if it is a number.
    """
    complete: list[str] = []
    for index, argument in enumerate(arguments):
        complete.append(argument)
        value = _ALONE.get(argument)
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if value is not None and not re.fullmatch(r"[+-]?[\d.]\S*|nan|inf", following):
            complete.append(value)
    return complete


# The source of an option that was typed, not left at its default.
_GIVEN = "COMMANDLINE"


def _is_new(item: Field[Any], option: Option) -> bool:
    """Return whether the command line has a default for a field that has none."""
    return item.default is MISSING and option.default is not None


def help_of(item: Field[Any], option: Option) -> str:
    """Return the help of an option with its default."""
    default = option.default
    if default is None and isinstance(item.default, str | int | float | Path):
        default = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    if default is None or isinstance(item.default, bool):
        return option.help
    named = re.compile(rf"(?<!\S){re.escape(default)}(?=[\s:,.]|$)")
    if default[0].isalpha() and named.search(option.help):
        # The help explains the default: mark it there.
        return named.sub(f"{default} (default)", option.help, count=1)
    text = option.help.removesuffix(".")
    if text.endswith("(repeatable)"):
        return f"{text.removesuffix(')')}; default: {default})."
    return f"{text} (default: {default})."


def _annotation(item: Field[Any], option: Option, hint: Any) -> Any:
    """Return the type and the description of a parameter, as typer takes them."""
    kind = str if option.read is not None else option.kind or hint
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    if item.default is None or _is_new(item, option):
        kind = kind | None
    # Typer would print every default on a line of its own.
    described: dict[str, Any] = {
        "metavar": option.metavar,
        "help": help_of(item, option),
        "show_default": False,
    }
    if option.choices:
        described["autocompletion"] = _completion(option)
    if option.panel is None:
        return Annotated[kind, typer.Argument(**described)]
    flag = flag_of(item.name, option)
    return Annotated[kind, typer.Option(flag, rich_help_panel=option.panel, **described)]


def _default(item: Field[Any], option: Option) -> Any:
    """Return the default of a field on the command line."""
    if item.default is MISSING:
        return None if _is_new(item, option) else inspect.Parameter.empty
    if isinstance(item.default, tuple):
        return list(item.default)
    if option.read is not None and isinstance(item.default, float):
        return f"{item.default:g}"
    return item.default


def _completion(option: Option) -> Callable[[str], list[str]]:
    """Return the completion of choices and entry points, which are not imported."""

    def matching(incomplete: str) -> list[str]:
        from importlib.metadata import entry_points

        added = () if option.plug_ins is None else entry_points(group=option.plug_ins).names
        known = option.choices() if callable(option.choices) else option.choices
        return [name for name in (*known, *sorted(added)) if name.startswith(incomplete)]

    return matching


def _value(option: Option, name: str, value: Any) -> Any:
    """Return the value of a field from that of the command line."""
    if option.read is not None:
        try:
            return option.read(value)
        except ValueError as error:
            hint = f"'{flag_of(name, option)}'"
            raise typer.BadParameter(str(error), param_hint=hint) from None
    return tuple(value) if isinstance(value, list) else value
