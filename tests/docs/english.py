"""Count phrases in the documentation that native technical writers don't use: ``python -m tests.docs.english [FILE...]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = ("docs/findings.md", "docs/providers.md")
"""Pages that `make golden` writes from data."""

PHRASES: Final = re.compile(
    r"""\b(?:
      beside | of\s(?:its|their|one's)\sown | such\s(?:a|an)\b | anew | mend(?:s|ed|ing)? | whoever | whomever
    | stand(?:s)?\sin | is\ssaid | are\stold | is\stold | let\sin | lets\sin | taken\sover | held\sup | holds?\sup
    | nobody | none\sof\sthem | no\sone | for\swant\sof | whatever\sit | howsoever | thereby | hereby | therein | whereof
    | comes?\sto\sno | to\sno\sresult | is\sno\s(?:pass|promise|harm|match|number|reason)
    | the\ssame\sholds | so\sdoes\s | so\sdo\s | nor\s(?:is|does|do|are)\s
    | as\sfar\sas | in\svain | for\sgood | at\sall\stimes | by\shand\sof
    | at\sthe\slatest | by\sand\sby | what\sthere\sis | all\sthat\sis | those\s(?:who|of\swhich)
    | not\sany\smore | no\slonger\sany | as\swell\.  | and\sthen\ssome | goes\swithout | speaks?\sof | speaks?\sfor
    | has\sto\ssay | have\sto\ssay | makes?\sgood | made\sgood | bears?\s | dwell
    | the\sone\sof | that\sof\sthe\scluster | is\sto\s(?:be|have|do|come|go) | are\sto\s(?:be|have|do|come|go)
    )\b"""
    # A clause as the subject: "What ends with nothing is exit code 2."
    r"""| (?:^|(?<=[.:;]\s)) (?:What|Who|Whether|That\swhich) \s (?! \s* (?:is|are|to|you|happens|next|does) \b) [^.?|\n]{3,60}
         \s (?:is|are|stays|goes|counts|ends|becomes) \s
    | (?:^|(?<=[.:;]\s)) Is\s(?:a|an|the)\s [^?\n]*? (?<!\?) ,
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)


def prose(page: Path) -> str:
    """Return the text of a page without code, links, and comments, line by line."""
    text = re.sub(r"(?ms)^ *(```|~~~).*?^ *\1|<!--.*?-->", lambda block: "\n" * block[0].count("\n"), page.read_text())
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+", " ", text)


def pages() -> list[Path]:
    """Return the pages that people write."""
    every = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(page for page in every if str(page.relative_to(ROOT)) not in GENERATED)


def foreign(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each phrase."""
    text = prose(page)
    for match in PHRASES.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    phrases = [f"{page.relative_to(ROOT)}:{line}: {words}" for page in chosen for line, words in foreign(page)]
    words = sum(len(prose(page).split()) for page in chosen)
    sys.stdout.write("".join(f"{phrase}\n" for phrase in phrases))
    rate = 1000 * len(phrases) / max(words, 1)
    sys.stdout.write(f"{len(phrases)} phrases in {words} words of prose: {rate:.1f} per 1,000\n")
