"""`clew serve` and `clew view` as people start and end them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew.cli import _arguments, main, serve
from clew.core.errors import ReadOnly
from clew.testing.cases.base import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "threads.db"
    with clew.open(place) as store:
        store.create("thread/1 & more", title="One")
    return place


class Viewer:
    """The command in a process of its own."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "clew", *map(str, arguments), "--no-open"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        self.link = ""
        for line in self.process.stdout:
            if line.startswith("http://127.0.0.1:"):
                self.link = line.strip()
                return

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.process.kill()
            self.process.communicate()

    def end(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


def test_ctrl_c_ends_it_cleanly_while_pages_are_open(path: Path) -> None:
    with Viewer("serve", "--store", path) as viewer, httpx.Client(timeout=120) as page:
        assert page.get(viewer.link, follow_redirects=True).status_code == 200
        address = viewer.link.partition("/?")[0]
        with page.stream("GET", f"{address}/events") as stream:
            assert next(stream.iter_lines()).startswith("retry")
            code, out, err = viewer.end()
    assert (code, err) == (0, "")
    assert "ended" in out
    with clew.open(path) as store:
        assert store.verify() == []


def test_what_is_damaged_is_read_in_the_background_and_told(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with clew.open(path) as store:
        store.create("bad").append("event", "a needle in here")
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))
    with Viewer("serve", "--store", path) as viewer, httpx.Client(timeout=120) as page:
        page.get(viewer.link, follow_redirects=True)
        health = f"{viewer.link.partition('/?')[0]}/health"
        eventually(lambda: "found by reading in the background" in page.get(health).text, 60)
        assert "its body is not what was written" in page.get(health).text
        assert viewer.end()[0] == 0
    command = [sys.executable, "-m", "clew", "watch", str(tmp_path / "none"), "--store", str(path)]
    for file in (tmp_path / "state" / "clew").glob("scrub-*"):
        file.unlink()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        told = next(line for line in watch.stdout if "damaged: " in line)
        watch.send_signal(signal.SIGINT)
    assert "thread bad" in told


def test_view_opens_a_thread_by_the_beginning_of_its_id(path: Path) -> None:
    with Viewer("view", "thr", "--store", path, "--read-only") as viewer:
        answer = httpx.get(viewer.link, follow_redirects=False, timeout=120)
        place, cookie = answer.headers["location"], answer.headers["set-cookie"]
        address = viewer.link.partition("/thread")[0]
        signed_in = {"cookie": cookie.partition(";")[0]}
        html = httpx.get(address + place, headers=signed_in, timeout=120).text
        viewer.end()
    assert "<h1>One</h1>" in html
    assert "read-only" in html


def test_a_store_that_may_not_be_written_is_shown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = clew.open

    def refused(address: Any, **options: Any) -> clew.Store:
        if not options.get("readonly"):
            raise ReadOnly(str(address), reason="Read-only file system")
        return opening(address, **options)

    monkeypatch.setattr(clew, "open", refused)
    with serve.opened(_arguments.parse("serve", serve, ["--store", str(path)])) as store:
        assert store.properties.read_only


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "can be reached by others"),
        (["--port", "70000"], 2, "not a port"),
        (["--port", "x"], 2, "not a port"),
        (["--store", "missing.db"], 2, "there is no store"),
        (["other.db"], 2, "the store is named twice"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    store = [] if "--store" in arguments else ["--store", str(path)]
    assert main(["serve", "--no-open", *store, *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_in_a_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from clew.server.listen import bind

    with bind() as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", "--no-open", "--store", str(path), "--port", port]) == 5
    assert "cannot be used" in capsys.readouterr().err


def test_without_the_extra_the_command_says_how_to_get_it(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import clew.server

    # Put back at the end, as the modules are: other tests patch what they find by this name.
    monkeypatch.setattr(clew, "server", clew.server)
    for name in [name for name in sys.modules if name.startswith("clew.server")]:
        monkeypatch.delitem(sys.modules, name)
    blocked: Any = None
    monkeypatch.setitem(sys.modules, "uvicorn", blocked)
    assert main(["serve", "--no-open", "--store", str(path)]) == 6
    assert "pip install 'clew[viewer]'" in capsys.readouterr().err
