import pytest

from paceline.core.parties.takeover import taken_over


def seen(*rounds: int) -> list[tuple[int, dict[str, int]]]:
    return [(rank, {"round": number}) for rank, number in enumerate(rounds)]


@pytest.mark.parametrize("model_of", ["servers", "mean of workers"])
def test_a_newcomer_is_no_further_than_anybody(model_of: str) -> None:
    assert taken_over(seen(4, 2, 9), model_of) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rounds", "rank"), [((4, 4, 0), 0), ((9, 4, 4), 2), ((3, 4), 0), ((5,), 0), ((0, 5, 5, 4), 3)]
)
def test_where_all_hold_one_model_one_that_lies_about_its_round_is_not_followed(
    rounds: tuple[int, ...], rank: int
) -> None:
    assert taken_over(seen(*rounds), "any worker") == rank


def test_who_shows_no_round_is_as_far_as_anybody() -> None:
    assert taken_over([(3, {"name": "x"}), (1, {})], "servers") == 3


def test_somebody_has_to_train() -> None:
    with pytest.raises(ValueError, match="nobody trains"):
        taken_over([], "servers")
