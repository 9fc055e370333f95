"""Parts of a LaTeX document as plain text: the listing and the rows of a table with a given label."""

from __future__ import annotations

import re
from collections.abc import Iterator

from refusal_index.errors import RefusalIndexError, nearest, shortened

FLOAT = re.compile(r"\\begin\{(?P<kind>(?:figure|table)\*?)\}(?P<content>.*?)\\end\{(?P=kind)\}", re.DOTALL)
LISTING = re.compile(
    r"^[^%\n]*\\begin\{(?P<kind>lstlisting|verbatim)\}(?:\[[^\]]*\])?[^\S\n]*\n(?P<content>.*?)\n[^\S\n]*"
    r"\\end\{(?P=kind)\}",
    re.DOTALL | re.MULTILINE,
)
LABEL = re.compile(r"\\label\{([^{}]*)\}")
COMMENT = re.compile(r"(?P<kept>\\verb\*?(?P<mark>[^A-Za-z\s])[^\n]*?(?P=mark)|\\.)|%[^\n]*\n?")
TABULAR = re.compile(r"\\begin\{(?P<kind>tabular[xy*]?)\}(?:\[[^\]]*\])?(?P<body>.*)\\end\{(?P=kind)\}", re.DOTALL)
RULE = re.compile(r"\\(?:(?:top|mid|bottom|cmid)rule(?:\([^)]*\))?(?:\{[^{}]*\})?|hline)(?![A-Za-z])")
ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?")
CELL_END = re.compile(r"(?<!\\)&")
TOKEN = re.compile(
    r"\\verb\*?(?P<mark>[^A-Za-z\s])(?P<verbatim>.*?)(?P=mark)|\\(?P<word>[A-Za-z]+)\s*|\\(?P<sign>.)"
    r"|(?P<special>---|--|``|''|[~{}$])|(?P<other>.)",
    re.DOTALL,
)
SPECIAL = {"---": "\u2014", "--": "\u2013", "``": "\u201c", "''": "\u201d", "~": " ", "{": "", "}": "", "$": ""}
"""What signs of LaTeX show in running text; signs of grouping and of mathematics show nothing."""

WORDS = {
    **dict.fromkeys(("texttt", "textbf", "textit", "textsc", "textrm", "textsf", "text", "emph", "mbox"), ""),
    **dict.fromkeys(("tt", "bf", "it", "small", "centering", "noindent", "mathrm", "ttfamily"), ""),
    "textless": "<",
    "textgreater": ">",
    "lt": "<",
    "gt": ">",
    "ldots": "...",
    "dots": "...",
    "slash": "/",
    "textbackslash": "\\",
    "textunderscore": "_",
    "textasciitilde": "~",
    "textbar": "|",
    "textquotedbl": '"',
}
"""What commands show: those of style nothing, as their argument follows."""

ESCAPED = {**{sign: sign for sign in "$%&#_{}"}, ",": " ", " ": " ", "/": "", "-": ""}
"""What a backslash and a sign show."""


class PaperError(RefusalIndexError, ValueError):
    """The paper's LaTeX source, if a part of it cannot be found or read; the message names the file and the part."""


class LatexSource:
    """A LaTeX document.

    Parameters
    ----------
    text
        Its text; comments outside of listings are ignored.
    name
        The name of its file, for messages.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._text = "".join(_without_comments(text.replace("\r\n", "\n")))

    def listing(self, label: str, what: str) -> str:
        """Return the text of the listing in the figure with a label, as it stands.

        Raises
        ------
        PaperError
            If there is no such figure, or it has no listing.
        """
        content = self._labelled(label, what)
        found = LISTING.search(content)
        if found is None:
            raise PaperError(
                f"{self.name}: expected a listing ({what}) in the figure with the label {label}, found none"
            )
        return found["content"].strip("\n")

    def rows(self, label: str, what: str) -> list[list[str]]:
        """Return the cells of the rows of the table with a label, as plain text; rules between rows are left out.

        Raises
        ------
        PaperError
            If there is no such table, or a cell cannot be read.
        """
        content = self._labelled(label, what)
        found = TABULAR.search(content)
        if found is None:
            raise PaperError(f"{self.name}: expected a tabular ({what}) in the table {label}, found none")
        body = RULE.sub("", _after_groups(found["body"]))
        place = f"{self.name}, table {label}"
        rows = [CELL_END.split(row) for row in ROW_END.split(body)]
        return [[plain_text(cell, place) for cell in row] for row in rows if len(row) > 1]

    def _labelled(self, label: str, what: str) -> str:
        """Return the content of the figure or table with a label."""
        labels: list[str] = []
        for found in FLOAT.finditer(self._text):
            own = LABEL.findall(found["content"])
            if label in own:
                return found["content"]
            labels += own
        near = nearest(label, labels)
        guess = f", the nearest is {near}" if near else ""
        raise PaperError(
            f"{self.name}: expected a figure or table with the label {label} ({what}), found none among "
            f"{len(labels)} labels{guess}; name the LaTeX source of the paper"
        )


def _after_groups(text: str) -> str:
    """Return what follows the arguments in braces with which a text begins: the width and columns of a table."""
    depth = 0
    for position, sign in enumerate(text):
        if depth == 0 and not sign.isspace() and sign != "{":
            return text[position:]
        depth += (sign == "{") - (sign == "}")
    return ""


def _kept(found: re.Match[str]) -> str:
    return found["kept"] or ""


def _without_comments(text: str) -> Iterator[str]:
    """Yield a text without its comments; listings have none."""
    end = 0
    for listing in LISTING.finditer(text):
        yield COMMENT.sub(_kept, text[end : listing.start()])
        yield listing[0]
        end = listing.end()
    yield COMMENT.sub(_kept, text[end:])


def plain_text(latex: str, place: str) -> str:
    r"""Return running text without LaTeX markup, with single spaces.

    Parameters
    ----------
    latex, place
        The text, and where it stands, for messages.

    Raises
    ------
    PaperError
        If it contains a command whose meaning is not known.

    Examples
    --------
    >>> plain_text(r"Write $<$b$>$\texttt{NO\_WAY}$<$/b$>$, \verb|5% {x}|", "here")
    'Write <b>NO_WAY</b>, 5% {x}'
    >>> plain_text(r"\foo{x}", "table t")
    Traceback (most recent call last):
    ...
    refusal_index.plugins.paper.latex.PaperError: table t: expected text, found the command \foo ...
    """
    shown = []
    for token in TOKEN.finditer(latex):
        text = _shown(token)
        if text is None:
            raise PaperError(
                f"{place}: expected text, found the command {token[0].strip()} in {shortened(latex.strip())}, whose "
                "meaning is not known; write what it shows in its place, in a copy"
            )
        shown.append(text)
    return " ".join("".join(shown).split())


def _shown(token: re.Match[str]) -> str | None:
    """Return what a token shows; None for a command whose meaning is not known."""
    if token["word"]:
        return WORDS.get(token["word"])
    if token["sign"]:
        return ESCAPED.get(token["sign"])
    if token["special"]:
        return SPECIAL[token["special"]]
    return token["verbatim"] or token["other"] or ""
