"""A proxy in front of a server of S3 that answers late, throttles and breaks off, as services in a network do."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from server_thread import ServerThread

#: What happens to a request for an object: "" (it is answered), "slow_down" (503), "internal" (500), "cut" (half of the body),
#: "reset" (it gets lost) or "lost" (its answer does). The arguments are its key and how many such requests came before.
Fault = Callable[[str, int], str]
_HUNG_S = 120  #: Longer than any request that goes on takes.
_STATUS = {"slow_down": (503, "SlowDown"), "internal": (500, "InternalError")}


class FaultyProxy(ServerThread):
    """Use it as a context. Set what is public at any time."""

    def __init__(self, upstream: str) -> None:
        self.latency_s = 0.0
        self.hold = 0  #: Reads are answered once so many have been under way.
        self.fault: Fault = lambda key, before: ""  #: of reads
        self.change_fault: Fault = lambda key, before: ""  #: of everything else but questions (HEAD)
        self.hides: set[str] = set()  #: headers of requests that the server does not see, in lower case
        self.reads: Counter[str] = Counter()  #: of each key
        self.changes: Counter[str] = Counter()  #: of each key
        self.methods: Counter[str] = Counter()  #: of requests for objects
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Condition()
        place = urlsplit(upstream)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                key = urlsplit(self.path).path.strip("/")
                is_object = "/" in key
                is_read = is_object and self.command == "GET"
                if is_object:
                    with proxy._lock:
                        proxy.methods[self.command] += 1
                with proxy.counted(key) if is_read else proxy.uncounted() as fault:
                    if is_object and self.command in ("PUT", "POST", "DELETE"):
                        with proxy._lock:
                            fault = proxy.change_fault(key, proxy.changes[key])
                            proxy.changes[key] += 1
                    if fault == "reset":
                        self.close_connection = True
                        return
                    if fault in _STATUS:
                        status, code = _STATUS[fault]
                        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
                        self.answer(status, [("Content-Type", "application/xml")], text, len(text))
                        return
                    # The signature covers the header Host, so it stays what the client sent.
                    answer, found = self.forward(body)
                    if fault == "lost":
                        self.close_connection = True
                        return
                    kept = [
                        (name, value)
                        for name, value in answer.getheaders()
                        if name.lower() not in ("content-length", "connection", "transfer-encoding")
                    ]
                    announced = int(answer.headers.get("Content-Length") or len(found))
                    if fault == "cut":
                        found, self.close_connection = found[: len(found) // 2], True
                    self.answer(answer.status, kept, found, announced)

            def forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
                client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
                try:
                    client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in proxy.hides:
                            client.putheader(name, value)
                    client.endheaders(body)
                    answer = client.getresponse()
                    return answer, answer.read()
                finally:
                    client.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one  # noqa: N815 (as http.server asks)

            def answer(self, status: int, headers: list[tuple[str, str]], body: bytes, announced: int) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(announced))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that has gone

        super().__init__(Server(("127.0.0.1", 0), Handler))

    def reset(self) -> None:
        """Answers everything at once again, and counts from 0."""
        with self._lock:
            self.latency_s, self.hold, self.most_at_once = 0.0, 0, 0
            self.fault = self.change_fault = lambda key, before: ""
            self.hides = set()
            self.reads.clear()
            self.changes.clear()
            self.methods.clear()

    def counted(self, key: str) -> _Read:
        return _Read(self, key)

    def uncounted(self) -> _Read:
        return _Read(self, None)


class _Read:
    """One request under way."""

    def __init__(self, proxy: FaultyProxy, key: str | None) -> None:
        self._proxy = proxy
        self._key = key

    def __enter__(self) -> str:
        if self._key is None:
            return ""
        proxy = self._proxy
        with proxy._lock:
            before = proxy.reads[self._key]
            proxy.reads[self._key] += 1
            proxy._at_once += 1
            proxy.most_at_once = max(proxy.most_at_once, proxy._at_once)
            fault = proxy.fault(self._key, before)
            proxy._lock.notify_all()
            proxy._lock.wait_for(lambda: proxy.most_at_once >= proxy.hold, _HUNG_S)
        time.sleep(proxy.latency_s)
        return fault

    def __exit__(self, *_: object) -> None:
        if self._key is not None:
            with self._proxy._lock:
                self._proxy._at_once -= 1
