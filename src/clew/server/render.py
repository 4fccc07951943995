"""Text as markup: Markdown, code, differences, JSON. Stored text never becomes markup itself.

Markdown is rendered with HTML switched off, and what comes out is sanitised once more, so that a
mistake in one of the two does no harm. Pictures of other servers are not shown: they would tell
those servers who reads this. What is returned as Markup is safe to print as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from html import escape
from typing import Any, Literal

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup
from msgspec import Struct
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

CODE_CHARACTERS_MAX = 20_000  # that are coloured; more of it is shown plain
MARKDOWN_CHARACTERS_MAX = 100_000
DIFF_LINES_MAX = 4_000
_TAGS = set(
    "p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a table thead tbody tr th "
    "td span div".split()
)
# Without any of these a text is one paragraph, which most prompts and many answers are.
_MARKED = re.compile(r"[\n\t\\`*_~\[\]<>&#|!]|^\s|\s$|^$|^[-+=]|^\d+[.)]|  ")
# Without any of these, no rule of those below can apply.
_RARE = re.compile(r"[|~\[<&]|^[ \t>]*(?:=+|-+)[ \t]*$", re.MULTILINE)
_RARE_RULES = "reference html_block lheading link image autolink html_inline entity".split()
_CLASS = re.compile(r"(highlight|code|[a-z]{1,2}[0-9a-z]?)")  # Pygments' own, and ours
_LINK = re.compile(r"(https?://|mailto:)", re.I)
# Characters that turn the direction of reading around make code look like other code.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def clean(text: str) -> str:
    """Without the colours of terminals, control characters and lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    seen = _UNSEEN.sub("\ufffd", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
    return seen.encode("utf-8", "replace").decode("utf-8")


# --- Markdown -------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def markdown(text: str) -> Markup:
    text = clean(text)
    if len(text) > MARKDOWN_CHARACTERS_MAX:
        return Markup(f'<pre class="plain">{escape(text)}</pre>')
    if not _MARKED.search(text):
        return Markup(f"<p>{escape(text)}</p>\n")  # `Markup.format` takes ten times as long
    return Markup(_sanitiser().clean(_parser(bool(_RARE.search(text))).render(text)))


@cache
def _sanitiser() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "span": {"class"}, "div": {"class"}},
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "class":
        return value if _CLASS.fullmatch(value) else None
    if name == "href":
        return value if _LINK.match(value) else None  # no address of this server
    return value


@cache
def _parser(rare: bool = True) -> MarkdownIt:
    """Markdown; without what is `rare`, whose rules would be tried on every line in vain."""
    made = MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": _fenced})
    if not rare:
        return made.disable(_RARE_RULES)
    made.enable(["table", "strikethrough"])
    made.add_render_rule("image", _image)
    return made


def _image(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    shown = escape(token.content or "image")
    place = escape(str(token.attrGet("src") or ""), quote=True)
    return f'<a href="{place}">[image: {shown}]</a>'


def _fenced(text: str, language: str, attributes: str) -> str:
    return f"<pre>{coloured(text, language)}</pre>"


# --- code -----------------------------------------------------------------------------------


def code(text: str, *, language: str = "", path: str = "") -> Markup:
    """A block of code; its language by name, or by the name of a file."""
    shown = coloured(clean(text), language, path)
    return Markup(f'<div class="code"><pre tabindex="0">{shown}</pre></div>')


@lru_cache(maxsize=2048)
def coloured(text: str, language: str = "", path: str = "") -> str:
    lexer = _lexer(language.strip().split(" ")[0].lower(), path)
    if lexer is None or len(text) > CODE_CHARACTERS_MAX:
        return escape(text)
    return str(highlight(text, lexer, _FORMATTER)).rstrip("\n")


def coloured_lines(lines: Sequence[str], path: str) -> list[Markup]:
    """The same for each line of a file by itself; they are clean, and have no line ends."""
    # What colours code closes its marks at every end of a line.
    made = coloured("\n".join(lines), path=path).split("\n")
    made += [""] * (len(lines) - len(made))  # empty lines at the end are cut
    if len(made) != len(lines):
        made = [escape(line) for line in lines]
    return [Markup(line) for line in made]


_FORMATTER: Any = HtmlFormatter(nowrap=True)


@lru_cache(maxsize=256)
def _lexer(language: str, path: str) -> Any:
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False)
        return get_lexer_for_filename(path.rsplit("/")[-1], stripnl=False) if path else None
    except ClassNotFound:
        return None


def data(value: Any) -> Markup:
    """Any JSON value, indented."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return code(text, language="json")


# --- differences ----------------------------------------------------------------------------

Sort = Literal["same", "added", "removed", "head"]


class Line(Struct, frozen=True):
    sort: Sort
    text: str


def compare(old: str, new: str) -> list[Line]:
    """Two texts as lines of a difference, with three lines around each change."""
    before, after = clean(old).splitlines(), clean(new).splitlines()
    if len(before) + len(after) > DIFF_LINES_MAX:
        return [Line("removed", line) for line in before] + [Line("added", line) for line in after]
    return list(_lines(list(difflib.unified_diff(before, after, lineterm=""))[2:]))


def read_patch(text: str) -> list[Line]:
    """Lines of a unified difference, or of the patches that agents write."""
    return list(_lines(clean(text).splitlines()))


def _lines(lines: Sequence[str]) -> Iterator[Line]:
    for line in lines:
        if line.startswith(("@@", "diff --git", "--- ", "+++ ", "*** ", "index ", "rename ")):
            yield Line("head", line)
        elif line.startswith("+"):
            yield Line("added", line[1:])
        elif line.startswith("-"):
            yield Line("removed", line[1:])
        else:
            yield Line("same", line.removeprefix(" "))


def looks_like_patch(text: str) -> bool:
    head = text[:2000]
    return bool(
        re.search(r"^(diff --git |\*\*\* Begin Patch)", head, re.MULTILINE)
        or re.search(r"^--- .*\n\+\+\+ .*\n@@ ", head, re.MULTILINE)
    )
