"""Text for people: short numbers, and tables in Markdown and for a terminal."""

from collections.abc import Collection, Sequence


def quantity(number: float) -> str:
    """Three figures and a prefix: 950, 31.2 k, 4.05 M, 2.00 G."""
    for unit, prefix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * unit:
            return f"{number / unit:#.3g}{prefix}".replace(". ", " ")
    return f"{number:.0f}"


def markdown_table(rows: Sequence[Sequence[str]], *, right: bool = True) -> list[str]:
    """The lines of a table; the first row is its header.

    With `right`, all columns but the first are aligned to the right, for numbers.
    """
    # An unescaped bar would end the cell.
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    others = "---:|" if right else "---|"
    return [lines[0], "|---|" + others * (len(rows[0]) - 1), *lines[1:]]


def aligned_table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """The lines of a table with columns of equal width; `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return [line(row) for row in rows]


def duration(seconds: float) -> str:
    """Three figures and a unit: 31.2 ms, 4.05 s, 2.50 min, 1.30 h."""
    for unit, name in ((3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{1e3 * seconds:.3g} ms"
