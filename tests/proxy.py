"""A proxy before an HTTP server on this machine, which counts requests and can make each take longer."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "expect"}


class Proxy:
    """Requests to a server, each of them counted.

    Attributes:
        port: where it listens.
        delay_seconds: what each request takes longer.
        requests: the method, the kind and the path of each, in order.
    """

    def __init__(self, server_port: int) -> None:
        self.delay_seconds, self.requests = 0.0, list[tuple[str, str]]()
        proxy, local = self, threading.local()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.requests.append((kind_of(self.command, self.path, self.headers), unquote(self.path)))
                time.sleep(proxy.delay_seconds)
                answer = _answer_of(local, server_port, self.command, self.path, list(self.headers.items()), body)
                content = answer.read()
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in _OF_A_CONNECTION | {"content-length"}:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """The requests of a block, by kind."""
        start, found = len(self.requests), Counter[str]()
        yield found
        found.update(kind for kind, _ in self.requests[start:])

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer_of(local, port, method, path, headers, body):  # type: ignore[no-untyped-def]
    """Ask the server, on a connection of this thread; once more if the server has closed it."""
    for is_last in (False, True):
        if getattr(local, "connection", None) is None:
            local.connection = http.client.HTTPConnection("127.0.0.1", port)
        connection = local.connection
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in _OF_A_CONNECTION:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            return connection.getresponse()
        except (http.client.HTTPException, OSError):
            connection.close()
            local.connection = None
            if is_last:
                raise
    raise AssertionError


def kind_of(method: str, path: str, headers: object) -> str:
    """Return what S3 calls a request."""
    parts = urlsplit(path)
    query, has_key = parse_qs(parts.query, keep_blank_values=True), "/" in parts.path.strip("/")
    if method == "GET" and ("list-type" in query or not has_key):
        return "LIST"
    if method == "PUT" and headers.get("x-amz-copy-source"):  # type: ignore[attr-defined]
        return "COPY"
    if method == "POST" and "delete" in query:
        return "DELETE"
    return method
