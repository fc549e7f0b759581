"""Golden wording: the messages of each finding's failing example, in ``messages.txt``."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from webhook.commands import main
from webhook.engine.findings import finding_texts
from webhook.model.decision import Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.engine.findings import FindingText

FILE: Final = Path(__file__).parent / "messages.txt"
_HEAD: Final = "# "


def findings_of(text: FindingText, manifests: str, flags: str) -> list[Finding]:
    """Return the findings of ``spotgate check`` in the manifests, with the policies and state of the text's examples."""
    with TemporaryDirectory() as folder:
        arguments = ["check", "-o", "json", *shlex.split(flags)]
        for name, written in (("state", text.state), ("policies", text.policies), ("object", manifests)):
            file = Path(folder) / f"{name}.yaml"
            file.write_text(written)
            if written:
                arguments += [str(file)] if name == "object" else [f"--{name}", str(file)]
        with redirect_stdout(StringIO()) as out:
            code = main(arguments)
        report = json.loads(out.getvalue().replace(f"{folder}/", "") or "{}")
        assert code < 2, report.get("unreadable", "see the error above")
    return [_finding(result) for result in report["results"]]


def message(finding_id: str, findings: Iterable[Finding]) -> str:
    """Return the messages of the findings with this id."""
    return "\n".join(f"{finding.outcome} {finding.message()}" for finding in findings if finding.id == finding_id)


def stored(file: Path = FILE) -> Mapping[str, str]:
    """Return the golden messages, by id."""
    parts = f"\n{file.read_text()}".split(f"\n{_HEAD}")[1:]
    return {head: text.strip() for head, _, text in (part.partition("\n") for part in parts)}


def write(file: Path, texts: Mapping[str, str]) -> None:
    """Write golden messages, by id."""
    file.write_text("\n".join(f"{_HEAD}{head}\n\n{text}\n" for head, text in texts.items()))


def regenerate() -> None:
    """Write the golden messages. Exit if an example doesn't have its finding."""
    texts = {}
    for finding_id, text in finding_texts().items():
        if text.failing:
            try:
                findings = findings_of(text, text.failing, text.flags)
            except AssertionError as error:
                sys.exit(f"the example `failing` of {finding_id} can't be evaluated: {error}")
            texts[finding_id] = message(finding_id, findings)
            if not texts[finding_id]:
                others = ", ".join(finding.id for finding in findings) or "none"
                sys.exit(f"the example `failing` of {finding_id} lacks this finding; its findings: {others}")
    write(FILE, texts)


def _finding(result: Mapping[str, Any]) -> Finding:
    fields = {key: result[key] for key in ("policy", "id", "reason", "detail", "field", "fix")}
    return Finding(outcome=Outcome[result["outcome"].upper()], **fields)
