"""Text that anyone may have written, as a terminal may show it: the one way there, for every command.

A title, a column, a file or an error of another party's may hold escape sequences that move the cursor, set a
window's title or write to the clipboard, marks that turn the direction of writing, line ends that make one
entry look like two, and halves of characters that no encoding takes.
"""

LENGTH_MAX = 2000
"""Most characters of one line that are shown."""


def printable(text: object) -> str:
    """Return one line of bounded length: a space in the place of every character that is not printed.

    Not printed are control characters, formatting ones (directions, joiners), line ends, separators other
    than the space, unassigned and private code points, and lone surrogates.
    """
    return "".join(c if c.isprintable() else " " for c in str(text)[:LENGTH_MAX])


def printable_lines(text: object) -> str:
    """Return lines, each as :func:`printable` gives it; for text whose line ends are our own."""
    return "\n".join(printable(line) for line in str(text).split("\n"))
