"""What the judges of the providers' rules share.

A judge looks at the JSON of a request's messages alone, never at the neutral view, so that it
finds the faults of readers and writers too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from clew.messages.neutral import Violation
from clew.messages.shared.media import is_unicode


class Judge:
    """Collects violations. `index` is the message at hand."""

    def __init__(self, messages: list[Any]) -> None:
        self.found: list[Violation] = []
        self.index: int | None = None
        if not messages:
            self.broken("empty", "at least one message is needed")
        elif not is_unicode(messages):
            self.broken("unicode", "a text holds characters that are not Unicode")

    def each(self, messages: list[Any]) -> Iterator[dict[str, Any]]:
        """Each message that is an object; `index` follows, so that violations name it."""
        for self.index, value in enumerate(messages):
            if self.holds(isinstance(value, dict), "shape", "a message is not an object"):
                yield value
        self.index = None

    def broken(self, rule: str, message: str) -> None:
        self.found.append(Violation(rule, message, self.index))

    def holds(self, condition: bool, rule: str, message: str) -> bool:
        if not condition:
            self.broken(rule, message)
        return condition

    def object(self, value: Any, what: str) -> dict[str, Any]:
        """The value; an empty object in place of anything else, so that judging can go on."""
        if self.holds(isinstance(value, dict), "shape", f"{what} is not an object"):
            return value  # type: ignore[no-any-return]
        return {}

    def objects(self, value: Any, what: str) -> list[dict[str, Any]]:
        """The objects of a list. The list must not be empty, nor hold anything but objects."""
        if not self.holds(isinstance(value, list), "shape", f"{what} is not a list"):
            return []
        self.holds(bool(value), "empty_content", f"{what} is empty")
        return [found for item in value if (found := self.object(item, f"an element of {what}"))]

    def text(self, block: dict[str, Any], key: str) -> str | None:
        """The string under a key; None in place of anything else."""
        value = block.get(key)
        if self.holds(isinstance(value, str), "shape", f"{key} is not a string"):
            return value
        return None

    def known(self, value: Any, values: Collection[str], rule: str, what: str) -> bool:
        fits = isinstance(value, str) and value in values
        return self.holds(fits, rule, f"{what} {value!r} is not one of {', '.join(values)}")

    def matches(self, value: Any, pattern: re.Pattern[str], rule: str, what: str) -> bool:
        fits = isinstance(value, str) and pattern.fullmatch(value) is not None
        return self.holds(fits, rule, f"{what} {value!r} does not match {pattern.pattern}")


class Pairs:
    """Calls that wait for their results."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._seen: set[str] = set()
        # The id of a call → the kind of result that it wants, and where the call stands.
        self._open: dict[str, tuple[str, int | None]] = {}
        self._answered: set[str] = set()

    def call(self, id: Any, kind: str = "") -> None:
        if not isinstance(id, str):
            self._judge.broken("shape", "the id of a call is not a string")
            return
        # Over the whole request, not among the open calls: providers want ids to be unique.
        self._judge.holds(id not in self._seen, "duplicate_id", f"call {id!r} appears twice")
        self._seen.add(id)
        self._open[id] = kind, self._judge.index

    def result(self, id: Any, kind: str = "") -> None:
        if not isinstance(id, str):
            self._judge.broken("shape", "the id of the call that a result answers is not a string")
        elif self._open.get(id, (None,))[0] == kind:
            del self._open[id]
            self._answered.add(id)
        elif id in self._answered:
            self._judge.broken("duplicate_result", f"call {id!r} is answered twice")
        else:
            self._judge.broken("orphan_result", f"no open call {id!r} of this kind stands before")

    def close(self) -> None:
        """No result may come any more: report the calls without one."""
        for id, (_, index) in self._open.items():
            text = f"call {id!r} has no result"
            self._judge.found.append(Violation("unanswered_call", text, index))
        self._open.clear()
        self._answered.clear()
