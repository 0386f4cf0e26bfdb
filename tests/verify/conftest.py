from __future__ import annotations

import pytest

from tests import disassembly


@pytest.fixture(autouse=True)
def quick_disassembly(monkeypatch: pytest.MonkeyPatch) -> None:
    disassembly.use(monkeypatch)
