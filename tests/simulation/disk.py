"""A simulated disk that keeps the contract of ``fs/base.py``, and no more.

Owns: :class:`Disk`, immutable: what every process sees, and what a power cut would leave. What is not synced is there after a
cut, or is not, or is there in part, path by path. :class:`Profile` says which storage it is.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trinitymerge.fs.base import FileInfo

DIRECTORY = None
"""The content of a directory."""


@attrs.frozen
class Profile:
    """Which storage is simulated: the rows of "On which storage" in ``docs/reliability.md``.

    Attributes:
        name: of the kind of storage.
        is_local: a file that is not there has not been created; sizes are compared.
        is_synced_later: what is created is seen before it is synced; a power cut between the two may take it again.
        may_tear_hints: who reads a file that is being replaced may see a part of it, or none.
        may_lose_answers: a request may have failed or succeeded when its answer is an error.
        may_answer_late: or it may be carried out later.
    """

    name: str
    is_local: bool = True
    is_synced_later: bool = True
    may_tear_hints: bool = False
    may_lose_answers: bool = False
    may_answer_late: bool = False


LOCAL = Profile("a local disk")
NETWORK = Profile("a network mount", may_lose_answers=True, may_tear_hints=True)
SERVERS = Profile("HDFS", is_local=False, is_synced_later=False, may_lose_answers=True)
OBJECTS = Profile("an object store", is_local=False, is_synced_later=False, may_lose_answers=True, may_tear_hints=True)


@attrs.frozen
class Call:
    """What a process asks of its surroundings.

    Attributes:
        what: the name of a method of :class:`Disk`, or ``now``.
        path: of the file or directory.
        data: to be written.
        target: of a move or copy.
    """

    what: str
    path: str = ""
    data: bytes = b""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.what} {short(self.path)}{f' to {short(self.target)}' if self.target else ''}"


@attrs.frozen
class Failure:
    """An answer that is an error.

    Attributes:
        kind: its class.
        args: to make it of.
    """

    kind: type[Exception]
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return self.kind.__name__


LOST = Failure(OSError, (errno.EIO, "the connection was lost"))
"""What a process is told when nobody can tell it what has become of its request."""


@attrs.frozen
class Node:
    """A file or directory.

    Attributes:
        data: content; :data:`DIRECTORY` for a directory.
        modified_ms: when it was written.
        is_whole: its content has been synced; only its entry may not be.
    """

    data: bytes | None
    modified_ms: int = attrs.field(eq=False, default=0)
    is_whole: bool = True


@attrs.frozen(eq=False)
class Disk:
    """All files, as they are seen, and as far as they would survive.

    Attributes:
        seen: by path.
        safe: likewise.
        seen_key: tells what is seen from what is seen on other disks.
        key: tells the disk from others.
    """

    seen: Mapping[str, Node]
    safe: Mapping[str, Node]
    seen_key: int = attrs.field(init=False)
    key: int = attrs.field(init=False)

    @seen_key.default
    def _seen_key(self) -> int:
        return hash(frozenset(self.seen.items()))

    @key.default
    def _key(self) -> int:
        return hash((self.seen_key, frozenset(self.safe.items())))

    @classmethod
    def empty(cls) -> Disk:
        return cls({}, {})

    # Asked by processes ---------------------------------------------------------------------------------------------

    def answer(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        """What a call gives, and the disk after it."""
        return getattr(self, f"_{call.what}")(call, now_ms)

    def _create(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        if call.path in self.seen:
            return Failure(FileExistsError, (errno.EEXIST, os.strerror(errno.EEXIST), call.path)), self
        made = self._with_parents(call.path)
        return None, attrs.evolve(made, seen={**made.seen, call.path: Node(call.data, now_ms)})

    def _sync_entries(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        """What a directory holds now is what it would hold after a power cut, but for content that is not synced."""
        here = [p for p, node in self.seen.items() if parent(p) == call.path and node.is_whole]
        gone = {p for p in self.safe if parent(p) == call.path and p not in self.seen}
        safe = {p: node for p, node in self.safe.items() if p not in gone} | {p: self.seen[p] for p in here}
        return None, attrs.evolve(self, safe=safe)

    def _write(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        """As Spark writes a file: neither atomic nor synced."""
        seen = {**self._with_parents(call.path, synced=False).seen}
        return None, attrs.evolve(self, seen={**seen, call.path: Node(call.data, now_ms, is_whole=False)})

    def _replace(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        made = self._with_parents(call.path)
        return None, attrs.evolve(made, seen={**made.seen, call.path: Node(call.data, now_ms, is_whole=False)})

    def _sync_dir(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        if call.path not in self.seen:
            return _no_such(call.path), self
        below = {p: attrs.evolve(node, is_whole=True) for p, node in self.seen.items() if _is_in(p, call.path)}
        safe = {p: node for p, node in self.safe.items() if not _is_in(p, call.path)} | below
        return None, attrs.evolve(self, seen={**self.seen, **below}, safe=safe)

    def _read(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        node = self.seen.get(call.path)
        return (_no_such(call.path) if node is None or node.data is DIRECTORY else node.data), self

    def _exists(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        return call.path in self.seen, self

    def _list(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        if call.path not in self.seen:
            return _no_such(call.path), self
        found = sorted((p, n) for p, n in self.seen.items() if parent(p) == call.path)
        infos = [
            FileInfo(p.rpartition("/")[2], p, len(n.data or b""), n.data is DIRECTORY, n.modified_ms) for p, n in found
        ]
        return tuple(infos), self

    def _delete(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        return None, attrs.evolve(self, seen={p: n for p, n in self.seen.items() if not _is_in(p, call.path)})

    def _remove_empty(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        is_empty = not any(parent(p) == call.path for p in self.seen)
        return self._delete(call, now_ms) if is_empty else (None, self)

    def _move(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        if call.path not in self.seen or parent(call.target) not in self.seen:
            return _no_such(call.path), self
        seen = dict(self.seen)
        seen[call.target] = seen.pop(call.path)
        return None, attrs.evolve(self, seen=seen)

    def _mkdirs(self, call: Call, now_ms: int) -> tuple[Any, Disk]:
        made = self._with_parents(f"{call.path}/x")
        return None, made

    def _with_parents(self, path: str, synced: bool = True) -> Disk:
        missing = [p for p in _parents(path) if p not in self.seen]
        if not missing:
            return self
        new = dict.fromkeys(missing, Node(DIRECTORY))
        return attrs.evolve(self, seen={**self.seen, **new}, safe={**self.safe, **new} if synced else self.safe)

    # Power cuts -----------------------------------------------------------------------------------------------------

    def cuts(self, most: int) -> int:
        """How many disks :meth:`after_cuts` gives."""
        return min(most, math.prod(len(self._left_of(p)) for p in self._unsynced()))

    def after_cuts(self, most: int) -> Iterator[Disk]:
        """The disks that a power cut may leave; not more than so many of them, the extremes first."""
        paths = self._unsynced()
        choices = [self._left_of(p) for p in paths]
        extremes = [tuple(c[0] for c in choices), tuple(c[1] for c in choices)]
        every = itertools.chain(extremes, itertools.product(*choices))
        unique = (left for n, left in enumerate(every) if n < len(extremes) or left not in extremes)
        for left in itertools.islice(unique if paths else iter([()]), most):
            yield self._left_with(dict(zip(paths, left, strict=True)))

    def _unsynced(self) -> list[str]:
        return sorted(p for p in {*self.seen, *self.safe} if self.seen.get(p) != self.safe.get(p))

    def _left_of(self, path: str) -> list[Node | None]:
        """What may become of a path: what is safe, what is seen, and a part of that."""
        seen, safe = self.seen.get(path), self.safe.get(path)
        torn = (
            [attrs.evolve(seen, data=seen.data[: len(seen.data) // 2])]
            if seen and seen.data and not seen.is_whole
            else []
        )
        return [safe, seen, *torn]

    def _left_with(self, left: Mapping[str, Node | None]) -> Disk:
        chosen = {p: left.get(p, self.seen.get(p)) for p in {*self.seen, *self.safe}}
        there = {p: attrs.evolve(n, is_whole=True) for p, n in chosen.items() if n is not None}
        whole = {p: n for p, n in there.items() if all(a in there for a in _parents(p))}
        return Disk(whole, whole)


def parent(path: str) -> str:
    """The directory that a path is in."""
    return path.rpartition("/")[0]


def short(path: str) -> str:
    """A path as schedules show it."""
    name = path.rpartition("/")[2]
    above = parent(path).rpartition("/")[2].replace("_tm_batch=", "")
    return f"{above}/{name.lstrip('0') or '0'}" if above else name


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))]


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _no_such(path: str) -> Failure:
    return Failure(FileNotFoundError, (errno.ENOENT, os.strerror(errno.ENOENT), path))
