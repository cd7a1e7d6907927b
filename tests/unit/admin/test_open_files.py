"""How many files a service may have open."""

import resource
from collections.abc import Iterator

import pytest

from mailmend.admin.delivery.serve import allow_open_files


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit; the soft one is 512 meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("wanted", "allowed"), [(100, 512), (512, 512), (700, 700)])
def test_the_limit_rises_to_what_is_wanted(hard: int, wanted: int, allowed: int) -> None:
    """And never falls."""
    assert allow_open_files(wanted) == allowed
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)


def test_the_limit_rises_no_further_than_the_system_allows(hard: int) -> None:
    if hard == resource.RLIM_INFINITY:
        pytest.skip("the system has no hard limit")
    assert allow_open_files(hard + 1) == hard
