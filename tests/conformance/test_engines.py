"""Every engine keeps the contract of the waist."""

from pathlib import Path

import pytest
from places import PackedFilesPlace

from clew.testing import conformance


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
def test_contract(case: conformance.Case, place: conformance.Place) -> None:
    case(place)


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.__name__)
def test_contract_where_every_thread_is_packed_again_and_again(
    case: conformance.Case, tmp_path: Path
) -> None:
    place = PackedFilesPlace(tmp_path)
    try:
        case(place)
    finally:
        place.close()
