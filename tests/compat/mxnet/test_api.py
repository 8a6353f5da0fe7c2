"""Stores of one process, and what every store says to wrong use."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.kvstore import KVStore, create, shares_of
from tests.compat.mxnet.store_threads import run


@pytest.mark.parametrize("type", ["local", "device"])
def test_the_tensors_of_several_devices_are_summed_up_and_every_one_gets_the_value(type: str) -> None:
    kv = create(type)
    kv.init(["w", 3], [torch.zeros(2), torch.zeros(1)])
    kv.push(["w", 3], [[torch.ones(2), torch.full((2,), 2.0)], torch.ones(1)])
    out = [torch.empty(2), torch.empty(2)]
    kv.pull("w", out=out)
    assert [each.tolist() for each in out] == [[3.0, 3.0]] * 2
    assert (kv.rank, kv.num_workers, kv.num_dead_nodes, kv.type) == (0, 1, 0, type)


@pytest.mark.parametrize("type", ["local", "device"])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True),
        lambda w: torch.optim.AdamW(w, lr=0.1, betas=(0.8, 0.9)),
        lambda w: torch.optim.RMSprop(w, lr=0.1, centered=True),
    ],
    ids=["SGD", "AdamW", "RMSprop"],
)
def test_an_optimizer_of_torch_does_in_a_store_what_it_does_by_itself(type: str, optimizer: Callable[..., Any]) -> None:
    w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    alone, kv = optimizer([w]), create(type)
    kv.set_optimizer(optimizer([nn.Parameter(torch.zeros(1))]))
    kv.init("w", w)
    for step in range(4):
        w.grad = torch.tensor([0.5, -1.0, float(step)])
        kv.push("w", w.grad)
        alone.step()
    torch.testing.assert_close(kv.pull("w"), w.detach())


def test_a_local_store_saves_and_loads_its_optimizer_and_pulls_rows(tmp_path: Path) -> None:
    def work(load: bool, pushes: int) -> Tensor:
        kv = create("local")
        kv.set_optimizer("sgd", lr=1.0, momentum=0.5)
        kv.init("table", torch.zeros(3, 1))
        if load:
            kv.load_optimizer_states(tmp_path / "states")
        for _ in range(pushes):
            kv.push("table", -torch.ones(3, 1))
        kv.save_optimizer_states(tmp_path / "states")
        return torch.as_tensor(kv.row_sparse_pull("table", row_ids=torch.tensor([2, 0, 2])).to_dense()[:, 0])

    assert work(False, 1).tolist() == [1.0, 0.0, 1.0]
    assert work(True, 1).tolist() == [1.5, 0.0, 1.5]  # the momentum of the push before is in it


def test_a_device_store_compresses_what_every_device_sends_and_a_local_one_has_nothing_to_compress() -> None:
    kv = create("device")
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kv.init("w", torch.zeros(2))
    kv.push("w", [torch.tensor([0.3, 0.6]), torch.tensor([0.3, -2.0])])
    assert kv.pull("w").tolist() == [0.0, 0.0]
    kv.push("w", [torch.tensor([0.3, 0.6]), torch.tensor([0.3, 0.0])])
    assert kv.pull("w").tolist() == [1.0, 0.0]  # what each had left of the first push counts
    with pytest.raises(ConfigError, match="local store sends nothing"):
        create("local").set_gradient_compression({"type": "2bit"})


@pytest.mark.parametrize("type", ["device", "dist_sync"])
def test_rows_of_several_keys_go_to_several_tensors_each_with_its_own_rows(type: str) -> None:
    def work(kv: KVStore) -> list[Any]:
        kv.init(["a", "b"], [torch.full((4, 2), 1.0), torch.full((4, 2), 2.0)])
        first, second, third = (torch.zeros(4, 2) for _ in range(3))
        kv.row_sparse_pull("a", [first, second], row_ids=[torch.tensor([1]), torch.tensor([3, 0, 3])])
        kv.row_sparse_pull(["a", "b"], [third, [first, second]], row_ids=torch.tensor([2]))
        a, b = kv.row_sparse_pull(["a", "b"], row_ids=[torch.tensor([0]), torch.tensor([1, 2])])
        with pytest.raises(ConfigError, match="2 tensors or keys and 1 for row_ids"):
            kv.row_sparse_pull("a", [first, second], row_ids=[torch.tensor([0])])
        with pytest.raises(ConfigError, match="key 'b': out is a sparse tensor: give a dense one"):
            kv.row_sparse_pull("b", torch.zeros(4, 2).to_sparse(1), row_ids=torch.tensor([0]))
        return [v.to_dense()[:, 0].tolist() for v in (first, second, third, a, b)]

    told = [[0, 1, 2, 0], [1, 0, 2, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 2, 2, 0]]
    assert (run(work) if type == "dist_sync" else [work(create(type))] * 2) == [told] * 2


@pytest.mark.parametrize("type", ["device", "dist_sync"])
def test_values_of_a_key_that_is_in_a_list_twice_are_summed_up_before_they_are_pushed(type: str) -> None:
    def work(kv: KVStore) -> list[Any]:
        kv.init(["v", "w"], [torch.zeros(1), torch.zeros(1)])
        kv.push(["w", "v", "w"], [torch.tensor([1.0]), torch.tensor([4.0]), [torch.tensor([2.0])] * 2])
        one, other = torch.zeros(1), torch.zeros(1)
        kv.pull(["w", "w"], out=[one, other])
        return [one.item(), other.item(), *(v.item() for v in kv.pull(["w", "v", "w"]))]

    if type == "device":
        assert work(create(type)) == [5.0, 5.0, 5.0, 4.0, 5.0]
    else:
        assert run(work) == [[10.0, 10.0, 10.0, 8.0, 10.0]] * 2  # one push of each worker, not two


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_kept_in_full_and_given_back_as_it_came(kind: torch.dtype) -> None:
    def work(kv: KVStore) -> Any:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("w", torch.ones(2, 2, dtype=kind))
        for _ in range(4):
            kv.push("w", torch.full((2, 2), -(2.0**-10), dtype=kind))  # each by itself is lost beside 1 in bfloat16
        full, out = torch.empty(2, 2), torch.empty(2, 2, dtype=kind)
        kv.pull("w", out=[full, out])
        rows = kv.row_sparse_pull("w", row_ids=torch.tensor([1]))
        return full[0, 0].item(), out.dtype, kv.pull("w").dtype, rows.dtype

    told = (1.0 + 2 * 4 * 2.0**-10, kind, kind, kind)
    assert run(work) == [told] * 2


def wrong(act: Callable[[KVStore], Any], told: str) -> Any:
    return pytest.param(act, told, id=told)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        wrong(lambda kv: kv.pull("v"), "key 'v' has no value yet: call init for it first, on all workers"),
        wrong(lambda kv: kv.push("w", torch.zeros(3)), r"key 'w' has the shape \(2,\), not \(3,\)"),
        wrong(lambda kv: kv.pull("w", out=torch.zeros(1, 2)), r"key 'w' has the shape \(2,\), not \(1, 2\)"),
        wrong(lambda kv: kv.push("w", [1.0, 2.0]), "key 'w': float is no torch.Tensor: torch.as_tensor makes one"),
        wrong(lambda kv: kv.push("w", []), "key 'w': an empty list: give a tensor, or one for each device"),
        wrong(lambda kv: kv.push("w", torch.zeros(2, dtype=torch.float64)), "torch.float64 may not fit into"),
        wrong(lambda kv: kv.init("n", torch.zeros(2, dtype=torch.int64)), "torch.int64 may not fit into"),
        wrong(lambda kv: kv.init("w", torch.zeros(2)), "key 'w' has its first value already"),
        wrong(lambda kv: kv.init(2.5, torch.zeros(2)), "key 2.5: a key is an int or a str"),  # type: ignore[arg-type]
        wrong(lambda kv: kv.init(["n", "n"], [torch.zeros(2)] * 2), "key 'n' is in the list twice"),
        wrong(lambda kv: kv.push(["w"], torch.zeros(2)), "1 keys and 1 for value: give a list with one for each key"),
        wrong(
            lambda kv: kv.row_sparse_pull("w", row_ids=torch.tensor([0])), "only tables, of two dimensions, have rows"
        ),
        wrong(
            lambda kv: kv.set_optimizer(lambda key, g, w: None), r"takes torch.optim.SGD\(...\) or a name such as 'sgd'"
        ),
        wrong(
            lambda kv: kv.set_optimizer("adan"),
            "an optimizer 'adan' cannot run on the servers, which hold parts of tensors; did you mean 'Adam'",
        ),
        wrong(lambda kv: kv.set_optimizer("LBFGS"), "'LBFGS' cannot run on the servers, which hold parts"),
        wrong(lambda kv: kv.set_optimizer("sgd", lr=-1.0), "lr = -1.0: must be 0 or more"),
        wrong(lambda kv: kv.set_optimizer("adam", speed=1.0), "speed"),
        wrong(lambda kv: kv.set_optimizer("sgd", lr="fast"), "lr = 'fast': must be a number"),
        wrong(lambda kv: kv.set_optimizer("sgd", lr=math.inf), "lr = inf: must be a number"),
        wrong(lambda kv: kv.set_optimizer("adam", lr=None), "lr = None: must be a number"),
        wrong(lambda kv: kv.set_optimizer("sgd", rescale_grad=math.nan), "rescale_grad = nan: must be a number"),
        wrong(lambda kv: kv.set_gradient_compression("2bit"), "give the name of a codec, as"),  # type: ignore[arg-type]
        wrong(lambda kv: kv.set_gradient_compression({}), "give the name of a codec, as"),
        wrong(lambda kv: kv.set_learning_rate(0.1), "no optimizer that has a learning rate: call set_optimizer first"),
        wrong(lambda kv: kv.save_optimizer_states("states"), "call set_optimizer first"),
        wrong(lambda kv: kv.load_optimizer_states("states"), "call set_optimizer first"),
        wrong(lambda kv: kv.set_gradient_compression({"type": "2bit"}), "comes before the first init"),
    ],
)
@pytest.mark.parametrize("type", ["device", "dist_sync"])
def test_wrong_use_is_told_in_one_line_and_changes_nothing(type: str, act: Callable[[KVStore], Any], told: str) -> None:
    def work(kv: KVStore) -> list[float]:
        kv.init("w", torch.ones(2))
        with pytest.raises(ConfigError, match=told) as error:
            act(kv)
        assert "\n" not in str(error.value)
        return list(kv.pull("w").tolist())

    assert (run(work, type, workers=1, servers=1)[0] if type != "device" else work(create(type))) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"type": "dist_asink"}, "unknown type of store 'dist_asink'; did you mean 'dist_async'"),
        ({"type": "local", "staleness": 2}, "leave them out of local"),
        ({"type": "dist_sync", "staleness": 2}, "staleness is for dist_ssync"),
        ({"type": "dist_gsync", "groups": [[0, 1]]}, "every rank from 0 to 0, each once"),
        ({"type": "dist_sync", "timeout_s": -1.0}, "must be 0 or more seconds"),
    ],
)
def test_a_store_that_cannot_be_is_refused_before_anything_starts(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        create(**options)


def test_a_codec_with_a_momentum_of_its_own_does_not_go_with_an_optimizer_that_has_one() -> None:
    for first, second in ((0, 1), (1, 0)):
        kv = create("device")
        acts = [
            lambda kv=kv: kv.set_optimizer("sgd", lr=0.1, momentum=0.9),
            lambda kv=kv: kv.set_gradient_compression({"type": "dgc"}),
        ]
        acts[first]()
        with pytest.raises(ConfigError, match="dgc has a momentum of its own"):
            acts[second]()
    kv.set_optimizer("sgd", lr=0.1)


def test_a_rate_that_is_no_number_is_refused_and_a_closed_store_says_that_it_is_closed() -> None:
    kv = create("dist_async")
    kv.set_optimizer("sgd", lr=1.0)
    kv.init("w", torch.zeros(1))
    for lr in (math.inf, math.nan, "fast"):
        with pytest.raises(ConfigError, match="must be a number, 0 or more"):
            kv.set_learning_rate(lr)  # type: ignore[arg-type]
    kv.push("w", torch.ones(1))
    assert kv.pull("w").item() == -1.0
    kv.close()
    for act in (lambda: kv.pull("w"), lambda: kv.push("w", torch.ones(1)), kv.barrier):
        with pytest.raises(ConfigError, match="the store is closed: create another one"):
            act()


def test_a_batch_is_cut_by_the_load_of_each_device_as_mxnet_cuts_it() -> None:
    sizes = [[part.stop - part.start for part in shares_of(n, loads)] for n, loads in ((32, [3, 1]), (10, [1, 1, 1]))]
    assert sizes == [[24, 8], [3, 3, 4]]
    with pytest.raises(ConfigError, match="too few"):
        shares_of(2, [1, 1, 1])


def test_lazy_adamw_by_name_decays_weights_as_torch_does_unless_told_otherwise() -> None:
    w = torch.tensor([[1.0], [-2.0]])
    for numbers in ({}, {"wd": 0.0}, {"weight_decay": 0.3}):
        values = []
        for lazy in (True, False):
            kv = create("local")
            kv.set_optimizer("adamw", lr=0.1, lazy=lazy, **numbers)
            kv.init("w", w)
            kv.push("w", torch.ones_like(w))
            values.append(kv.pull("w"))
        torch.testing.assert_close(*values)
