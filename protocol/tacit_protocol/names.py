"""Names that people read and compare: when two of them are the same but for capitals."""

from string import ascii_lowercase, ascii_uppercase

_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def folded(name: str) -> str:
    """Return a name with its letters A to Z made small, and nothing else changed.

    Unicode's own small letters would make two names one that are written differently: the Kelvin sign
    becomes a ``k``.
    """
    return name.translate(_SMALL)
