"""Elements of an HTML page that needs no network and no script; `page.html` is its template."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template

_TEMPLATE = "page.html"


@dataclass(frozen=True)
class Html:
    """Text that is HTML; all other text is escaped."""

    text: str


Content = Html | str


def escaped(content: Content) -> str:
    return content.text if isinstance(content, Html) else html.escape(content)


def element(tag: str, *contents: Content, css: str = "") -> Html:
    """<tag class="css">contents</tag>."""
    attribute = f' class="{css}"' if css else ""
    return Html(f"<{tag}{attribute}>{''.join(map(escaped, contents))}</{tag}>")


def table(
    header: Sequence[Content], rows: Iterable[Sequence[Content]], *, of_text: bool = False
) -> Html:
    """A table of numbers or of text; it scrolls sideways with a fixed first column."""
    head = element("tr", *(element("th", cell) for cell in header))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, css="wide text" if of_text else "wide")


def figure(svg: str, caption: Content) -> Html:
    """A plot with a caption below it."""
    return element("figure", Html(svg), element("figcaption", caption))


def named_figure(name: str, about: str, svg: str) -> Html:
    """One plot of a series, with its name above it."""
    above = element("figcaption", element("b", name), element("span", about), css="above")
    return element("figure", above, Html(svg))


def cards(figures: Iterable[Html]) -> Html:
    """Figures in a responsive grid."""
    return element("div", *figures, css="grid")


def how_to_read(text: str) -> Html:
    return element("p", text)


def not_shown(text: str) -> Html:
    """What must not be concluded from a figure."""
    return element("p", text, css="not")


def folded(title: str, *contents: Html) -> Html:
    """Content that is collapsed at first."""
    return element("details", element("summary", title), *contents)


def descriptions(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Names and their values as a description list."""
    return element(
        "dl", *(part for name, what in pairs for part in (element("dt", name), element("dd", what)))
    )


def from_markdown(text: str) -> Html:
    """Paragraphs and tables with **bold**, the subset of Markdown that this package writes."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return Html("".join(_block(block.splitlines()).text for block in blocks))


def _block(lines: Sequence[str]) -> Html:
    if not lines[0].startswith("|"):
        return element("p", _bold(" ".join(lines)))
    header, _, *rows = ([_bold(c) for c in line.strip("| ").split(" | ")] for line in lines)
    return table(header, rows)


def _bold(text: str) -> Html:
    return Html(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text)))


@dataclass(frozen=True)
class ReportSection:
    """A section of the page, linked from its top."""

    key: str
    title: str
    contents: Sequence[Html]


def page(title: str, lead: Content, top: Sequence[Html], sections: Sequence[ReportSection]) -> str:
    """The whole file."""
    links = [Html(f'<a href="#{s.key}">{html.escape(s.title)}</a>') for s in sections]
    body = [
        element("h1", title),
        element("p", lead, css="lead"),
        *top,
        element("nav", *links),
        *map(_section, sections),
    ]
    template = (resources.files(__package__) / _TEMPLATE).read_text(encoding="utf-8")
    return Template(template).substitute(title=html.escape(title), body=_joined(body))


def _joined(parts: Iterable[Html]) -> str:
    return "\n".join(part.text for part in parts)


def _section(section: ReportSection) -> Html:
    heading = element("h2", section.title).text
    return Html(f'<section id="{section.key}">{heading}{_joined(section.contents)}</section>')
