"""Documents for tests: words of made-up syllables, always the same."""

import random


def sentence(generator: random.Random) -> str:
    syllables = ("ka", "lo", "mi", "ter", "sun", "pel", "dor", "ix")
    words = ("".join(generator.choices(syllables, k=2)) for _ in range(generator.randint(3, 14)))
    return " ".join(words).capitalize() + "."


def documents(count: int, seed: int = 0) -> list[str]:
    """Return documents of 1 to 12 lines, all different."""
    generator = random.Random(seed)
    return [
        "\n".join(
            [f"Number {number} of {seed}."]
            + [sentence(generator) for _ in range(generator.randint(0, 11))]
        )
        for number in range(count)
    ]
