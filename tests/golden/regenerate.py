"""Regenerate the expected answers of the golden reviews, and the golden reports and messages: ``make golden``.

Run it after a change to a rule, a shipped policy, a message, or a review. It writes what spotgate answers today: before
you commit, compare each changed answer with the description of its case in ``cases.yaml``.
"""

from __future__ import annotations

import json

from tests.builders import answered
from tests.golden import formats, messages, variants
from tests.golden.cases import HERE, load_cases, readable, view_of
from tests.kube import test_defaults
from webhook.formats import FORMATS
from webhook.rules.context import Phase


def regenerate() -> None:
    """Write all expected answers, and remove those of deleted cases."""
    expected = HERE / "expected"
    expected.mkdir(exist_ok=True)
    for stale in expected.iterdir():
        stale.unlink()
    for case in load_cases():
        view = view_of(case.state)
        for phase in Phase:
            answer = readable(answered(case.review(phase), phase, view))
            case.expected_file(phase).write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n")
    messages.regenerate()
    variants.regenerate()
    test_defaults.regenerate()
    for name in FORMATS:
        formats.expected_file(name).write_text(formats.written(name))


if __name__ == "__main__":
    regenerate()
