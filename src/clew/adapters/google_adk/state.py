"""The names of the threads, and state as facts.

A session is the thread `adk:APP/USER/SESSION`. What `app:` and `user:` share are the facts of the
threads `adk:APP` and `adk:APP/USER`, which are archived, so that lists pass them over. State is one
fact a key: an event writes the keys that it changes, however large the state is, and writers that
change different keys do not disturb each other.

The state that a session began with stands in the fact `adk` and is never changed. So the state at
any event can be made again from it and the changes on the path to that event, which is done after
the leaf was moved: `adk.state_at` names the event that the facts are the state after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.adk.sessions.state import State
from msgspec import MsgspecError, Struct, ValidationError, convert, json

from clew.core.codec import decode, digest, encode
from clew.core.errors import Corrupt, InvalidInput
from clew.core.model import Entry, FactDraft, ThreadInfo
from clew.core.names import is_name

ADAPTER = "google-adk"
SESSION = "adk"  # the fact that says whose session a thread is
STATE_AT = "adk.state_at"
_KEY = "adk.state."
_LONG_KEY = "adk.state#"  # of a key that cannot be a part of a fact's own
_NAME_BYTES_MAX = 160  # three of them are an id

Changes = Mapping[str, Any]


# --- threads --------------------------------------------------------------------------------


def app_thread(app: str) -> str:
    return f"adk:{_spelt(app, 'app_name')}"


def user_thread(app: str, user: str) -> str:
    return f"{app_thread(app)}/{_spelt(user, 'user_id')}"


def session_thread(app: str, user: str, session: str) -> str:
    return f"{user_thread(app, user)}/{_spelt(session, 'session_id')}"


def _spelt(name: str, field: str) -> str:
    """A name as a part of an id. A slash in it is none between two parts, whoever chose it."""
    if not isinstance(name, str) or "\0" in name:
        raise InvalidInput(field, f"must be a string without NUL, not {name!r}")
    spelt = name.replace("%", "%25").replace("/", "%2F")
    try:
        data = spelt.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(field, "is not valid Unicode text") from None
    if len(data) <= _NAME_BYTES_MAX:
        return spelt
    return f"{spelt[:16]}%~{digest(data)}"  # no name is spelt with %~


class SessionFact(Struct, omit_defaults=True):
    """Whose session a thread is, and what it began with.

    `shared` are the changes of the app's and of the user's state that came with it, and `made` is
    its own: another session may get its id one day. `agent` is the author of what others wrote
    for a model.
    """

    app: str
    user: str
    session: str
    state: dict[str, Any] = {}
    shared: dict[str, dict[str, Any]] | None = None
    made: str | None = None
    agent: str | None = None

    @property
    def owner(self) -> tuple[str, str, str]:
        return self.app, self.user, self.session


_decoder = json.Decoder(SessionFact)


def session_fact(info: ThreadInfo) -> SessionFact | None:
    """What a thread says of the session that it is; None if it is none."""
    data = info.fact_data.get(SESSION)
    if data is None:
        return None
    try:
        return _decoder.decode(data)
    except (ValidationError, UnicodeDecodeError):
        return None
    except MsgspecError:  # half characters, which JSON can carry
        try:
            return convert(decode(data), SessionFact)
        except (ValidationError, Corrupt):
            return None


# --- state ----------------------------------------------------------------------------------


def state_of(info: ThreadInfo, initial: Changes) -> dict[str, Any]:
    """The state that a thread's facts hold; keys without the prefix of their scope."""
    state = dict(initial)
    for name, data in info.fact_data.items():
        if not name.startswith((_KEY, _LONG_KEY)):
            continue
        try:
            fact = decode(data)
        except Corrupt:  # verify tells of it; the other keys are there
            continue
        if isinstance(fact, dict) and "value" in fact:
            key = name.removeprefix(_KEY) if name.startswith(_KEY) else str(fact.get("key"))
            state[key] = fact["value"]
    return state


def state_at(info: ThreadInfo) -> Any:
    """The event that the facts of a session are the state after; None: as it began."""
    try:
        data = info.fact_data.get(STATE_AT)
        return None if data is None else decode(data)
    except Corrupt:
        return None


def state_after(entries: Iterable[Entry], initial: Changes) -> dict[str, Any]:
    """The state after the entries of a path, made from what it began with and their changes."""
    state = dict(initial)
    for entry in entries:
        if entry.format == "adk":
            state |= scopes(changes_of(entry.body))[0]
    return state


def changes_of(body: Any) -> dict[str, Any]:
    """What an event (as JSON) changes of the state."""
    actions = body.get("actions") if isinstance(body, dict) else None
    changes = actions.get("state_delta", {}) if isinstance(actions, dict) else {}
    return changes if isinstance(changes, dict) else {}


def scopes(changes: Changes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Changes of the session, of the app and of the user, without the prefixes of the latter."""
    session: dict[str, Any] = {}
    app: dict[str, Any] = {}
    user: dict[str, Any] = {}
    for key, value in changes.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            session[key] = value
    return session, app, user


def merged(session: Changes, app: Changes, user: Changes) -> dict[str, Any]:
    """State as a session shows it: that of the app and of the user under their prefixes."""
    state = dict(session)
    state |= {State.APP_PREFIX + key: value for key, value in app.items()}
    state |= {State.USER_PREFIX + key: value for key, value in user.items()}
    return state


def state_facts(changes: Changes, time_us: int, cause: str) -> Iterator[FactDraft]:
    """Changes as facts. `cause` makes their ids, so that a retry changes nothing once more."""
    for number, (key, value) in enumerate(changes.items()):
        # A null as a fact would remove it, and a key whose value is None is still a key.
        name, fact = _KEY + key, {"value": value}
        if not is_name(name):
            name, fact = _LONG_KEY + digest(encode(key)), {"key": key, "value": value}
        yield FactDraft(id=f"{cause}.{number}", key=name, data=encode(fact), time_us=time_us)


def forgotten_facts(info: ThreadInfo, state: Changes, time_us: int, cause: str) -> list[FactDraft]:
    """What takes away the facts of keys that a state does not have."""
    gone = [
        name
        for name, fact in info.facts.items()
        if name.startswith((_KEY, _LONG_KEY)) and isinstance(fact, dict)
        if fact.get("key", name.removeprefix(_KEY)) not in state
    ]
    return [
        FactDraft(id=f"{cause}-{number}", key=name, data=b"null", time_us=time_us)
        for number, name in enumerate(gone)
    ]
