"""Mutants that no test can notice or none should, and why: (module, text of the line, mistake)."""

from __future__ import annotations

REASONS: dict[tuple[str, str, str], str] = {
    (
        "core/codec",
        'bytearray(len(data) + 64 * (data.count(b\'"\') // 2 + data.count(b",")))',
        "Add is Sub",
    ): "memory that is asked for early: only a process that has none left can tell",
    (
        "core/codec",
        'bytearray(len(data) + 64 * (data.count(b\'"\') // 2 + data.count(b",")))',
        "the call is left out",
    ): "memory that is asked for early: only a process that has none left can tell",
    (
        "core/codec",
        "return _decode_at_once(data) if len(data) < _LARGE_BYTES else _decode(data)",
        "Lt is LtE",
    ): "both ways give the same value",
    (
        "core/codec",
        "if len(digits) > 20:  # also keeps a megabyte of digits from being multiplied out",
        "20 is 21",
    ): "what has 21 digits is refused when it is encoded",
    (
        "core/drafts",
        "is_huge = type(value) is int and abs(value) > 2**200",
        "2 is 3",
    ): "how a number is told, not whether it is taken",
    (
        "core/checked_reads",
        'return "its body is not what was written" if body else "it is not what was written"',
        "turned round",
    ): "the words of an error",
    (
        "core/checked_reads",
        'place += "" if seq is None else f", record {seq}"',
        "the sum is left out",
    ): "the words of an error",
    ("core/errors", 'text += "readonly=True"', "the sum is left out"): "the words of an error",
    (
        "core/lease_rules",
        "fence: int = 0",
        "0 is 1",
    ): "of a thread that never had a lease: any fence is greater, since they come from the clock",
    (
        "core/lease_rules",
        "created_us: int = 0",
        "0 is 1",
    ): "of a thread that never had a lease: it has no owner, so that no time counts",
    (
        "core/lease_rules",
        "until_us: int = 0  # wall time, to be shown",
        "0 is 1",
    ): "of a thread that never had a lease: it has no owner, so that no time counts",
    (
        "core/lease_rules",
        "until_ns: int = 0  # the engine's clock, to be compared",
        "0 is 1",
    ): "of a thread that never had a lease: it has no owner, so that no time counts",
    (
        "core/checked_reads",
        "if entry.parent != parent:",
        "NotEq is Eq",
    ): "the words of an error",
    (
        "core/checked_reads",
        'place += "" if entry is None else f", entry {entry!r}"',
        "turned round",
    ): "the words of an error",
    (
        "core/codec",
        "_LARGE_BYTES = 1024 * 1024",
        "1024 is 1025",
    ): "both ways give the same value",
    (
        "core/codec",
        "_LARGE_BYTES = 1024 * 1024",
        "Mult is FloorDiv",
    ): "both ways give the same value",
    (
        "core/codec",
        "if len(data) >= _LARGE_BYTES:",
        "GtE is Gt",
    ): "both ways give the same value",
    (
        "core/codec",
        'bytearray(len(data) + 64 * (data.count(b\'"\') // 2 + data.count(b",")))',
        "FloorDiv is Mult",
    ): "memory that is asked for early: only a process that has none left can tell",
    (
        "core/codec",
        'short = path if len(path) <= 60 else path[:60] + "…"',
        "turned round",
    ): "the words of an error",
    (
        "core/codec",
        'self._time = (-1, "")  # the milliseconds last seen, and how they are written',
        "1 is 2",
    ): "it is no time either",
    (
        "core/drafts",
        'return "one that is far too large" if is_huge else repr(value)',
        "gives None",
    ): "the words of an error",
    (
        "core/text_index",
        "prefix: bool = False",
        "False is True",
    ): "every query says it; what does not looks for the word of every document",
    (
        "context/bodies",
        "generation=generation if type(generation) is int and generation > 0 else 1,",
        "0 is 1",
    ): "of a generation of 1 it makes one of 1",
    (
        "context/budget",
        "if all(a is b for a, b in zip(parts, block.message.parts, strict=True)):",
        "True is False",
    ): "the two are of one length",
    (
        "context/budget",
        "last, repairs = _squeeze(turns.pop(), max(left, 0), count)",
        "0 is 1",
    ): "no message takes a single token",
    (
        "context/budget",
        "worked = False  # whether the assistant has done something in the last of them",
        "False is True",
    ): "the first block that is no system message begins a turn anyway",
    (
        "context/budget",
        "longest = max((len(t) for block in turn for t in texts(block.message.parts)), default=0)",
        "0 is 1",
    ): "both are shorter than the shortest that is cut",
    (
        "context/chunks",
        "left = 0",
        "0 is 1",
    ): "the first piece is made whatever is left",
    (
        "context/chunks",
        "longest = max("
        "(_longest(part) for block in unit for part in block.message.parts), default=0)",
        "0 is 1",
    ): "both are shorter than the shortest that is cut",
    (
        "context/chunks",
        "return max(map(len, budget.texts((value,))), default=0)",
        "0 is 1",
    ): "both are shorter than the shortest that is cut",
    (
        "context/chunks",
        "return max(map(_longest, value), default=0) if isinstance(value, list) else 0",
        "0 is 1",
    ): "both are shorter than the shortest that is cut",
    (
        "context/cut",
        "open_until = -1",
        "1 is 2",
    ): "every index is greater",
    (
        "context/cut",
        "break",
        "break is continue",
    ): "what is left only falls, so that none of the others is kept",
    (
        "context/logs",
        "last = engine.read(info.id, after=info.seq - 1, limit=1) if info.seq else []",
        "1 is 2",
    ): "of two the first counts",
    (
        "context/normalise",
        "same = len(entries) == 1 and whole == source.message.parts",
        "Eq is NotEq",
    ): "the message, or an equal copy of it",
    (
        "context/projection",
        "self._step = 0",
        "0 is 1",
    ): "only whether two are the same counts",
    (
        "context/projection",
        "self._step += 1",
        "1 is 2",
    ): "only whether two are the same counts",
    (
        "context/projection",
        "for block, place, size in zip(blocks, places, sizes, strict=True):",
        "True is False",
    ): "they are of one length",
    (
        "context/recall",
        "SIZE_BYTES_MAX = 32 * 1024 * 1024"
        "  # of the bodies, in all; what is made of them takes some more",
        "1024 is 1025",
    ): "about so much",
    (
        "context/projection",
        "_ENTRY_BYTES = 1000  # what an entry takes beside its body, about",
        "1000 is 1001",
    ): "about so much",
    (
        "context/request",
        "entries: int = 0",
        "0 is 1",
    ): "every report that is made says how many",
    (
        "context/normalise",
        "self._is_partial = False",
        "False is True",
    ): "it is said anew with each reply, and asked for behind one alone",
    (
        "context/normalise",
        "if len(parts) < len(message.parts):",
        "Lt is LtE",
    ): "the message, or an equal copy of it",
    (
        "context/normalise",
        "same = len(entries) == 1 and whole == source.message.parts",
        "1 is 2",
    ): "the message, or an equal copy of it",
    (
        "context/projection",
        "written, settled = messages.write(self.target, _messages(blocks), unicode=True), 0",
        "True is False",
    ): "there are no lone surrogates left: it would only be looked for them again",
    (
        "context/projection",
        "self._writer.take_all(_messages(self._builder.since(known)), unicode=True)",
        "True is False",
    ): "there are no lone surrogates left: it would only be looked for them again",
    (
        "context/projection",
        "ended.take_all(_messages(blocks[self._builder.settled :]), unicode=True)",
        "True is False",
    ): "there are no lone surrogates left: it would only be looked for them again",
    (
        "context/projection",
        "messages.write(target, _messages(piece), unicode=True).messages",
        "True is False",
    ): "there are no lone surrogates left: it would only be looked for them again",
    (
        "context/projection",
        "messages.check_format(options.format)",
        "the call is left out",
    ): "whoever writes the format refuses it, too, only later",
    (
        "context/projection",
        "count = max(len(self._writer.messages) - 1, 0)",
        "1 is 2",
    ): "the JSON of one message fewer is remembered",
    (
        "context/request",
        "pieces = [piece for piece in self.settled.pieces if piece[0] <= self.count]",
        "LtE is Lt",
    ): "the last piece is written once more, and the same",
    (
        "context/request",
        'return b"".join([b"[", *(parts if rest else parts[:-1]), rest, b"]"])',
        "1 is 2",
    ): "the last message is never settled, so that there is a rest or no part",
    (
        "context/recall",
        "return not window.repaired and named <= {entry.id for entry in entries}",
        "LtE is Lt",
    ): "it is made anew",
    (
        "context/tokens",
        "head = head[: len(head) - sum(map(len, list(characters(head[-32:]))[-1:]))]",
        "32 is 33",
    ): "no character is so long",
    (
        "context/window",
        "leaf, size = chunk[0].parent, min(size * 2, CHUNK_MAX)",
        "2 is 3",
    ): "how much is read at once, not what",
    (
        "core/checked_reads",
        "body = entry.tombstone is None and digest(entry.data) != entry.body_hash",
        "NotEq is Eq",
    ): "the words of an error",
    (
        "core/codec",
        'short = path if len(path) <= 60 else path[:60] + "…"',
        "60 is 61",
    ): "the words of an error",
    (
        "core/codec",
        'short = path if len(path) <= 60 else path[:60] + "…"',
        "LtE is Lt",
    ): "the words of an error",
    (
        "core/codec",
        "return _decode_at_once(data) if len(data) < _LARGE_BYTES else _decode(data)",
        "turned round",
    ): "both ways give the same value",
    (
        "core/codec",
        "if milliseconds != number >> 80:",
        "RShift is LShift",
    ): "it is written anew for each id, and the same",
    (
        "core/drafts",
        'seconds(given.get("idle_seconds", 0), "idle_seconds")',
        "0 is 1",
    ): "either is a number of seconds",
    (
        "context/window",
        "if len(chunk) < size or chunk[0].parent is None:",
        "0 is 1",
    ): "one more look, at nothing",
}
