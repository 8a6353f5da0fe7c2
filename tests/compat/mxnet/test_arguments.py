"""Keys and lists of tensors, and wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.kvstore import KVStore, create
from tests.compat.mxnet.store_threads import run


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
        sparse = torch.ones(4, 2).to_sparse(1)
        kv.row_sparse_pull("b", sparse, row_ids=torch.tensor([3, 1, 3]))
        assert sparse.coalesce().indices().tolist() == [[1, 3]]
        return [v.to_dense()[:, 0].tolist() for v in (first, second, third, a, b, sparse)]

    told = [[0, 1, 2, 0], [1, 0, 2, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 2, 2, 0], [0, 2, 0, 2]]
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
        wrong(lambda kv: kv.set_optimizer("sgd", lr_mult={"w": -1.0}), "lr_mult of key 'w' = -1.0: must be a number"),
        wrong(lambda kv: kv.set_optimizer("sgd", wd_mult={"w": None}), "wd_mult of key 'w' = None: must be a number"),  # type: ignore[dict-item]
        wrong(lambda kv: kv.set_optimizer("rprop", wd_mult={"w": 2.0}), "weight_decay"),
        wrong(
            lambda kv: kv.set_optimizer("sgd", lr_mult={f"{i:0100}": 1.0 for i in range(800)}),
            "with lr_mult and wd_mult, 65536 at most: name fewer keys",
        ),
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
