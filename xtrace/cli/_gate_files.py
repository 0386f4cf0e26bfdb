"""The verdict document as a Markdown summary for a pull request and as JUnit XML for a CI server.

Texts must be printable (:func:`xtrace.cli._gate_input.printable`): XML cannot hold control characters, escaped or not.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from xtrace.cli._gate_text import interval_text, summary_line

__all__ = ["junit", "markdown"]

_ICON = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID-ENV": "⚠️"}


def markdown(report: Mapping[str, Any]) -> str:
    """Headline, what needs attention, and the whole table folded away."""
    cells = report["cells"]
    lines = [f"### {_ICON[report['verdict']]} Tracing overhead: {summary_line(report)}", ""]
    attention = [c for c in cells if c["verdict"] != "PASS" or c["flags"]]
    for cell in attention:
        flags = f" ({', '.join(cell['flags'])})" if cell["flags"] else ""
        name = f"{_code(cell['workload'])} {_code(cell['probes'])}"
        lines.append(
            f"- {_ICON[cell['verdict']]} {name} **{cell['verdict']}**{flags}: {_md('; '.join(cell['reasons']))}"
        )
    for row in report["changes"]:
        if row["verdict"] != "PASS":
            lines.append(
                f"- {_ICON[row['verdict']]} {_code(row['workload'])} {_code(row['probes'])} against the older version: "
                f"{_percent(row['change'])} ({_md(interval_text(row['change']))}), **{row['verdict']}**"
            )
    if report["extension_due"]:
        lines.append(f"- One extension is due for: {_md('; '.join(report['extension_due']))}")
    if report["above_budget"]:
        lines.append(f"- Above budget (Holm, family-wise 5 %): {_md('; '.join(report['above_budget']))}")
    lines += ["", f"<details><summary>All {len(cells)} cells</summary>", ""]
    lines += ["| kernel | tracer | probes | overhead % | 95 % interval | budget % | processes | verdict |"]
    lines += ["|---|---|---|--:|--:|--:|--:|---|"]
    for cell in cells:
        overhead = cell["overhead"] or {}
        budget = f"{cell['budget']:g}" if cell.get("budget") is not None else "-"
        fields = [
            *(_md(cell[key]) for key in ("workload", "tracer", "probes")),
            *(_percent(overhead), interval_text(overhead), budget, str(overhead.get("processes", "-"))),
            f"{_ICON[cell['verdict']]} {cell['verdict']}",
        ]
        lines.append(f"| {' | '.join(fields)} |")
    lines += ["", *_changes(report), *_suites(report), "</details>", ""]
    return "\n".join(lines)


def _changes(report: Mapping[str, Any]) -> list[str]:
    if not report["changes"]:
        return []
    rows = ["| kernel | probes | old % | new % | change | 95 % interval | verdict |", "|---|---|--:|--:|--:|--:|---|"]
    for row in report["changes"]:
        fields = [_md(row["workload"]), _md(row["probes"]), _percent(row["old"]), _percent(row["new"])]
        fields += [_percent(row["change"]), interval_text(row["change"]), f"{_ICON[row['verdict']]} {row['verdict']}"]
        rows.append(f"| {' | '.join(fields)} |")
    return ["Against the older version, measured in the same processes:", "", *rows, ""]


def _suites(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {_md(s['tracer'])} {_md(s['probes'])}: {_percent(s)} % ({interval_text(s)}) over {len(s['cells'])} kernels"
        + (f", without {_md(', '.join(s['left_out']))}" if s["left_out"] else "")
        for s in report["suites"]
    ]
    return ["Geometric means (a summary, never the gate):", "", *lines, ""] if lines else []


def _percent(numbers: Mapping[str, Any] | None) -> str:
    value = (numbers or {}).get("percent")
    return "-" if value is None else f"{value:+.2f}"


def _md(text: object) -> str:
    """Text that cannot leave its cell, start a tag or mention anyone."""
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", line)


def _code(text: object) -> str:
    return f"`{' '.join(str(text).split()).replace('`', chr(39))}`"


def junit(report: Mapping[str, Any]) -> bytes:
    """One test case a cell: FAIL is a failure, INVALID-ENV an error, INCONCLUSIVE skipped."""
    cases = [(c, f"{c['workload']} {c['probes']}", c["overhead"]) for c in report["cells"]]
    cases += [(c, f"{c['workload']} {c['probes']} against older version", c["change"]) for c in report["changes"]]
    count = {kind: sum(c["verdict"] == kind for c, _, _ in cases) for kind in _ICON}
    totals = {
        "name": "xtrace gate",
        "tests": str(len(cases)),
        "failures": str(count["FAIL"]),
        "errors": str(count["INVALID-ENV"]),
        "skipped": str(count["INCONCLUSIVE"]),
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals)
    element = {"FAIL": "failure", "INVALID-ENV": "error", "INCONCLUSIVE": "skipped"}
    for cell, name, numbers in cases:
        device = f".{cell['device']}" if cell.get("device") else ""
        case = ET.SubElement(suite, "testcase", name=name, classname=f"{cell['tracer']}{device}")
        message = "; ".join(cell["reasons"])
        if kind := element.get(cell["verdict"]):
            ET.SubElement(case, kind, message=message).text = "\n".join(cell["reasons"])
        output = f"{cell['verdict']}: overhead {_percent(numbers)} % ({interval_text(numbers or {})})\n{message}"
        ET.SubElement(case, "system-out").text = output
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
