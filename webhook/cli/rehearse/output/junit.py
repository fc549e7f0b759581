"""A rehearsal as JUnit XML: a test case for each workload, which fails where Pods stay pending."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from webhook.cli.rehearse.result import Rehearsal


def show(rehearsal: Rehearsal) -> None:
    """Print it."""
    failed = [each for each in rehearsal.workloads if each.pending.max]
    suite = ET.Element(
        "testsuite",
        name=f"rehearse --lose {', '.join(rehearsal.lost)}",
        tests=str(len(rehearsal.workloads)),
        failures=str(len(failed)),
        errors="0",
    )
    for each in rehearsal.workloads:
        name = f"{each.kind} {each.namespace}/{each.name}"
        case = ET.SubElement(suite, "testcase", classname="spotgate.rehearse", name=name, time="0")
        if each.pending.max:
            failure = ET.SubElement(case, "failure", message=f"{each.pending} Pods stay pending", type="pending")
            failure.text = "\n".join(each.reasons)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    print(ET.tostring(suites, encoding="unicode", xml_declaration=True))
