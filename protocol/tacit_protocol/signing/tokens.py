"""Request tokens: self-signed EdDSA JSON Web Tokens (RFC 7519, RFC 8037) that live one minute.

A token says "the holder of this key is asking this service now", nothing more: whether the key is known,
and what it may do, is the service's affair. It travels under TLS; what it allows is idempotent.
"""

import secrets
from typing import Any

import jwt

from tacit_protocol.signing.keys import PrivateKey, SignatureError, load_public_key

LIFE_S = 60
"""A token's life: long enough for one request, short enough that a leaked one is soon worthless."""

LEEWAY_S = 30
"""How far the clocks of two institutions may differ."""

TOKEN_LENGTH_MAX = 2048
"""A token has about 400 characters; a longer one is not read."""

ALGORITHM = "EdDSA"
CLAIMS = {
    "iss": "the caller's public key",
    "aud": "the service that is asked",
    "iat": "the caller's clock, in whole seconds",
    "exp": "a minute later",
    "jti": "sixteen random bytes",
}
"""What a token says. None of it depends on data."""


class TokenError(SignatureError):
    """The token is not valid here and now. The text is constant."""


def issue_token(key: PrivateKey, audience: str, now: int) -> str:
    """Sign a token for one service, valid for :data:`LIFE_S` seconds from ``now`` (Unix seconds)."""
    claims = {
        "iss": key.public_hex,
        "aud": audience,
        "iat": now,
        "exp": now + LIFE_S,
        "jti": secrets.token_hex(16),
    }
    return jwt.encode(claims, key.ed25519, algorithm=ALGORITHM)


def verify_token(token: str, audience: str, now: int) -> str:
    """Return the public key (hex) that signed the token for this audience.

    The caller decides whether that key is known.

    Raises:
        TokenError: malformed, forged, for another audience, of another algorithm, expired or not yet valid.
    """
    if len(token) > TOKEN_LENGTH_MAX:
        raise TokenError("the token is too long")
    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        public_key = load_public_key(issuer if isinstance(issuer, str) else "")
        # The clock is passed in, so times are checked below rather than by the library.
        claims = jwt.decode(
            token,
            public_key,
            algorithms=[ALGORITHM],
            audience=audience,
            options={"require": list(CLAIMS), "verify_exp": False, "verify_iat": False, "verify_nbf": False},
        )
    except (jwt.InvalidTokenError, SignatureError, ValueError, RecursionError):
        raise TokenError("the token is not valid for this service") from None
    _check_times(claims, now)
    return str(issuer)


def _check_times(claims: dict[str, Any], now: int) -> None:
    issued, expires = claims["iat"], claims["exp"]
    if type(issued) is not int or type(expires) is not int:
        raise TokenError("the token's times are not whole seconds")
    if not 0 < expires - issued <= LIFE_S:
        raise TokenError("the token's life is too long")
    if now > expires + LEEWAY_S:
        raise TokenError("the token has expired")
    if now < issued - LEEWAY_S:
        raise TokenError("the token is not valid yet")
