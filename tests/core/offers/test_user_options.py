"""A user's choice is parsed in the same way from every source, and an invalid one is explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import UserOptions, UserOptionsError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, ("cpu",)),
        ({}, ("cpu",)),
        ({"offer": "mig-1g.5gb"}, ("mig-1g.5gb",)),
        ({"offer": ["gpu-0.5"]}, ("gpu-0.5",)),
        ({"offers": ["mig-2g.10gb", "mig-1g.5gb"]}, ("mig-2g.10gb", "mig-1g.5gb")),
        ({"offers": ["cpu"]}, ("cpu",)),
        ({"offer": "mig-1g.10gb.me"}, ("mig-1g.10gb.me",)),
        ({"offer": "mig-1g.24gb-me-0.25"}, ("mig-1g.24gb-me-0.25",)),
    ],
)
def test_a_good_choice_is_read_from_form_api_and_link(options: object, expected: tuple[str, ...]) -> None:
    assert UserOptions.from_dict(options).offers == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, False),
        ({"offer": "gpu"}, False),
        ({"notify_when_ready": True}, True),
        ({"notify_when_ready": False}, False),
        ({"notify_when_ready": ["1"]}, True),
        ({"notify_when_ready": ["0"]}, False),
    ],
)
def test_who_wants_to_be_told_says_so_by_form_api_and_link(options: object, expected: bool) -> None:
    assert UserOptions.from_dict(options).notify_when_ready is expected


@pytest.mark.parametrize("value", [None, 1, "yes", [], ["1", "1"], [True, False], {"by": "mail"}])
def test_other_input_is_refused_with_the_name_of_the_field(value: object) -> None:
    with pytest.raises(UserOptionsError, match="notify_when_ready is true or false") as wrong:
        UserOptions.from_dict({"notify_when_ready": value})
    assert wrong.value.field == "notify_when_ready"


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"ofer": "gpu"}, "ofer", "'ofer' is not known here: use offer"),
        ({"of\ner\u2028\ud800": "gpu"}, r"of\ner\u2028\ud800", "is not known here"),
        ({"x" * 300: "gpu"}, "x" * 60, "is not known here"),
        ({"offer": "gpu", "image": "x"}, "image", "not known"),
        ({"offer": "gpu", "offers": ["gpu"]}, "offers", "both"),
        ({"offer": 5}, "offer", "not a text"),
        ({"offer": None}, "offer", "not a text"),
        ({"offer": {"id": "gpu"}}, "offer", "not a text"),
        ({"offer": True}, "offer", "not a text"),
        ({"offer": ""}, "offer", "empty"),
        ({"offer": ["gpu", "cpu"]}, "offer", "for a list use offers"),
        ({"offer": []}, "offer", "one id, not 0"),
        ({"offers": "gpu"}, "offers", "a list of ids"),
        ({"offers": []}, "offers", "1 to 8 ids, not 0"),
        ({"offers": [f"mig-1g.{n}gb" for n in range(1, 10)]}, "offers", "1 to 8 ids, not 9"),
        ({"offers": ["gpu", "gpu"]}, "offers", "gpu twice"),
        ({"offers": ["a\nb", "a\nb"]}, "offers", r"a\nb twice"),
        ({"offers": ["gpu", ["cpu"]]}, "offers", "not a text"),
        ({"offer": "gpu\n"}, "offer", "is no offer"),
        ({"offer": "mig-1g.5gb\x00"}, "offer", "is no offer"),
        ({"offer": "GPU"}, "offer", "is no offer"),
        ({"offer": "gpu-1.5"}, "offer", "a share is above 0 and at most 1"),
        ({"offer": "gpu-0"}, "offer", "a share is above 0 and at most 1"),
        ({"offer": "gpu-0.50"}, "offer", "write gpu-0.5"),
        ({"offer": "gpu-1"}, "offer", "write gpu"),
        ({"offer": "cpu-0.5"}, "offer", "is no offer"),
        ({"offer": "1g.5gb"}, "offer", "write mig-1g.5gb"),
        ({"offer": "nvidia.com/mig-1g.5gb"}, "offer", "write mig-1g.5gb"),
        ({"offer": "gpu-" + "9" * 400}, "offer", "a share is above 0 and at most 1"),
        (["gpu"], "user_options", "is an object"),
    ],
)
def test_a_bad_choice_names_the_field_and_what_would_be_right(options: object, field: str, words: str) -> None:
    with pytest.raises(UserOptionsError) as caught:
        UserOptions.from_dict(options)
    assert caught.value.field == field
    assert words in caught.value.text
    assert field in caught.value.text
    assert len(caught.value.text) < 250
    assert (caught.value.field + caught.value.text).isprintable(), "it goes into the hub's log"


def test_keys_of_others_are_left_alone_only_when_they_are_named() -> None:
    options = {"profile": "x", "offer": "gpu"}
    for also in (("profile",), None):
        assert UserOptions.from_dict(options, also=also) == UserOptions((OfferId("gpu"),), False, {"profile": "x"})
    with pytest.raises(UserOptionsError, match="'profile' is not known here"):
        UserOptions.from_dict(options)


def test_the_fields_of_the_form_become_one_choice_in_order() -> None:
    read = UserOptions.from_form
    assert read({"offer": ["mig-1g.5gb"], "also": ["", ""], "_xsrf": ["x"]}).offers == ("mig-1g.5gb",)
    several = read({"offer": ["mig-2g.10gb"], "also": ["mig-1g.5gb", "mig-2g.10gb"]})
    assert several.offers == ("mig-2g.10gb", "mig-1g.5gb")
    assert read({}) == UserOptions()


def test_the_form_of_a_choice_stays_when_it_is_written_and_read_again() -> None:
    """The hub stores `to_dict`, and an administrator may take a key away from those that are accepted."""
    for options in ({"offer": "gpu"}, {"offers": ["gpu", "cpu"], "notify_when_ready": True, "profile": "x"}):
        read = UserOptions.from_dict(options, also=None)
        assert read.to_dict() == options and UserOptions.from_dict(read.to_dict(), also=None) == read


offers = st.sampled_from(["cpu", "gpu", "gpu-0.5", "mig-1g.5gb", "", "gpu-2", "x"]) | st.text(max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | offers,
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.sampled_from(["offer", "offers", "x"]), inner),
    max_leaves=12,
)


@given(anything | st.dictionaries(st.sampled_from(["offer", "offers"]), anything | st.lists(offers)))
def test_arbitrary_json_is_a_choice_or_a_sentence(options: object) -> None:
    try:
        found = UserOptions.from_dict(options).offers
    except UserOptionsError as error:
        assert error.field
        assert error.text.endswith(".")
        return
    assert 1 <= len(found) == len(set(found)) <= 8
    assert all(isinstance(offer, OfferId) and OfferId(str(offer)) == offer for offer in found)
