"""Compressed blobs and runs: what is damaged is told, and what is too large is not begun."""

from __future__ import annotations

import pytest

import clew
from clew.core.codec import digest
from clew.engines.shared import compression
from clew.engines.shared.compression import compress_run, decompress_run, frame_size, pack


def test_a_blob_that_is_too_large_is_refused_before_it_is_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "BLOB_BYTES_MAX", 10)
    assert pack(b"x" * 10).size == 10
    with pytest.raises(clew.TooLarge) as caught:
        pack(b"x" * 11)
    assert (caught.value.fields["size"], caught.value.fields["limit"]) == (11, 10)


def test_a_frame_that_does_not_say_its_size_is_damage() -> None:
    zstd = compression._zstd()
    data = zstd.compress(b"x" * 1000, options={zstd.CompressionParameter.content_size_flag: 0})
    with pytest.raises(clew.Corrupt, match="how large it is"):
        frame_size(digest(b"x" * 1000), data)
    with pytest.raises(clew.Corrupt, match="has None bytes"):
        decompress_run(data, 10_000)


def test_a_run_without_the_end_that_proves_it_is_damage() -> None:
    data = compress_run(b"many words " * 1000)
    assert decompress_run(data, 100_000) == b"many words " * 1000
    for broken in (data[:-1], data[:-4], data + b"x"):
        with pytest.raises(clew.Corrupt, match="a pack"):
            decompress_run(broken, 100_000)
