from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command


def test_it_names_a_folder_that_is_not_there_before_it_measures(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"There is no folder .*nowhere: make it first"):
        call_command("bench", folder=tmp_path / "nowhere")
