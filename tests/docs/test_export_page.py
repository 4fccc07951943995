"""The page about exports names every form that there is, as the command does."""

from __future__ import annotations

from pathlib import Path

from clew.interchange.export import FORMS

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "export.md"


def test_every_form_is_in_the_table() -> None:
    text = PAGE.read_text("utf-8")
    for name, form in FORMS.items():
        assert f"| `{name}` | `{form.ending}` | {form.about} |" in text
