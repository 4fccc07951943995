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
}
