"""Numbers as text."""


def quantity(number: float) -> str:
    """Three figures and a prefix: 950, 31.2 k, 4.05 M, 2.00 G."""
    for unit, prefix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * unit:
            return f"{number / unit:#.3g}{prefix}".replace(". ", " ")
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """Three figures and a unit: 31.2 ms, 4.05 s, 2.50 min, 1.30 h."""
    for unit, name in ((3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{1e3 * seconds:.3g} ms"
