"""The repeats of a measurement: as given, else as calibrated for this GPU, else the protocol's defaults."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflow.scripts.gpu_files import read_bytes, read_json
from xtrace.errors import BadInput
from xtrace.runtime.calibrate import SCHEMA
from xtrace.runtime.device import Device

__all__ = ["DEFAULTS", "check_device", "derived", "reference", "settle"]

DEFAULTS: dict[str, float] = {
    "processes": 10,
    "blocks": 20,
    "control_blocks": 8,
    "flush_factor": 2.0,
    "short_ns": 50_000.0,
    "group_ns": 200_000.0,
}


def derived(path: Path) -> dict[str, float]:
    """What a calibration file says about repeats. BadInput XT7440 for a file that is not one."""
    document = read_json(path)
    if document.get("schema") != SCHEMA:
        raise BadInput("XT7440", f"schema is {document.get('schema')!r}, expected {SCHEMA!r}", where=str(path))
    found = document.get("derived")
    if not isinstance(found, Mapping) or any(
        not isinstance(found.get(k), int | float) or isinstance(found.get(k), bool) or not found[k] > 0
        for k in DEFAULTS
    ):
        raise BadInput(
            "XT7440", f"derived must give {', '.join(DEFAULTS)}", where=str(path), hint="run calibrate.py again"
        )
    return {k: type(DEFAULTS[k])(found[k]) for k in DEFAULTS}


def settle(args: argparse.Namespace) -> None:
    """Fill in every repeat of ``args`` that is None."""
    args.processes_given = args.processes is not None
    values = DEFAULTS if args.calibration is None else derived(args.calibration)
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def check_device(args: argparse.Namespace, device: Device) -> None:
    """Refuse a calibration of another GPU: noise does not travel. Raises BadInput XT7441."""
    if args.calibration is None:
        return
    known = read_json(args.calibration).get("provenance", {})
    if known.get("uuid") != device.info.uuid:
        raise BadInput(
            "XT7441",
            f"calibrated on {known.get('device')} {known.get('uuid')}, this is {device.info.name} {device.info.uuid}",
            where=str(args.calibration),
            hint="run workflow/scripts/calibrate.py on this GPU",
        )


def reference(args: argparse.Namespace) -> dict[str, Any]:
    """Key ``calibration`` of a sample document: which file the repeats came from."""
    return {
        "file": args.calibration.name,
        "sha256": hashlib.sha256(read_bytes(args.calibration)).hexdigest(),
        "derived": derived(args.calibration),
    }
