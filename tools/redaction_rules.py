"""Make src/clew/interchange/redaction/rules.json from gitleaks.toml, the rules of gitleaks (MIT).

    python tools/redaction_rules.py gitleaks.toml 8.28.0 2026-11-18

The file is config/gitleaks.toml of a release, then the release and the day that it was taken.
What is left out: descriptions, and what is about the names of files, since a text has none.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "clew" / "interchange" / "redaction" / "rules.json"


def allowed(given: dict[str, Any]) -> dict[str, Any] | None:
    """What a list of exceptions says about texts; one that asks for a file's name says nothing."""
    needs_path = given.get("condition") == "AND" and given.get("paths")
    if needs_path or not (given.get("regexes") or given.get("stopwords")):
        return None
    found = {key: given[key] for key in ("regexes", "stopwords") if given.get(key)}
    return found | {"target": given.get("regexTarget", "secret")}


def rule(given: dict[str, Any]) -> dict[str, Any]:
    exceptions = [allowed(one) for one in given.get("allowlists", [])]
    assert given.keys() <= {
        *("id", "description", "regex", "keywords", "entropy", "path", "allowlists")
    }, given["id"]
    return {
        "id": given["id"],
        "regex": given["regex"],
        "keywords": [word.lower() for word in given["keywords"]],
        "entropy": given.get("entropy", 0),
        "allowed": [one for one in exceptions if one],
    }


def main(source: str, release: str, date: str) -> None:
    table = tomllib.loads(Path(source).read_text("utf-8"))
    made = {
        "source": f"gitleaks {release}",
        "licence": "MIT; see rules.LICENSE",
        "date": date,
        "allowed": [allowed(table["allowlist"])],
        "rules": [rule(one) for one in table["rules"] if "regex" in one],
    }
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    TARGET.write_text(text.replace('{"id":', '\n{"id":') + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
