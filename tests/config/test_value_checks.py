import pytest

from paceline.config.value_checks import check_data, check_device, check_lr_scale, check_ranks, check_strikes


@pytest.mark.parametrize("text", ["auto", "none", "0.25", "2"])
def test_a_factor_on_the_rate_is_auto_none_or_a_positive_number(text: str) -> None:
    check_lr_scale(text)


@pytest.mark.parametrize("text", ["", "Auto", "0", "-1", "nan", "inf", "1/4"])
def test_what_is_no_factor_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ValueError, match="must be auto, none or a positive number, such as 0.25"):
        check_lr_scale(text)


def test_devices_ranks_strikes_and_names_are_checked() -> None:
    check_device("cuda:0,cpu")
    check_ranks("4,4,1")
    check_strikes(2)
    check_data("my.py:load")
    for check, bad in ((check_device, "tpu"), (check_ranks, "0"), (check_strikes, 1), (check_data, "digit")):
        with pytest.raises(ValueError, match=r"."):
            check(bad)  # type: ignore[operator]
