"""Mutants that no test can notice or none should, and why: (module, text of the line, mistake)."""

from __future__ import annotations

REASONS: dict[tuple[str, str, str], str] = {}
