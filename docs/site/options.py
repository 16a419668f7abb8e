"""The page of every option, written from the command itself."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tacit.command.app import command_tree

EVERYWHERE = {"--json", "--help"}
"""Options of every verb, said once."""


def verbs_of(group: Any, name: str = "tacit") -> Iterator[tuple[str, Any]]:
    """Yield every verb with its full name, in the order of the command's own help."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs_of(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def literal(text: str) -> str:
    """Return reStructuredText that shows a text as it is."""
    return "".join(f"\\{c}" if c in "\\*`|_" else c for c in " ".join(text.split()))


def parameter_lines(parameter: Any) -> list[str]:
    """Return one argument or option as an item of a definition list."""
    is_option = parameter.param_type_name == "option"
    name = ", ".join(parameter.opts + parameter.secondary_opts) if is_option else parameter.name.upper()
    default = parameter.default if isinstance(parameter.default, str | int | float) else None
    facts = [
        "required" if parameter.required and not parameter.envvar else "",
        "may be given many times" if getattr(parameter, "multiple", False) else "",
        f"default {default}" if default not in (None, "", False) else "",
        f"or the variable {parameter.envvar}" if parameter.envvar else "",
    ]
    said = "; ".join(fact for fact in facts if fact)
    help_text = literal(getattr(parameter, "help", None) or "")
    return [f"``{name}``", f"   {help_text}{f' ({literal(said)})' if said else ''}".rstrip() or "   \\ ", ""]


def options_text() -> str:
    """Return the page's body in reStructuredText: a section for each verb."""
    lines: list[str] = []
    for name, command in verbs_of(get_command(command_tree())):
        lines += [name, "-" * len(name), "", literal((command.help or "").split("\f")[0]), ""]
        for parameter in command.params:
            if not EVERYWHERE & set(parameter.opts):
                lines += parameter_lines(parameter)
    return "\n".join(lines) + "\n"
