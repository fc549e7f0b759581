"""Write the expected answers of the golden reviews, the golden reports and messages anew: ``make golden``.

Needed after a change to a rule, a shipped policy, a wording, or a review. What it writes is only what spotgate answers
now: read the diff, answer by answer, against what ``cases.yaml`` says that the case proves, before it is committed.
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
    """Write every expected answer, and remove those of cases that are gone."""
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
