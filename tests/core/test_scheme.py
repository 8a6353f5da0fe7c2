import dataclasses

import pytest

from paceline.core.errors import ConfigError
from paceline.core.scheme import Limits, limits_of, lookup, make, names, types_of


def test_an_unknown_parameter_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="scheme ssp has no parameter 'stalenes'; did you mean 'staleness'"):
        make("ssp", {"stalenes": 3})
    with pytest.raises(ConfigError, match="scheme bsp has no parameter 'x'; there are: steps, payload"):
        make("bsp", {"x": 3})


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("ssp", {"staleness": -1}, "ssp.staleness = -1: must lie between 0 and inf"),
        ("ssp", {"staleness": 1.5}, "must be int, not float"),
        ("ssp", {"staleness": True}, "must be int, not bool"),
        ("ssp", {"staleness": "3"}, "must be int, not str"),
        ("esync", {"epsilon": -0.1}, "must lie between 0 and inf"),
        ("esync", {"epsilon": float("nan")}, "must lie between 0 and inf"),
        ("asp", {"weighting": "linear"}, "unknown staleness weighting 'linear'"),
        ("gsp", {"groups": "0,1;1"}, "a worker may be in one group only"),
        ("gsp", {"groups": "0,1;1"}, "write groups of ranks as '0,1;2,3', or 'auto'"),
        ("gsp", {"ratio": 0.5}, "must lie between 1 and inf"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_the_reason(name: str, parameters: dict, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(name, parameters)
    assert why in str(refused.value)


def test_a_whole_number_will_do_where_a_float_is_wanted() -> None:
    made = make("esync", {"global_lr": 1})
    assert isinstance(made.parameters()["global_lr"], float)


def test_a_choice_must_be_one_of_those_offered() -> None:
    limits = Limits(help="", choices=("ring", "tree"))
    assert limits.refuse("ring") is None
    assert limits.refuse("star") == "must be one of ring, tree"


@pytest.mark.parametrize("name", names())
def test_every_scheme_tells_what_it_is_and_whom_to_cite(name: str) -> None:
    cls = lookup(name)
    assert cls.summary
    assert all(limits.help for limits in limits_of(cls).values())
    assert set(limits_of(cls)) == set(types_of(cls)) == {f.name for f in dataclasses.fields(cls)}
    bibtex = cls.paper.bibtex()
    assert bibtex.startswith(f"@inproceedings{{{cls.paper.key},")
    assert bibtex.count("{") == bibtex.count("}")
    assert str(cls.paper.year) in cls.paper.short()
    assert cls.paper.authors.split(",")[0] in cls.paper.short()


def test_a_citation_reads_as_bibtex() -> None:
    paper = lookup("ssp").paper
    assert paper.short() == "Ho et al. 2013"
    assert "  author = {Ho, Qirong and Cipar, James and Cui, Henggang and others},\n" in paper.bibtex()


@pytest.mark.parametrize("name", names())
def test_a_scheme_that_needs_servers_says_so(name: str) -> None:
    scheme = make(name, {})
    if scheme.Server is not None and scheme.Equals is None:
        with pytest.raises(ConfigError, match=rf"{name} keeps its \w+ on servers: give --servers 1 or more"):
            scheme.check(4, 0)
    else:
        scheme.check(4, 0)
    scheme.check(4, 1)
