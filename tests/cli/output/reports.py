"""Generated reports, including texts that try to break out of a format."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from webhook.engine.bundle import policy_kinds
from webhook.engine.findings import finding_texts
from webhook.policy.errors import Problem
from webhook.report.additions import Addition
from webhook.report.report import ObjectReport, Report, Result

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><style>*{display:none}",
    "]]>",
    "{{ 7 * 7 }}{% raw %}",
    "a\r\n::error::b",
    "%0A%3A",
    "- a: *b\n...\n---\n",
    "javascript:alert(1)",
    "\u202eright to left",
    "a\x00b\x1b[2J",
    "&lt;",
    "it's",
)
texts = st.sampled_from(HOSTILE) | st.text(max_size=12)
names = st.sampled_from(["web", "shop", "labels", "spot-placement"]) | texts
kinds = texts | st.sampled_from(sorted(policy_kinds()))
additions = st.builds(Addition, field=texts, name=texts, value=texts | st.integers() | st.dictionaries(texts, texts))
results: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "line": st.integers(1, 99),
        "column": st.integers(1, 99),
        "api_version": names,
        "policy": names.filter(bool),
        "id": st.sampled_from(sorted(finding_texts())),
        "outcome": st.sampled_from(["deny", "warn", "audit", "indeterminate"]),
        "reason": texts,
        "detail": texts,
        "field": texts,
        "fix": texts,
    }
)
problems = st.builds(Problem, names, st.integers(0, 9), st.integers(0, 9), texts, texts)


@st.composite
def judged(draw: st.DrawFn) -> ObjectReport:
    file, kind, namespace, name = draw(names), draw(names), draw(names), draw(names)
    written = draw(st.lists(results, max_size=4))
    return ObjectReport(
        file=file,
        line=draw(st.integers(1, 99)),
        kind=kind,
        namespace=namespace,
        name=name,
        results=[Result(file=file, kind=kind, namespace=namespace, name=name, **fields) for fields in written],
        team=draw(names),
        additions=draw(st.lists(additions, max_size=2).map(tuple)),
    )


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Return a report of objects, some with patches, of unreadable files, and of warnings."""
    objects = draw(st.lists(judged(), max_size=5))
    return Report(
        objects=objects,
        skipped=draw(st.integers(0, 2)),
        kinds=draw(st.dictionaries(names, kinds, max_size=3)),
        unreadable=draw(st.lists(problems, max_size=2)),
        warnings=draw(st.lists(problems, max_size=2)),
    )
