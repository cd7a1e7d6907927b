"""By what clients of a server are told apart."""

import pytest

from model.client_addresses import counted_address


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_a_host_is_counted_by_the_address_that_it_has_alone(client: str, counted: str) -> None:
    assert counted_address(client) == counted
