"""Workspaces: the same folder is found again, however it is written, and when it was moved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clew import InvalidInput
from clew.facets.sessions import (
    Sessions,
    current_workspace_path,
    normalize_workspace_path,
    workspace_identity,
)
from clew.store import Store


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store)


def talk(sessions: Sessions, id: str, workspace: Path | str) -> None:
    made = sessions.new(workspace=str(workspace), id=id)
    sessions.append_message(made, {"role": "user", "content": id})


def ids(sessions: Sessions, workspace: Path | str, **options: Any) -> list[str]:
    return [info.id for info in sessions.list(str(workspace), **options).items]


def repository(folder: Path, url: str = "git@github.com:acme/app.git") -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    return folder


# --- paths ---


def test_a_path_is_compared_as_the_folder_that_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    expected = str(real.resolve())
    for path in (f" {real} \n", f"{real}/", f"{tmp_path}/link/../real", str(tmp_path / "link")):
        assert normalize_workspace_path(path) == expected
    monkeypatch.chdir(tmp_path / "link")
    assert normalize_workspace_path(".") == expected
    assert current_workspace_path() == expected
    assert normalize_workspace_path("") == normalize_workspace_path(" \t") == ""
    assert normalize_workspace_path(real) == expected
    assert os.path.isabs(normalize_workspace_path("nowhere/at all"))
    with pytest.raises(InvalidInput):
        normalize_workspace_path("nul\0")


def test_a_folder_that_is_gone_is_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert current_workspace_path() == ""


@pytest.mark.parametrize("name", ["x" * 200 + "/" + "y" * 200 + "/" + "z" * 200, "\udcff", "ü"])
def test_folders_with_any_name_are_found(sessions: Sessions, tmp_path: Path, name: str) -> None:
    talk(sessions, "here", tmp_path / name)
    talk(sessions, "elsewhere", tmp_path)
    assert ids(sessions, tmp_path / name) == ["here"]
    assert sessions.load("here").workspace == str(tmp_path.resolve() / name)


def test_a_session_can_change_its_workspace(sessions: Sessions, tmp_path: Path) -> None:
    talk(sessions, "s", tmp_path / "one")
    sessions.thread("s").set(tags=["mine"])
    session = sessions.load("s")
    session.workspace = str(repository(tmp_path / "two"))
    sessions.save(session)
    assert ids(sessions, tmp_path / "one") == []
    assert ids(sessions, tmp_path / "two") == ["s"]
    assert "mine" in sessions.thread("s").info.tags
    session.workspace = ""
    sessions.save(session)
    assert ids(sessions, tmp_path / "two") == []
    assert sessions.thread("s").info.tags == ("mine",)


# --- repositories ---


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:acme/app.git",
        "https://github.com/acme/app.git",
        "https://GitHub.com/acme/app/",
        "https://user:secret@github.com/acme/app",
        "ssh://git@github.com/acme/app.git",
        "github.com:acme/app",
        '"https://github.com/acme/app.git"',
        "https://github.com/acme/app.git ; a comment",
    ],
)
def test_a_repository_is_the_same_however_it_is_reached(tmp_path: Path, url: str) -> None:
    root = repository(tmp_path / "app", url)
    assert workspace_identity(str(root)) == "git:github.com/acme/app//."
    (root / "src").mkdir()
    assert workspace_identity(str(root / "src")) == "git:github.com/acme/app//src"


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[core]\nbare = false\n",
        '[remote "origin"]\nfetch = x\n',
        '[remote "origin"]\nurl = ../other\n',
        '[remote "origin"\nurl = https://x/y\n',
        "\xff\0[[[",
        'url = https://x/y\n[branch "main"]\nurl = https://x/y\n',
    ],
)
def test_a_repository_without_an_address_is_its_path(tmp_path: Path, config: str) -> None:
    root = repository(tmp_path / "app")
    (root / ".git" / "config").write_bytes(config.encode("latin-1"))
    assert workspace_identity(str(root)) == str(root.resolve())


def test_what_is_not_understood_in_a_configuration_is_passed_over(tmp_path: Path) -> None:
    root = repository(tmp_path / "app")
    (root / ".git" / "config").write_text(
        '[remote "upstream"] url = https://x/upstream\n# [remote "origin"]\n??\n'
        '[Remote "origin"]\nfetch = +refs\nURL=https://x/ours.git\nurl = https://x/second\n'
    )
    assert workspace_identity(str(root)) == "git:x/ours//."
    (root / ".git" / "config").write_text('[remote "upstream"]\nurl = https://x/upstream\n')
    assert workspace_identity(str(root)) == "git:x/upstream//."
    (root / ".git" / "config").unlink()
    assert workspace_identity(str(root)) == str(root.resolve())


def test_a_worktree_belongs_to_its_repository(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    home = main / ".git" / "worktrees" / "side"
    home.mkdir(parents=True)
    (home / "commondir").write_text("../..\n")
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {home}\n")
    assert workspace_identity(str(side)) == workspace_identity(str(main))
    (side / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert workspace_identity(str(side)) == str(side.resolve())


def test_sessions_are_found_after_their_folder_was_moved(
    sessions: Sessions, tmp_path: Path
) -> None:
    root = repository(tmp_path / "before")
    (root / "src").mkdir()
    talk(sessions, "root", root)
    talk(sessions, "src", root / "src")
    moved = root.rename(tmp_path / "after")
    talk(sessions, "new", moved)
    assert ids(sessions, moved) == ["new", "root"]
    assert ids(sessions, moved / "src") == ["src"]
    assert sessions.latest(str(moved / "src")).id == "src"
    page = sessions.list(str(moved), limit=1)
    assert ids(sessions, moved, limit=1, cursor=page.cursor) == ["root"]


def test_another_clone_that_is_still_there_keeps_its_sessions(
    sessions: Sessions, tmp_path: Path
) -> None:
    one, two = repository(tmp_path / "one"), repository(tmp_path / "two")
    talk(sessions, "one", one)
    talk(sessions, "two", two)
    assert ids(sessions, one) == ["one"]
    assert ids(sessions, two) == ["two"]


def test_secrets_in_an_address_are_not_stored(sessions: Sessions, tmp_path: Path) -> None:
    root = repository(tmp_path / "app", "https://user:s3cret@host/x.git")
    talk(sessions, "s", root)
    assert "s3cret" not in str(sessions.thread("s").info)
    assert sessions.list().items[0].workspace_id == "git:host/x//."


def test_a_fork_of_a_session_is_a_session_of_its_workspace(
    sessions: Sessions, tmp_path: Path
) -> None:
    root = repository(tmp_path / "app")
    talk(sessions, "s", root)
    fork = sessions.fork("s")
    assert fork.workspace == str(root)
    assert ids(sessions, root) == [fork.id, "s"]
