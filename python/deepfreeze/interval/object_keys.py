"""Keys for an object store that a program brings itself, for example from boto3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

_SECONDS_MAX = 2**33  # the year 2242; milliseconds are beyond it

# Access key, secret key, session token, end in seconds since 1970 (UTC); None: not known.
KeysForm = tuple[str, str, str, float | None]


def asking_for_keys(credentials: Callable[[], object]) -> Callable[[], KeysForm]:
    """The function that the native engine calls, in threads of its own."""
    return lambda: keys_form(credentials())


def keys_form(given: object) -> KeysForm:
    """From a mapping, or from an object with these attributes, such as boto3's credentials.

    TypeError for anything else; its message has no values, which may be secrets.
    """
    token = _member(given, "session_token") or _member(given, "token") or ""
    keys = (_member(given, "access_key"), _member(given, "secret_key"), token)
    if not all(isinstance(key, str) for key in keys):
        raise TypeError(
            f"credentials: a {type(given).__name__} has no access_key and secret_key, or one of "
            "them, or session_token, is no str"
        )
    return (*keys, _seconds(_member(given, "expires")))


def _member(given: object, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _seconds(expires: Any) -> float | None:
    if expires is None:
        return None
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise TypeError("credentials: the datetime of `expires` has no time zone")
        return expires.timestamp()
    if isinstance(expires, (int, float)):
        if not 0 <= expires < _SECONDS_MAX:
            raise ValueError("credentials: `expires` is no time in seconds since 1970")
        return float(expires)
    raise TypeError(
        f"credentials: `expires` is a {type(expires).__name__}, and neither a datetime nor seconds"
    )
