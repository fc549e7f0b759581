"""Look up the text of each finding by its id, for ``explain``, ``docs/findings.md``, and the rules in SARIF.

The texts of a policy kind are next to its rule. Those of the engine's findings are in ``object_findings.yaml``.
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
_OF_A_KIND: Final = "To exempt users, namespaces, or objects, list them in `exempt` of the policy or in an Exemption."
_OF_NO_KIND: Final = "No policy controls this finding, so none can exempt from it."


class FindingText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text of one finding.

    Attributes:
        means: the meaning, in one sentence.
        matters: the consequence of ignoring it.
        failing: manifests with the finding.
        fixed: the same manifests, fixed.
        state: the cluster's manifests in both cases.
        policies: the policies that report it, if not the shipped ones.
        flags: the flags of ``spotgate check`` in both cases.
        fixed_flags: the flags in the fixed case, if they differ.
        setting: the field of ``spec`` that lowers only this finding.
        exempt: another way to exempt an object, if it is better than the policy's ``exempt``.
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
    def examples(self) -> list[tuple[str, str, str]]:
        """Return the examples to show, each with its title, the flags of ``spotgate check``, and its manifests."""
        examples = (
            ("Found by this policy", "", self.policies),
            ("In the cluster", "", self.state),
            ("Fails", self.flags, self.failing),
            ("Passes", self.flags if self.fixed_flags is None else self.fixed_flags, self.fixed),
        )
        return [example for example in examples if example[2]]


@cache
def finding_texts() -> Mapping[str, FindingText]:
    """Return the text of every finding, by id."""
    texts: dict[str, FindingText] = {}
    of_kinds = {file.parent.name.replace("_", "-"): file for file in sorted(_HERE.parent.glob("rules/*/findings.yaml"))}
    for slug, file in {"object": _HERE / "object_findings.yaml", **of_kinds}.items():
        with file.open("rb") as stream:  # pass the stream, not its bytes, so that errors name the file
            texts_of_kind = msgspec.convert(yaml.load(stream, Loader=yaml.CSafeLoader), dict[str, FindingText])
        texts |= {f"{slug}/{what}": text for what, text in texts_of_kind.items()}
    return texts


def exemption_from(finding_id: str) -> str:
    """Return how to exempt objects from the finding, as sentences."""
    text = finding_texts()[finding_id]
    of_kind = not finding_id.startswith("object/")
    ways = [
        text.exempt,
        f"To lower only this finding, set `{text.setting}` in the policy." if text.setting else "",
        _OF_A_KIND if of_kind else "" if text.exempt else _OF_NO_KIND,
    ]
    return " ".join(filter(None, ways))


def as_markdown(finding_id: str) -> str:
    """Return the text of the finding as Markdown, without a heading and the shared ways to exempt."""
    text = finding_texts()[finding_id]
    parts = [f"{text.means} {text.matters}"]
    for title, flags, manifests in text.examples:
        name = f"{title} with `{flags}`" if flags else title
        parts.append(f"{name}:\n\n```yaml\n{manifests}```")
    if special := exemption_from(finding_id).removesuffix(_OF_A_KIND).rstrip():
        parts.append(f"Exemptions: {special}")
    return "\n\n".join(parts)


def page_of(finding_id: str) -> str:
    """Return the URL of the section about the finding, or an empty string if the repository's URL is unknown."""
    page = page_at("docs/findings.md")
    return f"{page}#{anchor_of(finding_id)}" if page else ""


@cache
def page_at(path: str) -> str:
    """Return the URL of a file in the repository, or an empty string if the package metadata names no repository."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415 - 20 ms that few commands need

    try:
        named = dict(url.split(", ", 1) for url in metadata("spotgate").get_all("Project-URL") or ())
    except PackageNotFoundError:  # a copy of the folder, not installed
        return ""
    return f"{named['Repository'].rstrip('/')}/blob/main/{path}" if "Repository" in named else ""


def anchor_of(finding_id: str) -> str:
    """Return the anchor that Markdown generates for the heading of the section."""
    return finding_id.replace("/", "")
