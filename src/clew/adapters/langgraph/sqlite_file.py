"""The file of LangGraph's own SqliteSaver, read without rebuilding what it names.

Its values are MessagePack with constructors in them: a module, a name, arguments. Those of Python,
LangChain and LangGraph that LangGraph itself counts as safe are made by LangGraph. Of all others
the name and the arguments are kept as data, and rebuilt where their class is allowed. Pickles are
not read.
"""

from __future__ import annotations

import json
import os
import sqlite3
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES

from clew.adapters._imports import Imported, reading
from clew.adapters._stores import AnyStore
from clew.adapters.langgraph.saver import ClewSaver
from clew.adapters.langgraph.values import Foreign
from clew.core.engine import Progress
from clew.core.errors import InvalidInput

_CONSTRUCTORS = range(6)  # the codes whose bytes begin with a module and a name


def import_sqlite(
    path: str | os.PathLike[str],
    store: ClewSaver | AnyStore,
    *,
    progress: Progress | None = None,
) -> Imported:
    """Bring every checkpoint and write of a SqliteSaver's file into a store.

    The file is only read. What is there already stays as it is, so that an import that was
    interrupted, or a file that has grown, is imported by doing it once more. `progress` is told of
    checkpoints. NotFound: there is no file. Unsupported: it is none of SqliteSaver's.
    """
    with reading(path, "LangGraph's SqliteSaver", ("checkpoints", "writes")) as file:
        saver = store if isinstance(store, ClewSaver) else ClewSaver(store)
        try:
            return _File(file).into(saver, progress)
        finally:
            if saver is not store:
                saver.close()


class _File:
    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        columns = {row[1] for row in file.execute("PRAGMA table_info(writes)")}
        self._path = "task_path" if "task_path" in columns else "''"  # of older releases

    def into(self, saver: ClewSaver, progress: Progress | None) -> Imported:
        total: int = self._file.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
        rows = self._file.execute(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, "
            "checkpoint, metadata FROM checkpoints ORDER BY thread_id, checkpoint_ns, checkpoint_id"
        )
        threads: set[str] = set()
        answer = Imported()
        for done, (thread, namespace, id, parent, form, content, metadata) in enumerate(rows, 1):
            config: RunnableConfig = {
                "configurable": {"thread_id": thread, "checkpoint_ns": namespace}
            }
            if not saver.has_checkpoint(config, id):
                try:
                    checkpoint = _value(form, content)
                    told = json.loads(metadata) if metadata is not None else {}
                    writes = [
                        (task, task_path, place, channel, _value(kind, value))
                        for task, task_path, place, channel, kind, value in self._writes(
                            thread, namespace, id
                        )
                    ]
                except (InvalidInput, ValueError, NotImplementedError) as error:
                    answer.left.append(f"checkpoint {id} of thread {thread!r}: {error}")
                    continue
                if parent is not None:
                    config["configurable"]["checkpoint_id"] = parent
                # Writes first: a checkpoint that is there has all of them.
                saver.import_checkpoint(config, checkpoint, told, writes)
                answer.entries += 1
            threads.add(thread)
            if progress is not None:
                progress(done, total)
        answer.threads = len(threads)
        return answer

    def _writes(self, thread: str, namespace: str, id: str) -> list[Any]:
        return self._file.execute(
            f"SELECT task_id, {self._path}, idx, channel, type, value FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx",
            (thread, namespace, id),
        ).fetchall()


def _value(form: str, content: bytes) -> Any:
    if form == "msgpack":
        return _unpack(content)
    if form in ("null", "bytes", "bytearray", "json"):
        return jsonplus.JsonPlusSerializer(allowed_msgpack_modules=None).loads_typed(
            (form, content)
        )
    raise InvalidInput("checkpoint", f"is stored in the form {form!r}, which is not read")


def _unpack(content: bytes) -> Any:
    return ormsgpack.unpackb(content, ext_hook=_extension, option=ormsgpack.OPT_NON_STR_KEYS)


def _extension(code: int, content: bytes) -> Any:
    if code in _CONSTRUCTORS:
        module, name, data, *_ = _unpack(content)
        if (module, name) not in SAFE_MSGPACK_TYPES:
            return Foreign(str(module), str(name), data)
    elif code == jsonplus.EXT_NUMPY_ARRAY:
        return Foreign("numpy", "ndarray", _unpack(content))
    return jsonplus._msgpack_ext_hook(code, content)
