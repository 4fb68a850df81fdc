"""moto's server of S3 in a thread, with conditional writes as S3 promises them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from server_thread import ServerThread


class MotoServer(ServerThread):
    """Use it as a context.

    Of several writes with If-None-Match one is to succeed, but moto looks for the object before it writes, so that here
    they wait for each other.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        moto = create_backend_app("s3")
        conditional = threading.Lock()

        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            if "HTTP_IF_NONE_MATCH" not in environ:
                return moto(environ, start_response)
            with conditional:
                return list(moto(environ, start_response))

        class Handler(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"  # connections serve many requests

            def log_request(self, *_: object) -> None:
                pass

        super().__init__(make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler))
