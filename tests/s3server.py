"""An S3 server on this machine: moto's, with an If-None-Match that is decided for one request at a time, and with faults.

Faults are put between the server and its clients, so what a client gets to see went through sockets and through boto3's own
repetitions: an answer that never comes, one that says no after the request was carried out, a header that gets lost.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from remote_path import RemotePath

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from trinitymerge.fs import s3
from trinitymerge.fs.base import FileSystem

BUCKET = "lake"
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Fault = Callable[["Request"], Iterable[bytes]]


class Request:
    """One request on its way to the server.

    Attributes:
        environ: WSGI's.
        carry_out: hands it to the server; returns the answer's body.
    """

    def __init__(self, environ: dict[str, Any], start_response: Callable[..., Any], server: Application) -> None:
        self.environ, self._start_response, self._server = environ, start_response, server
        self._is_read = False

    @property
    def is_conditional(self) -> bool:
        return "HTTP_IF_NONE_MATCH" in self.environ

    @property
    def is_probe(self) -> bool:
        return "/." in self.environ["PATH_INFO"]

    @property
    def method(self) -> str:
        return str(self.environ["REQUEST_METHOD"])

    def carry_out(self, answer: Callable[..., Any] | None = None) -> list[bytes]:
        self._is_read = True
        return list(self._server(self.environ, answer or self._start_response))

    def in_silence(self) -> None:
        """Carries it out and tells nobody."""
        self.carry_out(lambda *_arguments: None)

    def body(self) -> bytes:
        left = 0 if self._is_read else int(self.environ.get("CONTENT_LENGTH") or 0)
        self._is_read = True
        return bytes(self.environ["wsgi.input"].read(left))

    def answer(self, status: str, text: str) -> list[bytes]:
        self.body()
        self._start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
        return [] if self.method == "HEAD" else [text.encode()]

    def refuse(self, status: str, code: str) -> list[bytes]:
        return self.answer(status, f"<Error><Code>{code}</Code><Message>as asked for</Message></Error>")

    def hang_up(self) -> list[bytes]:
        """The connection breaks before an answer."""
        with contextlib.suppress(OSError):
            self.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        self._start_response("500 Nobody Hears", [])
        return []


class S3Server:
    """moto behind faults.

    Attributes:
        url: of the endpoint.
        requests: how many of each method came in.
        pending: requests that are still to be carried out.
    """

    def __init__(self) -> None:
        self._moto: Application = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.RLock()
        self._faults: list[tuple[Callable[[Request], bool], Fault]] = []
        self.requests: Counter[str] = Counter()
        self.pending: list[Callable[[], None]] = []
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def directory(self) -> S3Path:
        """One that nobody has used."""
        return S3Path(f"s3a://{BUCKET}/tests of/{uuid.uuid4().hex} %20+ü")

    def fail(self, when: Callable[[Request], bool], fault: Fault, times: int = 1_000_000) -> None:
        """Lets the next requests of a kind go wrong."""
        self._faults += [(when, fault)] * times if times < 100 else [(when, _Forever(fault))]

    def heal(self) -> None:
        self._faults.clear()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ, start_response, self._decide)
        self.requests[request.method] += 1
        for position, (when, fault) in enumerate(self._faults):
            if when(request):
                if not isinstance(fault, _Forever):
                    del self._faults[position]
                return fault(request)
        return request.carry_out()

    def _decide(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """moto looks for an object and creates it in two steps; S3 does so in one."""
        with self._one_at_a_time:
            return list(self._moto(environ, start_response))


class _Forever:
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __call__(self, request: Request) -> Iterable[bytes]:
        return self._fault(request)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # as S3: connections stay open

    def log(self, *_arguments: object) -> None:
        """Says nothing."""


_shared: dict[str, s3.S3FileSystem] = {}


def shared() -> s3.S3FileSystem:
    """A filesystem on the server that is running; to connect takes longer than to ask."""
    url = os.environ["AWS_ENDPOINT_URL"]
    if url not in _shared:
        _shared[url] = s3.S3FileSystem()
    return _shared[url]


class S3Path(RemotePath):
    """A directory on the server that is running."""

    def __init__(self, url: str, files: Callable[[], FileSystem] = shared) -> None:
        super().__init__(url, files)

    def mkdir(self, parents: bool = False) -> None:
        """As Hadoop makes directories."""
        bucket, _, key = str(self).removeprefix("s3a://").partition("/")
        s3.connect().put_object(Bucket=bucket, Key=f"{key}/", Body=b"")


# Faults -----------------------------------------------------------------------------------------------------------


def conditional(request: Request) -> bool:
    """A create of what is no probe."""
    return request.is_conditional and not request.is_probe


def any_conditional(request: Request) -> bool:
    return request.is_conditional


def carried_out_and_lost(request: Request) -> Iterable[bytes]:
    request.in_silence()
    return request.hang_up()


def carried_out_and_denied(request: Request) -> Iterable[bytes]:
    """An error of the server, after the fact."""
    request.in_silence()
    return request.refuse("500 Internal Server Error", "InternalError")


def lost(request: Request) -> Iterable[bytes]:
    request.body()
    return request.hang_up()


def half_way(request: Request) -> Iterable[bytes]:
    """The connection breaks while the request is being read."""
    request.environ["wsgi.input"].read(10)
    return request.hang_up()


def busy(request: Request) -> Iterable[bytes]:
    return request.refuse("503 Slow Down", "SlowDown")


def in_conflict(request: Request) -> Iterable[bytes]:
    return request.refuse("409 Conflict", "ConditionalRequestConflict")


def forbidden(request: Request) -> Iterable[bytes]:
    return request.refuse("403 Forbidden", "AccessDenied")


def not_implemented(request: Request) -> Iterable[bytes]:
    return request.refuse("501 Not Implemented", "NotImplemented")


def carried_out(request: Request) -> Iterable[bytes]:
    return request.carry_out()


def overwritten_and_denied(request: Request) -> Iterable[bytes]:
    """A store that looks at the condition when it is too late."""
    del request.environ["HTTP_IF_NONE_MATCH"]
    request.in_silence()
    return request.refuse("412 Precondition Failed", "PreconditionFailed")


def without_condition(request: Request) -> Iterable[bytes]:
    """A store that does not know the header."""
    del request.environ["HTTP_IF_NONE_MATCH"]
    return request.carry_out()


def comes_later(server: S3Server) -> Fault:
    """Hangs up at once; the request is carried out when the test says so (`server.pending`)."""

    def fault(request: Request) -> Iterable[bytes]:
        request.environ["wsgi.input"] = io.BytesIO(request.body())
        answer = request.hang_up()
        server.pending.append(request.in_silence)
        return answer

    return fault


def late(seconds: float) -> Fault:
    """The answer comes after its reader has given up."""

    def fault(request: Request) -> Iterable[bytes]:
        request.in_silence()
        time.sleep(seconds)
        return request.hang_up()

    return fault


# For tests --------------------------------------------------------------------------------------------------------

SETTINGS = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    "NO_PROXY": "127.0.0.1",
}


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """A server with a bucket, which boto3 finds by its environment."""
    import boto3  # after it is known to be there

    server = S3Server()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, "AWS_ENDPOINT_URL": server.url}.items():
            patch.setenv(name, value)
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        s3._trusted.clear()
        s3.connect().create_bucket(Bucket=BUCKET)
        yield server
        server.stop()
