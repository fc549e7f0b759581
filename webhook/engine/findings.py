"""Explain each finding by its id: the texts of ``explain``, ``docs/findings.md`` and the rules in SARIF.

The texts of a policy kind are next to its rule, those of findings of no kind in ``object_findings.yaml``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE: Final = Path(__file__).parent
_OF_A_KIND: Final = (
    "List the users, namespaces or objects that may do this under `exempt` of the policy, or in an Exemption."
)
_OF_NO_KIND: Final = "No policy decides this, and none can exempt from it."


class FindingText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of one finding.

    Attributes:
        means: what it says of the object, in one sentence.
        matters: what happens if it is ignored.
        failing: manifests in which it is found.
        fixed: the same manifests without it.
        state: manifests that the cluster has in both cases.
        policies: the policies that find it, if not the shipped ones.
        flags: the flags of ``spotgate check`` in both cases.
        fixed_flags: the flags in the fixed case, if they differ.
        setting: the field of ``spec`` that lowers this finding alone.
        exempt: a further way to be exempt from it, where the policy's ``exempt`` is not the best way.
    """

    means: str
    matters: str
    failing: str = ""
    fixed: str = ""
    state: str = ""
    policies: str = ""
    flags: str = ""
    fixed_flags: str | None = None
    setting: str = ""
    exempt: str = ""

    @property
    def flags_when_fixed(self) -> str:
        """Return the flags in the fixed case."""
        return self.flags if self.fixed_flags is None else self.fixed_flags


@cache
def finding_texts() -> Mapping[str, FindingText]:
    """Return the text of every finding, by id."""
    texts: dict[str, FindingText] = {}
    of_kinds = {file.parent.name.replace("_", "-"): file for file in sorted(_HERE.parent.glob("rules/*/findings.yaml"))}
    for slug, file in {"object": _HERE / "object_findings.yaml", **of_kinds}.items():
        with file.open("rb") as stream:  # not its bytes: errors name the file that a stream reads
            written = yaml.load(stream, Loader=yaml.CSafeLoader)
        texts_of_kind = msgspec.convert(written, dict[str, FindingText])
        texts |= {f"{slug}/{what}": text for what, text in texts_of_kind.items()}
    return texts


def _with_flags(flags: str) -> str:
    return f" with `{flags}`" if flags else ""


def exemption_from(finding_id: str) -> str:
    """Return how to be exempt from the finding."""
    text = finding_texts()[finding_id]
    of_kind = not finding_id.startswith("object/")
    ways = [
        text.exempt,
        f"`{text.setting}` in the policy lowers this finding alone." if text.setting else "",
        _OF_A_KIND if of_kind else "" if text.exempt else _OF_NO_KIND,
    ]
    return " ".join(filter(None, ways))


def as_markdown(finding_id: str) -> str:
    """Return the text of the finding as Markdown, without a heading."""
    text = finding_texts()[finding_id]
    parts = [f"{text.means} {text.matters}"]
    for name, manifests in (
        ("Found by this policy", text.policies),
        ("In the cluster", text.state),
        ("Fails" + _with_flags(text.flags), text.failing),
        ("Passes" + _with_flags(text.flags_when_fixed), text.fixed),
    ):
        if manifests:
            parts.append(f"{name}:\n\n```yaml\n{manifests}```")
    parts.append(f"To be exempt from it: {exemption_from(finding_id)}")
    return "\n\n".join(parts)


def page_of(finding_id: str) -> str:
    """Return the address of the section about the finding; empty while the repository's is not known."""
    page = page_at("docs/findings.md")
    return f"{page}#{anchor_of(finding_id)}" if page else ""


@cache
def page_at(path: str) -> str:
    """Return the address of a file of the repository that the package's metadata names; empty if it names none."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415 - 20 ms that few commands need

    try:
        named = dict(url.split(", ", 1) for url in metadata("spotgate").get_all("Project-URL") or ())
    except PackageNotFoundError:  # a copy of the folder
        return ""
    return f"{named['Repository'].rstrip('/')}/blob/main/{path}" if "Repository" in named else ""


def anchor_of(finding_id: str) -> str:
    """Return the anchor that Markdown gives the heading of the section."""
    return finding_id.replace("/", "")
