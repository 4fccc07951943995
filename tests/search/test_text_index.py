"""The index of words of every engine gives exactly the documents that a query asks for."""

from __future__ import annotations

import random

import pytest
from amounts import amount
from places import MemoryPlace, SQLitePlace
from search_questions import build, score

from clew.core.text_index import (
    EVERY,
    Addition,
    And,
    Document,
    Filter,
    Known,
    Or,
    Query,
    Words,
    leaves,
    memory_text_index,
    open_text_index,
)
from clew.search.searcher import matches
from clew.store import Store

VOCABULARY = ["a", "b", "c", "ab", "abc", "x1", "é", "天", "气", "q" * 70]
NOON_US = 1_780_000_000_000_000


def text(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(VOCABULARY, k=chance.randint(0, most)))


def documents(chance: random.Random) -> list[Document]:
    made = []
    for seq in range(1, 81):
        columns = tuple(text(chance, 6) for _ in range(3))
        last = f"{text(chance, 6)} {EVERY}"
        made.append(Document(seq, seq, 10, (columns[0], columns[1], columns[2], last)))
    return made


def query(chance: random.Random, depth: int = 0, columns: bool = True) -> Query:
    kind = chance.random()
    if depth > 2 or kind < 0.5:
        words = tuple(word[:64] for word in chance.choices(VOCABULARY, k=chance.choice((1, 1, 2))))
        prefix = chance.random() < 0.2 or len(words[-1]) >= 64
        column = chance.randrange(4) if columns and chance.random() < 0.15 else None
        # A word that is longer than an index must keep can only end a phrase.
        if any(len(word) >= 64 for word in words[:-1]):
            words = words[-1:]
        return Words(words, prefix, column)
    parts = tuple(query(chance, depth + 1, columns) for _ in range(chance.choice((1, 2, 3))))
    if kind < 0.75:
        return Or(parts)
    unwanted = tuple(query(chance, depth + 1, columns) for _ in range(chance.choice((0, 0, 1, 2))))
    return And(parts if chance.random() < 0.9 or not unwanted else (), unwanted)


def test_a_query_finds_the_documents_that_match_it_and_no_others(
    place: MemoryPlace | SQLitePlace,
) -> None:
    chance = random.Random(11)
    made = documents(chance)
    engine = place.open()
    index = open_text_index(engine, 1)
    assert index is not None
    index.add([Addition(thread="t", before=None, now=Known("b", 80, "h"), documents=made)])
    for _ in range(amount(80, 1000)):
        asked = query(chance)
        wanted = {document.seq for document in made if matches(asked, document)}
        found = index.search(asked, Filter(), limit=1000)
        assert {one.seq for one in found.candidates} == wanted, asked
        assert found.total == len(wanted)
        newest = index.search(asked, Filter(), limit=1000, newest=True).candidates
        assert [one.seq for one in newest] == sorted(wanted, reverse=True)
    index.close()
    engine.close()


def test_every_engine_counts_alike(place: MemoryPlace | SQLitePlace) -> None:
    chance = random.Random(12)
    made = documents(chance)
    engine = place.open()
    index, model = open_text_index(engine, 1), memory_text_index(1)
    assert index is not None
    for one in (index, model):
        one.add([Addition(thread="t", before=None, now=Known("b", 80, "h"), documents=made)])
    for _ in range(amount(40, 400)):
        asked = query(chance, columns=False)  # nothing is ranked by those that only narrow
        ours = {c.seq: c for c in index.search(asked, Filter(), limit=1000).candidates}
        theirs = {c.seq: c for c in model.search(asked, Filter(), limit=1000).candidates}
        assert ours == theirs, asked
        assert index.counts(leaves(asked)) == model.counts(leaves(asked))
    index.close()
    engine.close()


def test_what_another_process_was_first_with_is_dropped(place: MemoryPlace | SQLitePlace) -> None:
    engine = place.open()
    index = open_text_index(engine, 1)
    assert index is not None
    made = documents(random.Random(1))
    first, second = Known("b", 40, "h1"), Known("b", 80, "h2")
    index.add([Addition(thread="t", before=None, now=first, documents=made[:40])])
    for before, now, some in ((None, first, made[:40]), (first, second, made[40:])) * 2:
        index.add([Addition(thread="t", before=before, now=now, documents=some)])
    assert index.known() == {"t": second}
    assert index.search(And(()), Filter(), limit=1000).total == 80
    index.remove(["t", "never there"])
    assert index.known() == {}
    assert index.search(And(()), Filter(), limit=1000).total == 0
    index.close()
    engine.close()


def test_marks_choose_threads(place: MemoryPlace | SQLitePlace) -> None:
    engine = place.open()
    index = open_text_index(engine, 1)
    assert index is not None
    document = documents(random.Random(1))[0]
    for id, marks in (("t", {"tag": ("a", "b")}), ("u", {"tag": ("b",)})):
        now = Known("b", 1, "h")
        index.add([Addition(thread=id, before=None, now=now, documents=[document], marks=marks)])

    def found(**filter: object) -> list[str]:
        matches = index.search(And(()), Filter(**filter), limit=10, newest=True)  # type: ignore[arg-type]
        return sorted(one.thread for one in matches.candidates)

    assert found(marks=(("tag", "b"),)) == ["t", "u"]
    assert found(marks=(("tag", "b"), ("tag", "a"))) == ["t"]
    assert found(without=(("tag", "a"),)) == ["u"]
    assert found(threads=("t", "x")) == ["t"]
    assert found(since_us=document.time_us, until_us=document.time_us + 1) == ["t", "u"]
    assert found(until_us=document.time_us) == []
    known = index.known()["t"]
    more = Addition(
        thread="t", before=known, now=known, marks={"tag": ()}, more_marks=[("model", "m")]
    )
    index.add([more])
    assert found(marks=(("tag", "a"),)) == []
    assert found(marks=(("model", "m"),)) == ["t"]
    index.close()
    engine.close()


@pytest.fixture(scope="module")
def answers() -> list[list[tuple[str, int, float]]]:
    from clew.engines.memory import MemoryEngine

    return ask(Store(MemoryEngine(), clock=lambda: NOON_US))


def ask(store: Store) -> list[list[tuple[str, int, float]]]:
    questions = build(store, amount(40, 160))
    pages = [
        store.search(question.text, limit=50) for question in questions[::9] + questions[5::18]
    ]
    return [[(hit.thread, hit.seq, hit.score) for hit in page.items] for page in pages]


def test_every_engine_gives_the_same_hits_in_the_same_order(
    place: MemoryPlace | SQLitePlace, answers: list[list[tuple[str, int, float]]]
) -> None:
    store = Store(place.open(), clock=lambda: NOON_US)
    assert ask(store) == answers
    store.close()


def test_questions_are_answered() -> None:
    """The floor of what `make bench` prints; a change of words or weights must not sink below."""
    from clew.engines.memory import MemoryEngine

    store = Store(MemoryEngine(), clock=lambda: NOON_US)
    found = score(store, build(store, amount(40, 160)))
    asked, first, five = found["all"]
    assert asked >= amount(300, 1400)
    assert first / asked >= 0.9
    assert five / asked >= 0.95
    for kind, (count, best, some) in found.items():
        floor = (0.5, 0.7) if "paraphrase" in kind else (0.9, 0.95)
        assert (best / count, some / count) >= floor, kind
