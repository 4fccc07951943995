"""Every engine keeps the contract of the waist."""

import pytest

from clew.testing import conformance


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
def test_contract(case: conformance.Case, place: conformance.Place) -> None:
    case(place)
