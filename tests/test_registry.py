"""One name, one thing."""

import pytest

from geomprobe.errors import InvalidParameter
from geomprobe.registry import Registry


@pytest.fixture
def registry():
    filled = Registry("probe")
    for name in ("norms", "gains", "sinks"):
        filled.register(name)(name.upper())
    return filled


def test_entries_come_in_the_order_of_registration(registry):
    assert list(registry) == ["norms", "gains", "sinks"]
    assert len(registry) == 3
    assert registry["gains"] == "GAINS"


def test_register_hands_back_what_it_was_given(registry):
    @registry.register("split")
    def split():
        return 3

    assert registry["split"] is split
    assert split() == 3


def test_a_name_is_given_once(registry):
    with pytest.raises(ValueError, match=r"^probe 'norms' is already registered as 'NORMS'\.$"):
        registry.register("norms")("again")
    assert registry["norms"] == "NORMS"


def defined(module, name="Reach"):
    """A class as it comes of a definition in a module."""
    return type(name, (), {"__module__": module, "__qualname__": name})


def test_what_a_notebook_defines_anew_takes_its_own_place(registry):
    first, again = defined("__main__"), defined("__main__")
    registry.register("reach")(first)
    registry.register("reach")(again)
    assert registry["reach"] is again
    assert list(registry) == ["norms", "gains", "sinks", "reach"]


@pytest.mark.parametrize("other", [defined("__main__", "Other"), defined("package.probes"), "REACH"])
def test_but_not_that_of_another(registry, other):
    registry.register("reach")(defined("__main__"))
    with pytest.raises(ValueError, match="already registered"):
        registry.register("reach")(other)


def test_nor_in_a_module(registry):
    registry.register("reach")(defined("package.probes"))
    with pytest.raises(ValueError, match="already registered"):
        registry.register("reach")(defined("package.probes"))


def test_an_unknown_name(registry):
    with pytest.raises(
        InvalidParameter, match=r"^Unknown probe 'sink'\. Did you mean 'sinks'\? Known: gains, norms, sinks\.$"
    ):
        registry["sink"]
    with pytest.raises(InvalidParameter, match=r"^Unknown probe 'xyz'\. Known: gains, norms, sinks\.$"):
        registry["xyz"]


def test_registries_do_not_share():
    first, second = Registry("probe"), Registry("figure")
    first.register("norms")(1)
    assert list(second) == []
    with pytest.raises(InvalidParameter, match=r"^Unknown figure 'norms'\. Known: \.$"):
        second["norms"]
