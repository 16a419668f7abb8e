"""What `init` refuses to write: a file with which no service and no command could work."""

import math
import re

from tacit.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_KEY = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")


def require_name(name: str, what: str = "a name") -> None:
    """Raise InputError where this is no name of a party or a data set."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{what} has small letters, digits, '.', '_' and '-', and begins with a letter or digit"
        )


def require_address(url: str, key: str, whose: str) -> None:
    """Raise InputError where a tester's or a curator's URL or public key cannot be one."""
    from tacit.transport import require_private  # noqa: PLC0415 (the HTTP library loads when needed)

    if not _URL.fullmatch(url):
        raise InputError(f"the {whose}'s URL must look like https://{whose}.example")
    require_private(url, insecure_plain_http=False)
    if not _KEY.fullmatch(key):
        raise InputError(
            f"the {whose}'s key is 64 hexadecimal digits in small letters: its operator's init printed it"
        )


def require_caps(epsilon: float, delta: float, what: str) -> None:
    """Raise InputError where these are no epsilon and delta."""
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon {what} must be a number above 0, such as 3")
    if not 0 <= delta < 1:
        raise InputError(f"delta {what} must be at least 0 and below 1, such as 3e-5")


def require_part(part: float | None, what: str) -> None:
    """Raise InputError where this is no part of one; None is left to what may run."""
    if part is not None and not 0 <= part <= 1:
        raise InputError(f"{what} is a part of epsilon: a number from 0 to 1, such as 0.5")
