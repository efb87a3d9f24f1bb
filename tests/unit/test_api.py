"""Requests on a connection that the server has closed, and answers that are not JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.cluster.api import Api, ApiError
from nodeproof.existing.connection import PacedApi, load_kubeconfig
from tests.unit.own_cluster import JsonHandler, serving

SOON_S = 30.0


class OneAnswer(JsonHandler):
    """A handler that answers the first request of each connection, and then closes it."""

    def handle(self) -> None:
        self.handle_one_request()
        self.rfile.readline()

    def do_GET(self) -> None:
        self.answer(200, {"path": self.path})

    def do_PATCH(self) -> None:
        self.answer(200, self.body())


class Deleting(JsonHandler):
    """A handler of deletions, whose answer is empty, or text at `/text`."""

    def do_DELETE(self) -> None:
        content = b"deleted" if self.path == "/text" else b""
        self.send_response({"/absent": 404, "/protected": 403}.get(self.path, 200))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class NoAnswer(JsonHandler):
    """A handler that closes each connection at its first request."""

    def handle(self) -> None:
        self.rfile.readline()


@pytest.fixture
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Return the API that the handler of the test serves."""
    with serving(request.param, tmp_path, []):
        yield PacedApi(load_kubeconfig(str(tmp_path / "config"), ""))


@pytest.mark.parametrize("api", [OneAnswer], indirect=True)
def test_read_is_sent_again_if_its_connection_was_closed(api: Api) -> None:
    for path in ("/first", "/second"):
        assert api.get(path) == {"path": path}


@pytest.mark.parametrize("api", [OneAnswer], indirect=True)
def test_write_is_sent_once(api: Api) -> None:
    assert api.patch("/object", {"a": 1}) == {"a": 1}
    with pytest.raises(ApiError, match="/object"):
        api.patch("/object", {"a": 2})


@pytest.mark.parametrize("api", [Deleting], indirect=True)
def test_answer_to_a_deletion_may_be_empty_or_text(api: Api) -> None:
    for path in ("/empty", "/text", "/absent"):
        api.delete(path)
    with pytest.raises(ApiError) as error:
        api.delete("/protected")
    assert error.value.status == 403


@pytest.mark.parametrize("api", [NoAnswer], indirect=True)
def test_read_without_an_answer_is_an_error(api: Api) -> None:
    with pytest.raises(ApiError, match="/object") as error:
        api.get("/object")
    assert error.value.status == 0


@pytest.mark.parametrize("api", [OneAnswer], indirect=True)
def test_answer_has_the_time_of_the_server(api: Api) -> None:
    document, now_s = api.get_dated("/object")
    assert document == {"path": "/object"}
    assert abs(now_s - time.time()) < SOON_S
