"""Workers that somebody else starts."""

from __future__ import annotations

from paceline.launch.external.detect import ExternalProcess

WORKER = ExternalProcess(
    starter="mxnet", kind="worker", number=-1, workers=2, servers=1, host="127.0.0.1", port=0, job="mxnet-0"
)
