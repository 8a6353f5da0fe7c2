from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.engine.sharded.local_parts import LocalParts
from paceline.engine.sharded.local_state import LocalState
from paceline.engine.vectors.flat import Flat
from tests.engine.sharded.fake_ranks import CallingLink, Placements, parts_of, set_gradients, sgd, whole_of


def model_of() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))


def by_rows(name: str) -> list[Shard]:
    return [Shard(0)]


CASES: dict[str, tuple[tuple[int, ...], Placements]] = {
    "fully_shard": ((2,), by_rows),
    "columns and rows, as tensor parallelism": (
        (2,),
        lambda name: [Shard(1) if name == "2.weight" else Replicate() if name == "2.bias" else Shard(0)],
    ),
    "replicas of shards": ((2, 2), lambda name: [Replicate(), Shard(0)]),
    "two dimensions": ((2, 2), lambda name: [Shard(0), Shard(1) if name in ("0.weight", "2.weight") else Replicate()]),
}


SHARES = pytest.mark.parametrize("shares", [True, False], ids=["shared memory", "connections"])


def ranks_of(
    shape: tuple[int, ...], placements: Placements, *, shares: bool = True
) -> tuple[list[LocalParts], GatheredModel, CallingLink, FlatModel]:
    """The ranks' parts, the whole model, and the same model as one process has it."""
    plain = FlatModel(model_of())
    parts = parts_of(model_of, shape, placements)
    whole, link = whole_of(parts, shares=shares)
    return parts, whole, link, plain


@SHARES
@pytest.mark.parametrize("case", CASES)
def test_its_vector_is_that_of_a_model_in_one_process(case: str, shares: bool) -> None:
    _, whole, link, plain = ranks_of(*CASES[case], shares=shares)
    assert ("write" in link.acts) == shares
    assert whole.layout() == plain.layout()
    assert whole.fingerprint() == plain.fingerprint()
    assert whole.rest.fingerprint() == plain.rest.fingerprint()
    assert torch.equal(whole.weights().value(), plain.weights().value())


@SHARES
@pytest.mark.parametrize("case", CASES)
def test_weights_that_are_loaded_are_on_all_ranks(case: str, shares: bool) -> None:
    parts, whole, _, plain = ranks_of(*CASES[case], shares=shares)
    w = Flat.wrap(torch.arange(float(len(plain))))
    whole.load(w)
    assert whole_of(parts, shares=False)[0].weights().value().tolist() == w.value().tolist()


@SHARES
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_all_ranks(case: str, shares: bool) -> None:
    parts, whole, _, plain = ranks_of(*CASES[case], shares=shares)
    gradients = {name: torch.randn(shape) for name, shape in plain.layout()}
    set_gradients(parts, gradients)
    wanted = torch.cat([g.reshape(-1) for g in gradients.values()])
    first = whole.gradient()
    assert torch.equal(first.value(), wanted)
    assert whole.unused() == ()
    whole.zero_grad()
    assert not any(one.has_gradient for one in parts)
    set_gradients(parts, {name: g * 2 for name, g in gradients.items()})
    assert torch.equal(whole.gradient().value(), wanted * 2)
    assert torch.equal(first.value(), wanted), "what was handed out has changed"


def test_a_parameter_that_no_rank_used_is_unused() -> None:
    parts, whole, _, plain = ranks_of(*CASES["fully_shard"])
    set_gradients(parts, {name: torch.ones(shape) for name, shape in plain.layout()})
    for one in parts:
        one.trained["0.bias"].grad = None
    g = whole.gradient().value()
    assert whole.unused() == ((15, 20),)
    assert not g[15:20].any()
    assert g[20:].all()


def test_a_local_step_is_made_on_every_rank_and_its_weights_are_gathered() -> None:
    parts, whole, link, plain = ranks_of(*CASES["fully_shard"])
    before = whole.weights().value().clone()
    set_gradients(parts, {name: torch.ones(shape) for name, shape in plain.layout()})
    parts[0].optimizer.step()
    whole.touched()
    assert "step" in link.acts
    assert torch.allclose(whole.weights().value(), before - 0.5)


def test_weights_are_gathered_only_when_they_have_changed() -> None:
    _, whole, link, _ = ranks_of(*CASES["fully_shard"])
    first = whole.weights()
    link.acts.clear()
    assert whole.weights() is first
    whole.load(first)
    assert link.acts == []


@SHARES
def test_where_all_hold_everything_one_vector_goes_to_all(shares: bool) -> None:
    parts, whole, link, plain = ranks_of((2,), lambda name: [Replicate()], shares=shares)
    link.acts.clear()
    whole.load(Flat.wrap(torch.ones(len(plain))))
    assert link.acts == ["read" if shares else "take"]
    assert bool((parts[1].pack("weights", [0]) == 1).all())
    link.acts.clear()
    whole.touched()
    whole.weights()
    assert link.acts == [], "the first rank has all"


def test_weights_that_are_shown_are_gone_after_the_context() -> None:
    parts, whole, _, plain = ranks_of(*CASES["fully_shard"])
    before = [one.pack("weights", range(6)).clone() for one in parts]
    with whole.showing(Flat.wrap(torch.zeros(len(plain)))) as module:
        assert module is parts[0].module
        assert not any(one.pack("weights", range(6)).any() for one in parts)
    assert all(torch.equal(one.pack("weights", range(6)), was) for one, was in zip(parts, before, strict=True))


def test_what_is_not_trained_goes_to_all_ranks_when_it_is_loaded() -> None:
    parts, whole, _, _ = ranks_of(*CASES["fully_shard"])
    mean = next(part for part in whole.rest.parts if part.path == "1.running_mean")
    whole.rest.load(mean, [5], [(0, torch.full((5,), 0.25).view(torch.uint8))])
    whole.rest.loaded()
    assert [one.rest["1.running_mean"].tolist() for one in parts] == [[0.25] * 5] * 2


def test_the_first_ranks_buffers_are_shared() -> None:
    parts, whole, _, _ = ranks_of(*CASES["fully_shard"])
    parts[0].rest["1.running_var"].fill_(9.0)
    whole.share_rest()
    assert parts[1].rest["1.running_var"].tolist() == [9.0] * 5


def test_a_checkpoint_of_one_process_fits_and_reaches_all_ranks() -> None:
    parts, whole, _, plain = ranks_of(*CASES["fully_shard"])
    saved = {name: torch.ones_like(t) for name, t in plain.module.state_dict().items()}
    assert whole.whole.state_dict().keys() == saved.keys()
    whole.whole.load_state_dict(saved)
    whole.show_all()
    assert bool(whole_of(parts)[0].weights().value().eq(1).all())
    assert int(parts[1].rest["1.num_batches_tracked"]) == 1


def test_parameter_groups_order_the_vector_as_in_one_process() -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        names = dict(model.named_parameters())
        biases = [p for name, p in names.items() if name.endswith("bias")]
        others = [p for name, p in names.items() if not name.endswith("bias")]
        return torch.optim.SGD([{"params": biases}, {"params": others, "lr": 0.2}], lr=0.1)

    model = model_of()
    plain = FlatModel(model, optimizer=optimizer(model))
    whole, _ = whole_of(parts_of(model_of, (2,), by_rows, optimizer))
    assert whole.layout() == plain.layout()
    assert torch.equal(whole.weights().value(), plain.weights().value())


def test_tied_parameters_are_one_and_keep_both_names() -> None:
    def tied() -> nn.Module:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        return model

    def tied_again(model: nn.Module) -> torch.optim.Optimizer:
        model[1].weight = model[0].weight  # type: ignore[index]
        return sgd(model)

    whole, _ = whole_of(parts_of(tied, (2,), by_rows, tied_again))
    assert len(whole) == 4 * 4 + 4 + 4
    assert {"0.weight", "1.weight"} <= whole.whole.state_dict().keys()


def test_a_gradient_counts_as_zero_only_if_it_is_on_every_rank() -> None:
    parts, whole, _, plain = ranks_of(*CASES["fully_shard"])
    zeros = {name: torch.zeros(shape) for name, shape in plain.layout()}
    set_gradients(parts, zeros)
    assert whole.gradient_is_zero
    set_gradients(parts, {**zeros, "2.bias": torch.tensor([0.0, 0.0, 0.0, 1.0])})
    assert not whole.gradient_is_zero


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def stepped(shape: tuple[int, ...], placements: Placements, seeds: Sequence[int]) -> list[LocalParts]:
    """The parts of ranks whose optimizers have made a step with each of these gradients."""
    parts = parts_of(model_of, shape, placements, adam)
    for seed in seeds:
        step(parts, seed, given=parts)
    return parts


def step(parts: list[LocalParts], seed: int, *, given: list[LocalParts]) -> None:
    """Gives gradients to the parts `given`, and lets the optimizers of `parts` make a step."""
    torch.manual_seed(seed)
    set_gradients(given, {name: torch.randn(p.shape) for name, p in model_of().named_parameters()})
    for one in parts:
        one.optimizer.step()


@pytest.mark.parametrize("case", CASES)
def test_the_state_of_the_optimizers_is_that_of_one_process(case: str) -> None:
    [alone] = stepped((1,), by_rows, [1, 2])
    wanted = LocalState(alone).take()
    found = whole_of(stepped(*CASES[case], [1, 2]))[0].optimizer_state()
    assert found.keys() == wanted.keys()
    for name, v in wanted.items():
        assert torch.allclose(torch.as_tensor(found[name]), torch.as_tensor(v)), name


@pytest.mark.parametrize("case", CASES)
def test_optimizers_that_take_a_state_over_go_on_as_if_nothing_had_been(case: str) -> None:
    """The state comes from ranks of another shape."""
    before, undisturbed = stepped((2,), by_rows, [1, 2]), stepped(*CASES[case], [1, 2])
    state, w = whole_of(before)[0].optimizer_state(), whole_of(before)[0].weights()
    resumed = stepped(*CASES[case], [7])
    whole, _ = whole_of(resumed)
    whole.load(w)
    whole.load_optimizer_state(state)
    step(resumed[:1], 3, given=resumed)  # which makes the others follow
    step(undisturbed, 3, given=undisturbed)
    found, wanted = whole_of(resumed)[0].weights().value(), whole_of(undisturbed)[0].weights().value()
    assert torch.allclose(found, wanted, atol=1e-6)


def test_parts_of_a_state_that_cannot_be_joined_are_left_out() -> None:
    parts = stepped(*CASES["fully_shard"], [1])
    parts[0].optimizer.state[parts[0].parameters[0]]["row_var"] = torch.ones(5, 1)
    whole, link = whole_of(parts)
    assert whole.optimizer_state() == {}
    assert "give_state" not in link.acts
    replicas = stepped((2,), lambda name: [Replicate()], [1])
    replicas[0].optimizer.state[replicas[0].parameters[0]]["row_var"] = torch.ones(5, 1)
    state = whole_of(replicas)[0].optimizer_state()
    assert "packed 0" in state
    link.acts.clear()
    whole.load_optimizer_state(state)
    assert link.acts == [], "what cannot be cut begins anew"


def test_the_generators_of_all_ranks_go_on_where_they_were() -> None:
    """The ranks are of one process here, which has one generator: the last state that is set is that of the first."""
    _, whole, _, _ = ranks_of(*CASES["replicas of shards"])
    states = whole.generator_states()
    assert len(states) == 4
    whole.set_generator_states(states[:2])
    assert not whole.draws_on, "those are of other ranks"
    drawn = torch.rand(3)
    whole.set_generator_states(states)
    assert torch.equal(torch.rand(3), drawn)
    assert whole.draws_on
