"""Every script of the corpus in every field, in a real browser: none of them runs.

With the content security policy switched off as well, so that it is not what saves us; and with it
on, where not even an attempt may be reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from server.test_injection import CORPUS, fill_hostile
from server.viewer_client import serving

import clew
from clew.store import Store

ROUTES = ["/", "/thread", "/tree", "/context", "/compare", "/files", "/timeline", "/health"]
_TURNS = (["/tree"], ["/context"])
ROUTES += ["/usage?by=model&days=", "/search?role=assistant"]


def _blame(store: Store, id: str) -> str:
    """The page of its file, with what everything in it comes from."""
    newest = store.get(id).snapshots.list()[0]
    path = store.get(id).snapshots.files(newest)[0][0]
    return "/files/file?" + urlencode({"snapshot": newest.id, "path": path, "blame": "1"})


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "no policy"])
def test_nothing_fires(new_tab: Any, tmp_path: Path, policy: bool) -> None:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        hostile = []
        for n, text in enumerate(CORPUS):
            folder = tmp_path / str(n)
            folder.mkdir()
            hostile.append(fill_hostile(store, folder, text, n))
        with serving(store, policy=policy) as address:
            tab = new_tab(address)
            page = tab.page
            page.add_init_script(
                "addEventListener('securitypolicyviolation',"
                " (event) => { window.hit = 'policy: ' + event.violatedDirective; });"
            )
            outside: list[str] = []
            page.on(
                "request",
                lambda one: None if one.url.startswith(address) else outside.append(one.url),
            )
            page.on("dialog", lambda dialog: outside.append("dialog"))
            for n, id in enumerate(hostile):
                # Without the policy, where it matters most, all of them; with it one of each pair.
                some = ["/thread", *(["/tree", "/context"] if not policy else _TURNS[n % 2])]
                for route in [*(some if n else ROUTES), _blame(store, id)]:
                    tab.open(route + ("&" if "?" in route else "?") + urlencode({"id": id}))
                    page.evaluate(
                        "for (const one of document.querySelectorAll('details')) one.open = true"
                    )
                    assert page.evaluate("window.hit") is None, (route, id)
            page.wait_for_timeout(200)
            assert outside == []
