"""Words of messages that depend on a number. Leaves out: numbers themselves, other languages."""


def counted(number: int, noun: str) -> str:
    """`1 word`, `3 words` for `word`; also for a noun given as `words`, which ends in its plural's one s."""
    return f"{number} {noun_for(number, noun)}"


def noun_for(number: int, noun: str) -> str:
    """`word` or `words`, whichever of the two is given; a unit's symbol (`kB`, `MiB`) has no plural."""
    if noun.endswith("B"):
        return noun
    single = noun.removesuffix("s")
    return single if number == 1 else f"{single}s"
