"""df.tier(): a farther place on which checkpoints of a run are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from deepfreeze.base.arguments import absolute, is_object_url
from deepfreeze.interval.object_keys import KeysForm, asking_for_keys
from deepfreeze.interval.policy import Keep
from deepfreeze.interval.sizes import bytes_per_second_of

# Path, every, rules of keep (last, every, best), bytes per second, whether files are packed,
# endpoint, region, keys.
TierForm = tuple[
    str,
    int | None,
    int | None,
    int | None,
    tuple[str, str, int] | None,
    int,
    bool,
    str,
    str,
    Callable[[], KeysForm] | None,
]


@dataclass(frozen=True)
class Tier:
    """One farther tier, from df.tier()."""

    path: str
    every: int | None
    keep: Keep
    bytes_per_second: int  # 0: no limit
    compress: Literal["auto"] | None
    close_seconds: float  # how long close() waits for it
    # Of an object store; "": as the environment says. No repr has a secret in it.
    endpoint: str = field(repr=False)
    region: str
    credentials: Callable[[], object] | None = field(default=None, repr=False)

    def form(self) -> TierForm:
        """The tier as the native engine takes it."""
        keep, rate = self.keep, self.bytes_per_second
        rules = (keep.last, keep.every, keep.best)
        keys = None if self.credentials is None else asking_for_keys(self.credentials)
        packs = self.compress == "auto"
        return (self.path, self.every, *rules, rate, packs, self.endpoint, self.region, keys)


def tier(
    path: str | os.PathLike[str],
    *,
    every: int | None = None,
    keep: Keep | None = None,
    rate: str | float | None = None,
    compress: Literal["auto"] | None = None,
    close_seconds: float = 600.0,
    endpoint: str | None = None,
    region: str | None = None,
    credentials: Callable[[], object] | None = None,
) -> Tier:
    """A place to which checkpoints are copied behind training: a directory, for example on a shared
    disk, or an object store.

    path: The directory, which is created if it does not exist; or "s3://bucket/prefix". It holds
        the same run, and can be opened by itself.
    every: Only steps that are multiples of it are copied; the default is each that is saved.
    keep: Which checkpoints stay there, from df.keep(); the default is all.
    rate: At most so many bytes per second: a number, or a text such as "500MB/s".
    compress: "auto" packs files on their way, without loss, where that is faster than to send them
        as they are: 1.2 times smaller for states in float32, 1.5 times for bfloat16. The default is
        plain files, which any safetensors reader opens, unless checkpoints share them in an object
        store; `deepfreeze fetch` and `export` make plain ones of packed ones.
    close_seconds: How long close() waits for the copies that are still on their way; the longest of
        all tiers counts.
    endpoint, region: Of an object store: its server, such as "https://minio.example:9000", and its
        region. The default is AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or
        AWS_DEFAULT_REGION; without these AWS itself, in us-east-1.
    credentials: Of an object store: returns the keys to use, with access_key, secret_key,
        session_token (or token) and expires as attributes or in a dict, for example
        `lambda: boto3.Session().get_credentials().get_frozen_credentials()`. It is called again
        when the keys expire, or the store refuses them; by any thread, one at a time. The default
        is to look where AWS's own tools look: AWS_ACCESS_KEY_ID, profiles, a machine's role. An
        agent does not have it.

    ValueError for endpoint, region or credentials of a directory, an `every` below 1, a rate or a
    value of compress that is not understood.
    """
    if every is not None and every < 1:
        raise ValueError(f"tier {os.fspath(path)}: every={every} is no number of steps")
    if compress not in (None, "auto"):
        raise ValueError(f"tier {os.fspath(path)}: compress={compress!r} is not None or 'auto'")
    rules = keep or Keep(None, None, None)
    place = os.fspath(path)
    if not (isinstance(place, str) and is_object_url(place)):
        place = os.fspath(absolute(path))
        if any(each is not None for each in (endpoint, region, credentials)):
            raise ValueError(f"tier {place}: endpoint, region, credentials are for object stores")
    server = (endpoint or "", region or "")
    limit = bytes_per_second_of(rate)
    return Tier(place, every, rules, limit, compress, close_seconds, *server, credentials)
