"""The networks of ESync's command line, by the sizes that its authors published."""

from __future__ import annotations

import pytest

from paceline.compat.esync.networks import BYTES_A_PARAMETER, NETWORKS


def test_resnet_18_has_the_size_that_esyncs_figure_of_traffic_counts_with() -> None:
    # drawer.py has 42.6 "MB", which are MiB, and 10.65 million parameters of 4.2 bytes.
    assert NETWORKS["resnet18-v1"].parameters == 11_175_370
    assert NETWORKS["resnet18-v1"].parameters * BYTES_A_PARAMETER / 2**20 == pytest.approx(42.6, abs=0.05)


def test_pictures_have_the_sides_of_esyncs_loader() -> None:
    sides = {name: network.side for name, network in NETWORKS.items() if network.side != 28}
    assert sides == {"alexnet": 224, "inception-v3": 299}
