"""The envelope of every file of the log: a JSON object whose first field is the SHA-256 of all bytes after it.

Owns: :func:`seal` and :func:`unseal`. A flipped or missing byte is noticed; content is parsed as data only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_ENVELOPE = re.compile(rb'^\{"checksum":"([0-9a-f]{64})",')
_ENVELOPE_SIZE = len('{"checksum":"') + 64 + len('",')


def seal(data: Mapping[str, Any]) -> tuple[bytes, str]:
    """A JSON object in its envelope, and its checksum."""
    body = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()[1:]
    checksum = hashlib.sha256(body).hexdigest()
    return b'{"checksum":"' + checksum.encode() + b'",' + body, checksum


def unseal(content: bytes) -> tuple[dict[str, Any], str]:
    """The inverse of :func:`seal`.

    Raises:
        ValueError: these bytes are not what :func:`seal` has written.
    """
    checksum = checksum_of(content)
    data = json.loads(b"{" + content[_ENVELOPE_SIZE:], parse_constant=_refuse_constant)
    if b"\\u" in content:  # half a character, which neither Spark nor a file takes
        json.dumps(data, ensure_ascii=False).encode()
    return data, checksum


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def checksum_of(content: bytes) -> str:
    """The checksum of an envelope, once its content is known to match.

    Raises:
        ValueError: these bytes are not what :func:`seal` has written.
    """
    match = _ENVELOPE.match(content)
    if not match:
        raise ValueError("it is empty" if not content else "it does not begin as the files of this library do")
    checksum = match[1].decode()
    if hashlib.sha256(content[_ENVELOPE_SIZE:]).hexdigest() != checksum:
        raise ValueError("its checksum does not match its content")
    return checksum
