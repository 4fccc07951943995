"""The door: what an engine could not take is refused before it is asked, by its field."""

from __future__ import annotations

from typing import Any

import pytest

from clew.core import codec, drafts, facts
from clew.core.errors import Corrupt, InvalidInput
from clew.core.options import PackOptions

NUMBER_MAX = 2**63 - 1


@pytest.mark.parametrize("value", [0, 1, NUMBER_MAX])
def test_a_number_that_every_database_takes_is_taken(value: int) -> None:
    assert drafts.check_number(value, "n") == value
    assert drafts.check_fence(value) == value
    assert drafts.check_fence(None) is None


@pytest.mark.parametrize(
    "value", [-1, NUMBER_MAX + 1, 10**5000, True, 1.0, "1", None], ids=lambda v: type(v).__name__
)
def test_what_is_no_such_number_is_refused_by_name(value: Any) -> None:
    """Also a number that Python itself refuses to spell out in a message."""
    with pytest.raises(InvalidInput) as refused:
        drafts.check_number(value, "n")
    assert refused.value.fields["field"] == "n"
    assert "from 0 on" in str(refused.value)


def test_the_bounds_of_a_number_are_taken_and_told() -> None:
    assert [drafts.check_number(n, "n", 1, 3) for n in (1, 3)] == [1, 3]
    for wrong in (0, 4):
        with pytest.raises(InvalidInput, match="from 1 to 3"):
            drafts.check_number(wrong, "n", 1, 3)


@pytest.mark.parametrize("value", [0, 0.5, 3, 1e10])
def test_a_span_of_time_is_taken(value: float) -> None:
    assert drafts.seconds(value, "s") == value
    assert type(drafts.seconds(value, "s")) is float


@pytest.mark.parametrize("value", [-1, 1.1e10, float("nan"), float("inf"), True, "1", None])
def test_what_no_clock_can_wait_for_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="number of seconds"):
        drafts.seconds(value, "s")
    for field in ("idle_seconds", "max_seconds"):
        if value is not None:
            with pytest.raises(InvalidInput, match=field):
                drafts.pack_options({field: value})  # type: ignore[misc]


def test_what_a_pack_may_be_told_comes_back() -> None:
    given = PackOptions(tail=1, idle_seconds=0, max_seconds=None)
    assert drafts.pack_options(given) is given
    with pytest.raises(InvalidInput, match="tail"):
        drafts.pack_options(PackOptions(tail=0))
    with pytest.raises(InvalidInput, match="idle_seconds"):
        drafts.pack_options({"idle_seconds": None})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("value", ["text", b"bytes", 5, None])
def test_a_text_is_no_list_of_things(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a list"):
        drafts.several(value, "things")
    assert drafts.several(("a",), "things") == ("a",)


@pytest.mark.parametrize("value", ["", "a\0b", b"folder", None, 5])
def test_an_empty_name_is_never_the_current_folder(value: Any) -> None:
    with pytest.raises(InvalidInput, match="no name of a folder"):
        drafts.check_folder(value, "folder")
    assert drafts.check_folder(".", "folder") == "."


@pytest.mark.parametrize("key", ["deleted_us", "last_viewed_us", "status", "workspace"])
def test_a_stored_fact_of_another_shape_is_damage_and_not_a_value(key: str) -> None:
    """Readers would take a time that is none for one, and show a deleted thread as live."""
    with pytest.raises(Corrupt, match=key):
        facts.read_fact(key, codec.encode([1]))
    with pytest.raises(InvalidInput, match=key):
        facts.check_fact(key, [1])
    assert facts.read_fact(key, b"null") is None
    assert facts.read_fact("a key of one's own", codec.encode([1])) == [1]
