"""The script of gradients as rows: its job on little, and its verdict."""

from __future__ import annotations

import argparse
import sys

import pytest

from benchmarks import sparse_rows


@pytest.mark.parametrize("sparse", [True, False])
def test_a_worker_times_its_steps_whatever_its_gradients_are(sparse: bool) -> None:
    options = argparse.Namespace(rows=500, width=8, batch=16)
    assert len(sparse_rows.inside(sparse, options, 2)) == 2


@pytest.mark.parametrize(("rows_s", "code", "verdict"), [(0.001, 0, "holds"), (1.0, 1, "DOES NOT HOLD")])
def test_bytes_of_the_first_exchange_do_not_count_and_the_verdict_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows_s: float, code: int, verdict: str
) -> None:
    model = 4 * (5000 * 8 + 2 * 8 + 2)
    row_bytes = 4 * 16 * (8 + 1) + 4 * (2 * 8 + 2)

    def outside(sparse: bool, options: argparse.Namespace, steps: int) -> tuple[list[float], list[int]]:
        each = row_bytes if sparse else model
        return [rows_s if sparse else 0.1] * steps, [3 * model + steps * each, model + steps * each]

    monkeypatch.setattr(sparse_rows, "outside", outside)
    script = [sparse_rows.__file__, "--rows", "5000", "--width", "8", "--batch", "16", "--rounds", "1", "--steps", "5"]
    monkeypatch.setattr(sys, "argv", script)
    assert sparse_rows.main() == code
    out = capsys.readouterr().out
    assert out.endswith(f"both: {verdict}\n")
    assert f"{row_bytes / 1e6:.3f} MB up" in out
