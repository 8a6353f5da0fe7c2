"""What a person asks of a run that trains: it is done or refused, and recorded either way."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.operator_orders import FACTORS, ORDERS, OperatorOrder
from paceline.core.coordination.party import EVALUATOR
from paceline.core.trace import OPERATOR, Decided
from tests.live.scripted_parties import W0, W1, Company


def recorded(company: Company) -> list[tuple[str, int, str]]:
    """Returns verdict, rank and reason of what the trace says of the operator."""
    company.settled()
    return [
        (r.verdict, r.rank, r.reason) for r in company.ears.records if isinstance(r, Decided) and r.party == OPERATOR
    ]


def test_a_worker_is_expelled_and_the_others_are_told(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.coordinator.order(OperatorOrder(kind="expel", rank=0))
    assert company.hears(W1) == control.WorkerLeft(rank=0, lost=True)
    assert recorded(company) == [("expel", 0, "worker 0, asked for by the operator")]
    assert W0 in company.coordinator.banned


def test_a_worker_is_asked_to_leave_after_its_step(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.coordinator.order(OperatorOrder(kind="drain", rank=1))
    assert company.hears(W1) == loop_messages.Drain(reason="asked for by the operator")
    assert recorded(company) == [("drain", 1, "worker 1, asked for by the operator")]
    assert W1 not in company.coordinator.banned, "it may still have something to deliver"


@pytest.mark.parametrize("kind", ["expel", "drain"])
def test_a_worker_without_which_the_run_would_end_stays(companies: Any, kind: str) -> None:
    company: Company = companies(allreduce="servers", min_workers=2)
    company.train()
    company.coordinator.order(OperatorOrder(kind=kind, rank=0))
    company.coordinator.order(OperatorOrder(kind=kind, rank=7))
    why = "the run would end without worker 0; fewer than --min-workers 2 would be left"
    assert recorded(company) == [(f"refused: {kind}", 0, why), (f"refused: {kind}", 7, "worker 7 does not train")]


def test_the_evaluator_writes_a_checkpoint(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.order(OperatorOrder(kind="checkpoint"))
    assert company.hears(EVALUATOR) == loop_messages.SaveNow()
    assert recorded(company) == [("checkpoint", 0, "asked for by the operator")]


def test_without_an_evaluator_there_is_no_checkpoint(companies: Any) -> None:
    company: Company = companies(evaluator=False)
    company.train()
    company.coordinator.order(OperatorOrder(kind="checkpoint"))
    assert [verdict for verdict, *_ in recorded(company)] == ["refused: checkpoint"]


def test_factors_on_the_learning_rate_are_multiplied(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.order(OperatorOrder(kind="learning-rate", factor=0.5))
    company.coordinator.order(OperatorOrder(kind="learning-rate", factor=0.25))
    for who in (W0, W1):
        assert company.hears(who) == loop_messages.ScaleRate(factor=0.5)
        assert company.hears(who) == loop_messages.ScaleRate(factor=0.125)
    assert [reason for *_, reason in recorded(company)] == [
        "times 0.5, 0.5 in all, asked for by the operator",
        "times 0.25, 0.125 in all, asked for by the operator",
    ]
    company.coordinator.order(OperatorOrder(kind="learning-rate", factor=FACTORS[0] / 2))
    assert recorded(company)[-1][0] == "refused: learning-rate"


def test_what_the_supervisor_refuses_is_recorded(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.order(OperatorOrder(kind="grow"))
    company.coordinator.order(OperatorOrder(kind="grow"), "all places of --workers are taken")
    assert recorded(company) == [
        ("grow", 0, "asked for by the operator"),
        ("refused: grow", 0, "all places of --workers are taken"),
    ]


@pytest.mark.parametrize("kind", ORDERS)
def test_nothing_is_done_before_training_or_as_it_ends(companies: Any, kind: str) -> None:
    company: Company = companies(allreduce="servers")
    company.hello()
    company.coordinator.order(OperatorOrder(kind=kind))
    assert recorded(company) == [(f"refused: {kind}", 0, "nobody trains now")]


@pytest.mark.parametrize(
    "fields",
    [{"kind": "destroy"}, {"kind": "expel", "rank": -1}, {"kind": "expel", "rank": True}, {"kind": "grow", "rank": 1.0}]
    + [{"kind": "learning-rate", "factor": factor} for factor in (float("nan"), float("inf"), "2", True)],
)
def test_what_is_no_order_is_refused(fields: Any) -> None:
    with pytest.raises(ValueError):
        OperatorOrder(**fields)
