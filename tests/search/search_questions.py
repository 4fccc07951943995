"""Conversations with known answers, and questions of several kinds about them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from clew.store import Store

THREADS = 160
_BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

_SERVICES = """billing checkout invoice catalog search gateway session profile inventory shipping
notification scheduler payments ledger audit export import webhook telemetry pricing""".split()
_PARTS = """parser cache queue router worker serializer validator migration index cursor socket
buffer registry planner formatter resolver limiter watcher encoder snapshot""".split()
_FAULTS = (
    (
        "TimeoutError",
        "timed out after {n} seconds",
        "how long until the {part} of {service} gave up",
    ),
    ("KeyError", "missing key 'row_{n}'", "which key was missing in the {service} {part}"),
    (
        "ConnectionRefusedError",
        "refused on port {n}",
        "port refused the connection {service} {part}",
    ),
    (
        "MemoryError",
        "allocated {n} MB and was killed",
        "how much was allocated by {service} {part}",
    ),
    ("UnicodeDecodeError", "bad byte at offset {n}", "where was the bad byte of {service} {part}"),
)
_VERBS = """fix speed up rewrite remove test document split rename cache retry""".split()
_CHATTER = """I looked at the logs and the tests, and will change it step by step. Let me run the
suite again. The build is green now. Here is what I found so far. Could you check that the rest
still works? I will add a test for it. The function is called from three places.""".split(". ")
_CHINESE = "修复 登录 页面 缓存 队列 错误 超时 测试 配置 数据 备份 索引 权限 接口 日志".split()


@dataclass(frozen=True)
class Question:
    kind: str
    text: str
    thread: str
    seqs: frozenset[int]  # any of these records is a right answer


def build(store: Store, threads: int = THREADS) -> list[Question]:
    """Fill a store; the questions, each with the records that answer it."""
    chance = random.Random(7)
    topics = [(service, part) for service in _SERVICES for part in _PARTS]
    chance.shuffle(topics)
    questions: list[Question] = []
    for number, (service, part) in enumerate(topics[:threads]):
        questions += _converse(store, chance, number, service, part)
    return questions


def _converse(
    store: Store, chance: random.Random, number: int, service: str, part: str
) -> list[Question]:
    time = _BEGIN + timedelta(hours=7 * number)
    verb = chance.choice(_VERBS)
    title = f"{verb} the {part} of {service}"
    thread = store.create(f"t{number}", title=title, time=time)
    n = 1000 + number * 7
    error, said, asked = _FAULTS[number % len(_FAULTS)]
    camel = f"load{service.capitalize()}{part.capitalize()}"
    snake = f"flush_{part}_{service}_{n}"
    path = f"src/{service}/{part}_{n}.py"
    day = f"{time:%Y-%m-%d}"
    two = chance.sample(_CHINESE, 2)
    messages = [
        {"role": "user", "content": f"Please {verb} the {part} of {service}, it broke on {day}."},
        _call("read_file", f'{{"path": "{path}"}}', chance.choice(_CHATTER)),
        _result(f"def {camel}(rows):\n    return {snake}(rows)  # {chance.choice(_CHATTER)}"),
        _call("bash", f'{{"command": "pytest tests/{service} -k {part}"}}', ""),
        _result(f"E  {error}: {service}.{part} {said.format(n=n)}\n1 failed, {n % 90} passed"),
        {"role": "assistant", "content": f"{chance.choice(_CHATTER)}. I changed {snake}."},
        {
            "role": "user",
            "content": f"谢谢，{two[0]}{two[1]}第{n}号好了。{chance.choice(_CHATTER)}",
        },
    ]
    seqs = [
        thread.append_message(m, time=time + timedelta(minutes=i)).seq
        for i, m in enumerate(messages)
    ]
    ask, read, code, run, fault, done, thanks = seqs
    return [
        _question("exact words", f'"the {part} of {service}"', thread.id, ask, ask - 1),
        _question("identifier", snake, thread.id, code, done),
        _question("identifier", camel, thread.id, code),
        _question("part of an identifier", f"load {service} {part}", thread.id, code),
        _question("path", path, thread.id, read),
        _question(
            "paraphrase of tool output", asked.format(service=service, part=part), thread.id, fault
        ),
        _question("date", f"{service} broke {day}", thread.id, ask),
        _question("two languages", f"{two[0]} {n}", thread.id, thanks),
        _question("command", f"pytest {service} {part}", thread.id, run),
    ]


def _question(kind: str, text: str, thread: str, *seqs: int) -> Question:
    return Question(kind, text, thread, frozenset(seqs))


def _call(name: str, arguments: str, text: str) -> dict[str, object]:
    calls = [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def _result(text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": "c", "content": text}


def score(store: Store, questions: list[Question]) -> dict[str, tuple[int, int, int]]:
    """By kind, and for all: how many were asked, right at the first hit, and within five."""
    found: dict[str, tuple[int, int, int]] = {}
    for question in questions:
        hits = store.search(question.text, limit=5).items
        right = [h.thread == question.thread and h.seq in question.seqs for h in hits]
        for kind in (question.kind, "all"):
            asked, first, five = found.get(kind, (0, 0, 0))
            found[kind] = (asked + 1, first + (right[:1] == [True]), five + any(right))
    return found
