"""One HTML page that needs nothing else: no network, no script, any width, dark or light, paper."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STYLE = """
:root { color-scheme: light dark;
  --paper: #f4f4f2; --card: #fff; --ink: #1d1e20; --soft: #5a5d63; --grid: #e2e2e2;
  --mark: #fff3d6; --shade: #0004; --mark-edge: #d9a400;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9;
  --c6: #555; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #131416; --card: #1c1e21; --ink: #e6e6e4; --soft: #a2a5ab; --grid: #36393e;
  --mark: #362c10; --shade: #000c; --mark-edge: #b08a1e;
  --c0: #3f95d6; --c1: #ea7a3a; --c2: #22b58b; --c3: #d893bc; --c4: #e8b03c; --c5: #86cdf3;
  --c6: #a5a5a5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1.2rem clamp(.8rem, 3vw, 2rem) 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; margin: .8rem 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
.lead, .not, figcaption, dt { color: var(--soft); }
.not::before { content: "What it does not show. "; font-weight: 600; }
.note { background: var(--mark); border-left: 4px solid var(--mark-edge); padding: .6rem .9rem;
  border-radius: 4px; margin: .7rem 0; }
.note ul { margin: .3rem 0; padding-left: 1.2rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .92rem; margin: .8rem 0; }
a { color: var(--c0); }
.grid { display: grid; gap: .9rem; margin: .9rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18.5rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: 8px; min-width: 0; }
figure > svg { display: block; width: 100%; height: auto; color: var(--ink); }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure > svg text, .legend svg text { font-family: inherit !important; }
figcaption { font-size: .9rem; line-height: 1.4; margin-top: .4rem; }
figcaption b { color: var(--ink); }
.above { margin: 0 0 .4rem; }
.above span { display: block; }
.scale { max-width: 30rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .6rem 0; padding: 0;
  list-style: none; font-size: .92rem; }
.legend li { display: flex; align-items: center; gap: .45rem; }
.legend svg { width: 2.4rem; height: .85rem; flex: none; color: var(--ink); }
.wide { overflow-x: auto; border-radius: 8px; margin: .8rem 0;
  background: linear-gradient(to left, var(--card) 40%, transparent) right / 3rem 100% no-repeat
    local, linear-gradient(to left, var(--shade), transparent) right / 1rem 100% no-repeat scroll
    var(--card); } /* a shade at the right while there is more to scroll to */
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .75rem; text-align: right; border-bottom: 1px solid var(--grid); }
td { white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; line-height: 1.25;
  min-width: 4.5rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--card); }
.words td { white-space: normal; text-align: left; vertical-align: top; }
.words th { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.1rem; margin: .8rem 0; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin: 0 0 .5rem; } }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: .86em; }
pre { background: var(--card); padding: .8rem; border-radius: 8px; overflow-x: auto; }
pre.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .8rem 0; }
summary { cursor: pointer; }
@media print { html { font-size: 11px; } body { max-width: none; padding: 0; background: #fff; }
  p { max-width: none; } nav { display: none; } .wide { overflow: visible; }
  th, td { padding: .25rem .4rem; } th { min-width: 0; } td:first-child { position: static; }
  figure, tr, .note { break-inside: avoid; } h2, .legend, p:has(+ .grid) { break-after: avoid; }
  figure, .wide, pre { background: none; padding-left: 0; padding-right: 0; }
  .grid { grid-template-columns: repeat(3, 1fr); } }
"""


@dataclass(frozen=True)
class Html:
    """Text that is HTML already; all other text is escaped."""

    text: str


Content = Html | str


def escaped(content: Content) -> str:
    return content.text if isinstance(content, Html) else html.escape(content)


def element(tag: str, *contents: Content, css: str = "") -> Html:
    """<tag class="css">contents</tag>."""
    attribute = f' class="{css}"' if css else ""
    return Html(f"<{tag}{attribute}>{''.join(map(escaped, contents))}</{tag}>")


def table(
    header: Sequence[Content], rows: Iterable[Sequence[Content]], *, of_words: bool = False
) -> Html:
    """Numbers, or words; as wide as it must be, its first column always in sight."""
    head = element("tr", *(element("th", cell) for cell in header))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, css="wide words" if of_words else "wide")


def figure(svg: str, caption: Content) -> Html:
    """A drawing, and below it what is to be said of it."""
    return element("figure", Html(svg), element("figcaption", caption))


def named_figure(name: str, about: str, svg: str) -> Html:
    """One drawing of many that are alike, under its name."""
    above = element("figcaption", element("b", name), element("span", about), css="above")
    return element("figure", above, Html(svg))


def cards(figures: Iterable[Html]) -> Html:
    """As many beside one another as there is room for."""
    return element("div", *figures, css="grid")


def how_to_read(text: str) -> Html:
    return element("p", text)


def not_shown(text: str) -> Html:
    """What a reader might take from it, and should not."""
    return element("p", text, css="not")


def folded(title: str, *contents: Html) -> Html:
    """To be opened by those who want it."""
    return element("details", element("summary", title), *contents)


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Names and what they are, side by side where there is room."""
    return element(
        "dl", *(part for name, what in pairs for part in (element("dt", name), element("dd", what)))
    )


def from_markdown(text: str) -> Html:
    """Paragraphs and tables, with **bold**: what the tables of this package are written in."""
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
    """A part of the page, named in the list at its top."""

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
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{_joined(body)}\n</body>\n</html>\n"
    )


def _joined(parts: Iterable[Html]) -> str:
    return "\n".join(part.text for part in parts)


def _section(section: ReportSection) -> Html:
    heading = element("h2", section.title).text
    return Html(f'<section id="{section.key}">{heading}{_joined(section.contents)}</section>')
