"""Show a rehearsal as JUnit XML: a test case for each workload, which fails where Pods stay pending or a Job fails."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from webhook.cli.rehearse.result import JOB_FAILED

if TYPE_CHECKING:
    from webhook.cli.rehearse.result import Rehearsal


def show(rehearsal: Rehearsal) -> None:
    """Print the rehearsal."""
    failed = [each for each in rehearsal.workloads if each.pending.max or each.failed]
    suite = ET.Element(
        "testsuite",
        name=f"rehearse --lose {', '.join(rehearsal.lost)}",
        tests=str(len(rehearsal.workloads)),
        failures=str(len(failed)),
        errors="0",
    )
    for each in rehearsal.workloads:
        case = ET.SubElement(suite, "testcase", classname="spotgate.rehearse", name=str(each), time="0")
        if each.pending.max or each.failed:
            message, sort = (
                (f"{each.pending} Pods stay pending", "pending") if each.pending.max else (JOB_FAILED, "failed")
            )
            failure = ET.SubElement(case, "failure", message=message, type=sort)
            failure.text = "\n".join(each.reasons)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    print(ET.tostring(suites, encoding="unicode", xml_declaration=True))
