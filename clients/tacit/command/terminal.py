"""Questions to the person at the terminal."""

from tacit.command.output import lines
from tacit.errors import InputError
from tacit_protocol.terminal import printable


class Terminal:
    """Says and asks, a line at a time."""

    def say(self, *texts: str) -> None:
        """Print lines."""
        lines(*texts)

    def ask(self, question: str, default: str | None = None) -> str:
        """Return the answer, or the default where it is empty.

        Raises:
            InputError: the input ended.
        """
        offered = f" [{printable(default)}]" if default else ""
        try:
            answer = input(f"{printable(question)}{offered}: ").strip()
        except EOFError:
            raise InputError("the answers ended before the study was whole; nothing was sent") from None
        return answer or (default or "")

    def agreed(self, question: str) -> bool:
        """Ask for a yes; anything else is a no."""
        return self.ask(f"{question} (yes or no)", "no").lower() in {"y", "yes"}
