"""Small runs of well-known schemes, told line by line in the .txt files beside this one, and compared exactly.

After a change that is meant to change them: `PACELINE_TELL=1 python -m pytest tests/transcripts`, and read the
difference as a reviewer would.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.transcript import Scene, told

HERE = Path(__file__).resolve().parent

SCENES = [
    Scene(
        name="bsp",
        scheme="bsp",
        seconds=(1.0, 1.0, 2.0),
        until=7,
        leave=(2, 3.0),
        look="Every round is one update made of everybody's gradient. Workers 0 and 1 are done after one second "
        "and wait for worker 2, which needs two. When worker 2 has left, nobody waits for it any more.",
    ),
    Scene(
        name="asp",
        scheme="asp",
        seconds=(1.0, 1.5, 3.5),
        until=6,
        parameters={"weighting": "inverse"},
        look="Nobody waits: a push is applied and answered on arrival. The slow worker 2 computes on weights "
        "that the others have changed meanwhile: see the staleness of its update, and that it counts 1/(1 + "
        "staleness).",
    ),
    Scene(
        name="ssp",
        scheme="ssp",
        seconds=(1.0, 3.5),
        until=10,
        parameters={"staleness": 1},
        look="Worker 0 may be one clock ahead of worker 1, and no more. It is answered at once after its first "
        "push, held after its second, and let go by the push of worker 1 that brings the two within the "
        "bound.",
    ),
    Scene(
        name="dssp",
        scheme="dssp",
        seconds=(1.0, 3.5),
        until=16,
        parameters={"low": 1, "high": 4},
        look="As in ssp worker 0 is held when it is more than one clock ahead, until worker 1 has pushed twice "
        "and can be foreseen. From then on worker 0 may go on, beyond the lower bound, for the number of "
        "steps that ends nearest to a push of worker 1.",
    ),
    Scene(
        name="gsp",
        scheme="gsp",
        seconds=(1.0, 1.2, 3.0),
        until=8,
        parameters={"groups": "0,1;2"},
        look="Workers 0 and 1 are a group: they wait for each other and make one update together. Worker 2 is a "
        "group of its own and makes updates without waiting, but late: an update that is s versions late "
        "counts 1/(1 + s).",
    ),
    Scene(
        name="ksync",
        scheme="ksync",
        seconds=(1.0, 1.2, 1.9),
        until=7,
        parameters={"k": 2},
        look="The first two gradients make an update, and those two workers go on. What worker 2 brings was "
        "computed on older weights, and is dropped; it goes on from the new ones.",
    ),
    Scene(
        name="partial",
        scheme="partial",
        seconds=(1.0, 1.3, 3.0),
        until=8,
        parameters={"max_advance": 2},
        look="Nobody waits until worker 0 is two exchanges ahead of worker 2. From then on whoever reports is "
        "held, until everybody has reported once; then all are let go together, and counting begins anew.",
    ),
    Scene(
        name="esync",
        scheme="esync",
        seconds=(1.3, 2.0, 4.0),
        until=13.7,
        parameters={"delayed_ack": False},
        servers=0,
        look="First steps are not timed (c=0), so in the first round all train until the slowest has made two. "
        "From the second round on the coordinator answers train=True while another step fits into what "
        "worker 2 still needs, and all meet at about the same time. The mean is weighted by samples: worker "
        "2 has made one step, worker 0 several.",
    ),
    Scene(
        name="easgd",
        scheme="easgd",
        seconds=(1.0, 2.5),
        until=8,
        parameters={"tau": 2},
        look="Each worker trains two steps from weights of its own, shows them to the servers, and gets the "
        "centre they are tied to. Nobody waits for the other; the centre moves a little at every exchange.",
    ),
    Scene(
        name="gosgd",
        scheme="gosgd",
        seconds=(1.0, 1.3, 2.0),
        until=8,
        parameters={"p": 0.5},
        servers=0,
        look="No server. After a step a worker may offer somebody its model, with half of what it counts. Who has "
        "offers takes up one with each step it begins. Follow the weights: 1/3 each at the start; a share that has "
        "arrived counts for its receiver from its next step on.",
    ),
    Scene(
        name="lbbsp",
        scheme="lbbsp",
        seconds=(1.0, 1.0, 2.0),
        until=4,
        samples=20,
        look="A round of BSP, but the batches differ: the first is 20 samples for everybody and takes worker 2 "
        "two seconds. Then the coordinator deals the same 60 samples by measured speed, and all are done "
        "together.",
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_a_run_is_told_as_it_is_written_down(scene: Scene) -> None:
    path, story = HERE / f"{scene.name}.txt", told(scene)
    if os.environ.get("PACELINE_TELL"):
        path.write_text(story)
    assert path.is_file(), "PACELINE_TELL=1 writes it"
    assert story == path.read_text()


def test_every_transcript_belongs_to_a_scene() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == {scene.name for scene in SCENES}


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_a_transcript_fits_a_screen_and_says_first_what_to_look_for(scene: Scene) -> None:
    lines = told(scene).splitlines()
    assert 1 <= lines.index("") <= 3
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 120
