"""Every piece of Python in the README and the pages runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import paceline
import paceline.kvstore
from paceline.config import build
from paceline.launch.local.environment import PREFIX
from paceline.runtime.evaluator.subject import figures_of
from paceline.runtime.worker.train_loop import build_model, load_data
from tests.runtime.own_loops import toy_data, toy_model
from tests.runtime.worker import gan
from tests.runtime.worker.ranks.one_rank import process_group_alone

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
INDENTED = re.compile(r"\n\n((?:    .*\n)+)")
SAYS_PYTHON = re.compile(r"paceline\.\w+|^\w+ = \w+\(|^@", re.M)


def blocks(page: str) -> list[str]:
    """The Python of a page, fenced or indented; commands and files are no Python."""
    text = (ROOT / page).read_text(encoding="utf-8")
    indented = [re.sub(r"^    ", "", block, flags=re.M) for block in INDENTED.findall(FENCED.sub("", text))]
    return FENCED.findall(text) + [block for block in indented if SAYS_PYTHON.search(block) and _compiles(block)]


def _compiles(block: str) -> bool:
    try:
        compile(block, "", "exec")
    except SyntaxError:
        return False
    return True


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def loop() -> dict[str, Any]:
    """What a loop has before it joins."""
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = toy_data().tensors
    return {
        "paceline": paceline,
        "torch": torch,
        "nn": nn,
        "model": model,
        "optimizer": optimizer,
        "dataset": toy_data(),
        "loss_of": nn.functional.cross_entropy,
        "x": x,
        "y": y,
    }


def test_these_pages_have_python_and_no_other() -> None:
    pages = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
    pages += [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    assert {page: len(found) for page in pages if (found := blocks(page))} == {
        "README.md": 1,
        "CONTRIBUTING.md": 3,
        "docs/checkpoints.md": 1,
        "docs/precision.md": 1,
        "docs/optimizers.md": 4,
        "docs/embeddings.md": 1,
        "docs/kvstore.md": 1,
        "docs/own-loop.md": 8,
        "docs/start.md": 1,
        "docs/train.md": 1,
        "docs/workers-of-several-devices.md": 1,
    }


@pytest.mark.parametrize("page", ["README.md", "docs/own-loop.md"])
def test_the_four_lines_train_a_model(page: str) -> None:
    names = loop()
    before = nn.functional.cross_entropy(names["model"](names["x"]), names["y"]).item()
    exec(blocks(page)[0], names)
    assert nn.functional.cross_entropy(names["model"](names["x"]), names["y"]).item() < 0.8 * before


def test_the_lines_that_save_a_file_go_on_from_it() -> None:
    steps = []
    for _ in range(2):
        names = loop() | {"os": os}
        exec(blocks("docs/checkpoints.md")[0], names)
        steps.append(names["pace"].steps)
    assert steps[0] == steps[1] > 0, "the second run counts the steps of the first, and finds all epochs behind it"


def test_the_lines_of_several_models_train_a_gan() -> None:
    of = gan.models()
    optimizers, noise = gan.adams(of), gan.NOISE
    names: dict[str, Any] = {"netD": of["D"], "netG": of["G"], "optimizerD": optimizers["D"]}
    names |= {"optimizerG": optimizers["G"], "paceline": paceline, "dataset": toy_data()}
    names["loss_of_discriminator"] = lambda real: gan.of_discriminator(of, real, noise[: len(real)])
    names["loss_of_generator"] = lambda n: gan.of_generator(of, noise[:n], noise[:n])
    before = [p.detach().clone() for p in of["G"].parameters()]
    exec(blocks("docs/own-loop.md")[1], names)
    assert names["pace"].steps == 2 * 10 * 3
    assert not any(torch.equal(p, q) for p, q in zip(of["G"].parameters(), before, strict=True))


def test_the_lines_of_little_memory_train_a_model() -> None:
    names = loop()
    exec(blocks("docs/own-loop.md")[2], names)
    assert names["pace"].steps == 2 * -(-len(names["dataset"]) // 32)
    assert names["loss"] < 1


def test_the_lines_of_tokens_count_those_with_a_label() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Embedding(9, 9)

        def forward(self, input_ids: Tensor, labels: Tensor) -> Any:
            logits = self.inner(input_ids)[:, :-1]
            return SimpleNamespace(loss=nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()))

    model, ids = Model(), torch.arange(9).repeat(16, 1)
    labels = ids.masked_fill(ids < 3, -100)
    names = loop() | {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    names |= {"DataLoader": DataLoader, "padded": None}
    names["dataset"] = [{"input_ids": i, "labels": j} for i, j in zip(ids, labels, strict=True)]
    exec(blocks("docs/own-loop.md")[4], names)
    assert names["pace"].steps == 2
    assert names["pace"].total_samples == 16 * 6
    names["pace"].close()


def test_the_lines_of_an_evaluation_return_figures() -> None:
    names = loop()
    exec(blocks("docs/own-loop.md")[6].partition("\npace =")[0], names)
    with torch.no_grad():
        accuracy, loss = figures_of(names["evaluate"](names["model"]))
    assert 0 <= accuracy <= 1
    assert loss > 0


def test_the_lines_of_measurements_that_decide_keep_the_best_model_and_end_the_run() -> None:
    names = loop() | {"ReduceLROnPlateau": torch.optim.lr_scheduler.ReduceLROnPlateau}
    losses = iter([3.0, 2.0, 1.0, *[1.5] * 100])
    with paceline.join(names["model"], names["optimizer"], scheme="asp") as pace:
        names |= {"pace": pace, "loader": pace.loader(names["dataset"], 32), "evaluate": lambda model: next(losses)}
        exec(blocks("docs/own-loop.md")[5], names)
        assert pace.steps == (3 + 5) * 3
    assert names["pace"].shared("best") == {"loss": 1.0, "file": "best.pt"}
    assert names["optimizer"].param_groups[0]["lr"] == pytest.approx(0.1 * 0.1)
    names["model"].load_state_dict(torch.load("best.pt", weights_only=True))


def test_the_lines_of_streams_train_every_item() -> None:
    names = loop()
    with paceline.join(names["model"], names["optimizer"], scheme="asp") as pace:
        items = ({"x": x, "y": y} for x, y in zip(names["x"], names["y"], strict=True))
        exec(
            blocks("docs/own-loop.md")[3].replace("num_workers=2", "num_workers=0"),
            names | {"pace": pace, "iterable": items},
        )
        assert pace.steps == -(-len(names["x"]) // 32)


def test_the_lines_of_several_devices_train_a_model_of_parts(tmp_path: Path) -> None:
    names = loop() | {"dist": dist, "fully_shard": fully_shard}
    (code,) = blocks("docs/workers-of-several-devices.md")
    before = nn.functional.cross_entropy(names["model"](names["x"]), names["y"]).item()
    with process_group_alone(tmp_path):
        exec(code.replace("lr=0.003", "lr=0.1"), names)
        after = nn.functional.cross_entropy(names["model"](names["x"]), names["y"]).item()
        names.clear()  # the model holds the group
    assert after < 0.9 * before


def test_the_one_call_prints_accuracy_and_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("docs/start.md")
    exec(code.replace("seconds=60", "seconds=0.5"), {})
    accuracy, rate = map(float, capsys.readouterr().out.split())
    assert 0 <= accuracy <= 1
    assert rate > 0


def test_the_lines_of_mixed_precision_are_a_step() -> None:
    names = loop()
    with paceline.join(names["model"], names["optimizer"], scheme="bsp") as pace:
        names["pace"] = pace
        for x, y in pace.batches(names["dataset"], batch_size=30, epochs=1):
            exec(blocks("docs/precision.md")[0], names | {"x": x, "y": y})
        assert pace.steps == 3


def test_the_lines_of_optimizers_join_with_one_by_its_import_path_and_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the working directory is put there
    joins, module, _, schedules = blocks("docs/optimizers.md")
    head = "from tests.runtime.own_optimizers import Lion\n"
    (tmp_path / "my_optimizers.py").write_text(head + module)
    names = loop() | {"CosineAnnealingLR": torch.optim.lr_scheduler.CosineAnnealingLR}
    exec(joins, names)
    with names["pace"] as pace:
        exec(schedules, names | {"optimizer": pace.optimizer})
        for x, y in pace.batches(names["dataset"], batch_size=30, epochs=2):
            nn.functional.cross_entropy(names["model"](x), y).backward()
            pace.step()
        assert type(pace.optimizer.param_groups[0]["lr"]) is float
        assert 0.0 < pace.optimizer.param_groups[0]["lr"] < 1e-4


def test_the_lines_of_a_scheduler_go_its_whole_way() -> None:
    names = loop() | {"OneCycleLR": torch.optim.lr_scheduler.OneCycleLR}
    names["pace"] = paceline.join(names["model"], names["optimizer"], scheme="bsp")
    with names["pace"]:
        exec(blocks("docs/optimizers.md")[2], names)
    assert names["scheduler"].last_epoch == names["pace"].steps == names["scheduler"].total_steps


def test_the_model_and_data_of_ones_own_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_net.py").write_text(blocks("docs/train.md")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    own = build({"model": {"name": "my_net.py:Net"}, "data": {"name": "my_net.py:load"}})
    splits = load_data(own)
    assert (len(splits.train), len(splits.test)) == (1600, 400)
    assert build_model(own, splits)(splits.test.x).shape == (400, 3)


def test_the_lines_of_embeddings_join_with_gradients_as_rows() -> None:
    names = loop()
    exec(blocks("docs/embeddings.md")[0].replace("1_000_000", "1_000"), names)
    with names["pace"] as pace:
        table = names["model"][0].weight
        before = table.detach().clone()
        for x, y in pace.batches(TensorDataset(torch.tensor([[3], [5]]), torch.tensor([0, 1])), 2, epochs=1):
            nn.functional.cross_entropy(names["model"](x), y).backward()
            pace.step()
    assert (table != before).any(1).nonzero().flatten().tolist() == [3, 5]


def test_the_lines_of_the_store_make_an_update() -> None:
    w = torch.ones(3, requires_grad=True)
    w.sum().backward()
    names: dict[str, Any] = {"paceline": paceline, "batch_size": 2, "w": w}
    with torch.no_grad():
        exec(blocks("docs/kvstore.md")[0], names)
    names["kv"].close()
    assert w.tolist() == pytest.approx([1 - 0.1 / 2] * 3)


def test_the_scheme_that_is_added_as_an_example_passes_its_own_test_and_has_its_row() -> None:
    scheme, row, paper_test = blocks("CONTRIBUTING.md")
    code = f"""
import sys, types
module = types.ModuleType("paceline.schemes.saasgd")
sys.modules[module.__name__] = module
exec({scheme!r}, module.__dict__)
from tests.conformance.schemes_table import Case
assert eval({row!r}.strip()).scheme == "saasgd"
test = {{}}
exec({paper_test!r}, test)
test["test_a_gradient_counts_one_over_y"]()
from paceline.cli.main import main
main(["schemes", "saasgd"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "late gradient counts the less" in done.stdout
    assert "--saasgd.y-max" in done.stdout
