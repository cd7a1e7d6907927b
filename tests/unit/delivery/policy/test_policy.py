"""Which mails are counted together, and under which limits: the seed's examples, and the rules that they leave open."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.covering import pattern_text
from mailmend.delivery.policy.incoming import IncomingField
from mailmend.delivery.policy.policy import (
    AddressRange,
    CounterPolicy,
    DomainsBelow,
    ExactValue,
    FieldGroup,
    GroupName,
    MatchedField,
    PickupField,
    RegexValues,
    Threshold,
    ThresholdCondition,
    ValuePattern,
    field_named,
    kept_pattern,
    pattern_of,
)
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.model.errors import WrongUse

LOCAL_IP, REMOTE_MX, DOMAIN = PickupField.LOCAL_IP, PickupField.REMOTE_MX, PickupField.RECIPIENT_DOMAIN
JOB = PickupField.JOB_ID
DOMAINS_APART = ["example", ".org", ".", "*", "*.", "@", "ann", "ü", "ß", "xn--", "A", "。", "-", "_", "\ud800"]
ADDRESSES_APART = ["192.0.2.1", "::1", "::ffff:", "/24", "/", ":25", "[", "]", "[IPv6:", "%eth0", "0"]
AROUND = [" ", "\n", "&", "#", '"', "<", ">", "https://"]
PIECES = st.sampled_from([*DOMAINS_APART, *ADDRESSES_APART, *AROUND])
WORDS = st.one_of(st.text(max_size=12), st.lists(PIECES, max_size=5).map("".join))


def condition(one: PickupField, text: str, threshold: Threshold) -> ThresholdCondition[Threshold]:
    return ThresholdCondition({one: (pattern_of(one, text),)}, threshold)


def limits(policy: CounterPolicy, **values: str) -> Threshold | None:
    return policy.threshold(policy.key({PickupField(name): value for name, value in values.items()}))


PER_LOCAL_IP = CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=10_000))

PER_DOMAIN = CounterPolicy(
    (LOCAL_IP, DOMAIN),
    conditions=(condition(DOMAIN, "halon.io", Threshold(concurrency=2)),),
    default=Threshold(concurrency=5),
)

GOOGLE = tuple(pattern_of(REMOTE_MX, text) for text in ("*.google.com", "*.googlemail.com", "*.smtp.goog"))
ROLLED_UP = CounterPolicy(
    (LOCAL_IP, REMOTE_MX),
    {REMOTE_MX: (FieldGroup("gsuite", GOOGLE),)},
    (condition(REMOTE_MX, "#gsuite", Threshold(concurrency=10, rate=DeliveryRate(50))),),
    Threshold(concurrency=5, rate=DeliveryRate(10)),
)

OUTLOOK_ONLY = CounterPolicy(
    (LOCAL_IP, REMOTE_MX, PickupField.REMOTE_IP),
    {REMOTE_MX: (FieldGroup("o365", (pattern_of(REMOTE_MX, "*.protection.outlook.com"),)),)},
    (condition(REMOTE_MX, "#o365", Threshold(concurrency=10, rate=DeliveryRate(30))),),
)


def test_each_source_address_has_a_counter_of_its_own() -> None:
    """The seed's first example."""
    assert PER_LOCAL_IP.key({LOCAL_IP: "192.0.2.1"}) != PER_LOCAL_IP.key({LOCAL_IP: "192.0.2.2"})
    assert limits(PER_LOCAL_IP, localip="192.0.2.1") == Threshold(concurrency=10_000)


def test_a_condition_sets_other_limits_for_its_domain() -> None:
    """The seed's second example."""
    assert limits(PER_DOMAIN, localip="192.0.2.1", recipientdomain="halon.io") == Threshold(concurrency=2)
    assert limits(PER_DOMAIN, localip="192.0.2.1", recipientdomain="example.org") == Threshold(concurrency=5)


def test_the_values_of_a_group_are_counted_as_one() -> None:
    """The seed's third example, its first counter."""
    keys = {ROLLED_UP.key({LOCAL_IP: "::1", REMOTE_MX: mx}) for mx in ("aspmx.l.google.com", "alt1.smtp.goog")}
    assert keys == {("::1", "#gsuite")}
    assert limits(ROLLED_UP, remotemx="gmail-smtp-in.l.google.com") == Threshold(10, DeliveryRate(50))
    assert limits(ROLLED_UP, remotemx="mx.example.org") == Threshold(5, DeliveryRate(10))


def test_without_a_default_only_what_a_condition_names_is_limited() -> None:
    """The seed's third example, its second counter."""
    outlook = limits(OUTLOOK_ONLY, remotemx="example-org.mail.protection.outlook.com", remoteip="192.0.2.9")
    assert outlook == Threshold(10, DeliveryRate(30))
    assert limits(OUTLOOK_ONLY, remotemx="mx.example.org", remoteip="192.0.2.9") is None


def test_the_first_condition_wins_and_takes_nothing_from_the_default() -> None:
    first, second = Threshold(rate=DeliveryRate(7)), Threshold(concurrency=1)
    policy = CounterPolicy(
        (DOMAIN,),
        conditions=(condition(DOMAIN, "*.example.org", first), condition(DOMAIN, "a.example.org", second)),
        default=Threshold(concurrency=5),
    )
    assert limits(policy, recipientdomain="a.example.org") == first


def test_the_fields_of_a_condition_hold_together_and_each_may_have_several_values() -> None:
    both = ThresholdCondition(
        {
            DOMAIN: (pattern_of(DOMAIN, "a.org"), pattern_of(DOMAIN, "b.org")),
            JOB: (pattern_of(JOB, "news"),),
        },
        Threshold(concurrency=1),
    )
    assert both.holds({DOMAIN: "b.org", JOB: "news"})
    assert not both.holds({DOMAIN: "b.org", JOB: "other"})
    assert not both.holds({DOMAIN: "c.org", JOB: "news"})
    assert ThresholdCondition({}, Threshold()).holds({DOMAIN: "c.org"})


def test_a_field_that_a_mail_lacks_is_an_empty_value_that_a_condition_can_name() -> None:
    policy = CounterPolicy((JOB,), conditions=(condition(JOB, "", Threshold(concurrency=3)),))
    assert policy.key({}) == ("",)
    assert limits(policy) == Threshold(concurrency=3)
    assert limits(policy, jobid="news") is None


def test_a_counter_without_fields_counts_everything() -> None:
    policy = CounterPolicy(default=Threshold(concurrency=20_000))
    assert policy.key({DOMAIN: "a.org"}) == policy.key({DOMAIN: "b.org"}) == ()
    assert limits(policy, recipientdomain="a.org") == Threshold(concurrency=20_000)


def test_the_first_group_that_holds_a_value_has_it() -> None:
    groups = tuple(FieldGroup(name, (pattern_of(DOMAIN, text),)) for name, text in (("all", "/./"), ("a", "a.org")))
    policy = CounterPolicy((DOMAIN,), {DOMAIN: groups})
    assert policy.key({DOMAIN: "a.org"}) == ("#all",)


@pytest.mark.parametrize(
    ("one", "text", "meant", "not_meant"),
    [
        (DOMAIN, "Example.ORG.", "example.org", "a.example.org"),
        (DOMAIN, "bücher.example", "xn--bcher-kva.example", "bücher.example"),
        (DOMAIN, "*.example.org", "a.b.example.org", "example.org"),
        (DOMAIN, "*.example.org", "a.example.org", "badexample.org"),
        (DOMAIN, "/^mx[0-9]+[.]/", "mx12.example.org", "smx1.example.org"),
        (LOCAL_IP, "192.0.2.1", "192.0.2.1", "192.0.2.10"),
        (LOCAL_IP, "::ffff:192.0.2.1", "192.0.2.1", "::1"),
        (LOCAL_IP, "192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
        (LOCAL_IP, "2001:db8::/32", "2001:db8::1", "192.0.2.1"),
        (LOCAL_IP, "192.0.2.0/24", "192.0.2.0", ""),
        (JOB, "*.news", "*.news", "a.news"),
        (JOB, "News", "News", "news"),
    ],
)
def test_a_pattern_means_the_values_of_its_kind(one: PickupField, text: str, meant: str, not_meant: str) -> None:
    pattern = pattern_of(one, text)

    assert pattern.matches(meant)
    assert not pattern.matches(not_meant)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (LOCAL_IP, "192.0.2.300"),
        (LOCAL_IP, "192.0.2.1/24"),
        (LOCAL_IP, "example.org"),
        (DOMAIN, f"{'ü' * 64}.example"),
        (DOMAIN, "/(/"),
        (DOMAIN, "/(?=a)b/"),
        (DOMAIN, r"/(a)\1/"),
        (DOMAIN, f"/{'a' * 1001}/"),
    ],
)
def test_what_is_no_pattern_is_refused(one: PickupField, text: str) -> None:
    with pytest.raises(WrongUse):
        pattern_of(one, text)


@given(st.sampled_from([*PickupField, *IncomingField]), WORDS)
def test_a_value_has_one_normal_form_or_no_mail_can_have_it(one: MatchedField, value: str) -> None:
    """What a mail says is compared in that form too, and refused never."""
    try:
        normal = one.normal(value)
    except WrongUse:
        assert one.of(value) in {"", value, value.lower()}
        return
    assert one.normal(normal) == normal == one.of(value)
    assert not any(mark.isspace() and mark != " " for mark in normal)


@given(st.sampled_from([*PickupField, *IncomingField]), WORDS)
def test_a_pattern_is_spelt_as_it_is_read_again(one: MatchedField, text: str) -> None:
    """A condition that was kept means the same for every server that reads it."""
    try:
        pattern = pattern_of(one, text)
    except WrongUse:
        return
    assert pattern_of(one, pattern_text(pattern)) == pattern == kept_pattern(one, text)


@pytest.mark.parametrize(
    ("one", "text", "mend"),
    [
        (DOMAIN, ".example.org", "Did you mean '*.example.org'? It is every domain below example.org"),
        (DOMAIN, "*example.org", "Did you mean '*.example.org'?"),
        (DOMAIN, "*", "Every value is '/.*/'"),
        (DOMAIN, "mx*.example.org", "Write a regular expression"),
        (DOMAIN, "*.*.org", "Write a regular expression"),
        (DOMAIN, "*.", "Write it like example.org"),
        (DOMAIN, "example.org:25", "Did you mean 'example.org'?"),
        (DOMAIN, "example.org\n", "Did you mean 'example.org'?"),
        (DOMAIN, " example.org", "Did you mean 'example.org'?"),
        (DOMAIN, "https://Example.org/x?y", "Did you mean 'example.org'?"),
        (DOMAIN, "ann@example.org", "Did you mean 'example.org'?"),
        (DOMAIN, "<ann@example.org>", "Did you mean 'example.org'?"),
        (DOMAIN, "example.org, example.net", "Write it like example.org"),
        (DOMAIN, "-a.example", "Write it like example.org"),
        (DOMAIN, "a..example", "Write it like example.org"),
        (DOMAIN, "&google", "'&google' is how Halon names a grouping"),
        (
            REMOTE_MX,
            "&google",
            "Write 'google' as a value of the field grouping, or '#google' for a group of this field",
        ),
        (PickupField.GROUPING, "&google", "Write 'google' as a value of the field grouping"),
        (REMOTE_MX, "mx1.example.org:25", "Did you mean 'mx1.example.org'?"),
        (LOCAL_IP, "192.0.2.1:25", "Did you mean '192.0.2.1'?"),
        (LOCAL_IP, "[192.0.2.1]", "Did you mean '192.0.2.1'?"),
        (LOCAL_IP, "[2001:db8::1]:25", "Did you mean '2001:db8::1'?"),
        (LOCAL_IP, "192.0.2.1 ", "Did you mean '192.0.2.1'?"),
        (LOCAL_IP, "192.0.2.01", "Did you mean '192.0.2.1'?"),
        (LOCAL_IP, "fe80::1%a b", "Write 192.0.2.1, or ::1"),
        (LOCAL_IP, "192.0.2.1/24", "Did you mean 192.0.2.0/24?"),
        (LOCAL_IP, "2001:db8::1/64", "Did you mean 2001:db8::/64?"),
        (LOCAL_IP, "192.0.2.0/24\n", "Did you mean 192.0.2.0/24?"),
        (LOCAL_IP, "https://192.0.2.1", "Write it like 192.0.2.0/24"),
        (JOB, "spring\n", "Did you mean 'spring'?"),
        (JOB, "spring ", "Did you mean 'spring'?"),
        (JOB, "spring\nsale", "Did you mean 'spring sale'?"),
        (JOB, "a" * 1_001, "Write at most 1,000"),
        (IncomingField.SENDER, "example.org", "Write it like bob@example.org"),
        (IncomingField.SENDER, "*@example.org", "Write senderdomain: example.org"),
        (IncomingField.RECIPIENT, "*@example.org", "Write recipientdomain: example.org"),
        (IncomingField.SENDER, "<>", "The null sender is the empty value"),
        (IncomingField.SENDER, "<ann@example.org>", "Did you mean 'ann@example.org'?"),
        (IncomingField.SENDER, "ann bob@example.org", "Write it like bob@example.org"),
        (IncomingField.HEADER, "daily ", "Did you mean 'daily'?"),
        (IncomingField.CLIENT, "client.example", "Write 192.0.2.1, or ::1"),
        (IncomingField.HELO, ".example.org", "Did you mean '*.example.org'?"),
        (IncomingField.SENDER, ".example.org", "Write it like bob@example.org"),
        (DOMAIN, ".-a.org", "Write it like example.org"),
        (LOCAL_IP, "&google", "'&google' is how Halon names a grouping"),
        (PickupField.REMOTE_IP, "&google", "'&google' is how Halon names a grouping"),
        (IncomingField.CLIENT, "&google", "'&google' is how Halon names a grouping"),
        (IncomingField.SENDER_DOMAIN, "&google", "'&google' is how Halon names a grouping"),
        (IncomingField.HELO, "&google", "'&google' is how Halon names a grouping"),
    ],
)
def test_a_value_that_no_mail_can_have_is_refused_with_what_may_be_meant(
    one: MatchedField, text: str, mend: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        pattern_of(one, text)

    assert mend in str(refused.value)


@pytest.mark.parametrize(
    ("one", "text", "spelt"),
    [
        (DOMAIN, "Example.ORG.", "example.org"),
        (DOMAIN, "BÜCHER.example", "xn--bcher-kva.example"),
        (DOMAIN, "XN--BCHER-kva.example", "xn--bcher-kva.example"),
        (DOMAIN, "*.Straße.example", "*.xn--strae-oqa.example"),
        (DOMAIN, "[IPv6:2001:DB8::1]", "[ipv6:2001:db8::1]"),
        (DOMAIN, "_spf.example", "_spf.example"),
        (DOMAIN, "localhost", "localhost"),
        (DOMAIN, "", ""),
        (REMOTE_MX, "2001:DB8::0", "2001:db8::"),
        (REMOTE_MX, "192.0.2.1", "192.0.2.1"),
        (LOCAL_IP, "::ffff:192.0.2.1", "192.0.2.1"),
        (LOCAL_IP, "::ffff:192.0.2.0/120", "192.0.2.0/24"),
        (LOCAL_IP, "192.0.2.0/255.255.255.0", "192.0.2.0/24"),
        (LOCAL_IP, "", ""),
        (JOB, "Spring sale", "Spring sale"),
        (JOB, "&spring", "&spring"),
        (IncomingField.SENDER, "Ann@BÜCHER.example", "ann@xn--bcher-kva.example"),
        (IncomingField.SENDER, '"Ann Bee"@example.org', '"ann bee"@example.org'),
        (IncomingField.SENDER, "", ""),
    ],
)
def test_a_value_is_spelt_in_one_way(one: MatchedField, text: str, spelt: str) -> None:
    assert pattern_text(pattern_of(one, text)) == spelt


def test_a_value_that_was_kept_before_it_would_be_refused_is_read() -> None:
    """One row of the ledger that an older version took must not keep a server from reading all others."""
    assert kept_pattern(DOMAIN, ".example.org") == ExactValue(".example.org")
    assert not kept_pattern(LOCAL_IP, "192.0.2.1/24").matches("192.0.2.1")
    with pytest.raises(WrongUse, match="look-ahead"):
        kept_pattern(DOMAIN, "/a(?=b)/")


def test_a_network_holds_no_group_of_addresses() -> None:
    """Addresses that are counted as a group are passed over by a condition on a network, which goes on to others."""
    remote_ip = PickupField.REMOTE_IP
    policy = CounterPolicy(
        (remote_ip,),
        {remote_ip: (FieldGroup("office", (pattern_of(remote_ip, "192.0.2.0/24"),)),)},
        (condition(remote_ip, "10.0.0.0/8", Threshold(concurrency=1)),),
        Threshold(concurrency=5),
    )
    assert limits(policy, remoteip="192.0.2.1") == Threshold(concurrency=5)
    assert limits(policy, remoteip="10.1.1.1") == Threshold(concurrency=1)


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("*", "Every value is '/.*/', and every domain below another is '*.domain'."),
        ("mx*.example.org", "Write a regular expression, like '/^mx[0-9]+[.]/'."),
        ("*example.org", "Did you mean '*.example.org'?"),
        (
            ".example.org",
            "Did you mean '*.example.org'? It is every domain below example.org, without that one itself.",
        ),
    ],
)
def test_the_refusal_of_a_pattern_of_domains_says_what_to_write(text: str, mend: str) -> None:
    with pytest.raises(WrongUse) as refused:
        pattern_of(DOMAIN, text)

    assert refused.value.mend == mend


def test_the_refusal_of_a_value_names_its_field() -> None:
    with pytest.raises(WrongUse) as refused:
        pattern_of(JOB, "spring ")

    assert refused.value.what == "'spring ' is no value of jobid"


@pytest.mark.parametrize("one", [PickupField.REMOTE_IP, IncomingField.CLIENT, LOCAL_IP])
def test_values_of_fields_of_addresses_are_addresses(one: MatchedField) -> None:
    assert pattern_of(one, "192.0.2.0/24") == AddressRange(ip_network("192.0.2.0/24"))
    assert pattern_of(one, "::ffff:192.0.2.1") == ExactValue("192.0.2.1")


@pytest.mark.parametrize("one", [REMOTE_MX, DOMAIN, IncomingField.SENDER_DOMAIN, IncomingField.HELO])
def test_values_of_fields_of_domains_are_domains(one: MatchedField) -> None:
    assert pattern_of(one, "*.Example.org") == DomainsBelow("example.org")
    assert pattern_of(one, "Example.org.") == ExactValue("example.org")


@pytest.mark.parametrize("one", [IncomingField.SENDER, IncomingField.RECIPIENT])
def test_values_of_fields_of_mailboxes_are_mailboxes(one: MatchedField) -> None:
    assert pattern_of(one, "Ann@Example.org") == ExactValue("ann@example.org")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("//", RegexValues("")),
        ("/a/", RegexValues("a")),
        ("/", ExactValue("/")),
        ("/a", ExactValue("/a")),
        ("a/", ExactValue("a/")),
        ("#g", GroupName("g")),
        ("a#g", ExactValue("a#g")),
        ("*@a.org", ExactValue("*@a.org")),
    ],
)
def test_only_a_text_between_slashes_is_an_expression_and_only_a_mark_before_a_name_is_a_group(
    text: str, meant: ValuePattern
) -> None:
    assert pattern_of(JOB, text) == meant


@pytest.mark.parametrize(
    ("one", "said", "compared"),
    [
        (DOMAIN, "No Domain", "no domain"),
        (IncomingField.HELO, "No Domain", "no domain"),
        (IncomingField.SENDER, "No Mailbox", "no mailbox"),
        (IncomingField.RECIPIENT, "No Mailbox", "no mailbox"),
        (IncomingField.CLIENT, "No Address", ""),
        (LOCAL_IP, "No Address", ""),
        (JOB, "No Name ", "No Name "),
        (REMOTE_MX, "MX1.example.org", "mx1.example.org"),
        (DOMAIN, "", ""),
    ],
)
def test_what_a_mail_says_that_cannot_be_is_compared_in_small_letters_where_case_means_nothing(
    one: MatchedField, said: str, compared: str
) -> None:
    """What is no address is no value."""
    assert one.of(said) == compared


def test_fields_have_the_names_that_policy_files_write() -> None:
    """A file that names another one is refused, so no version may rename a field."""
    assert [pickup_field.value for pickup_field in PickupField] == [
        *("transportid", "localip", "remoteip", "remotemx", "recipientdomain", "jobid", "grouping", "tenantid"),
    ]


def test_a_field_is_found_by_its_name_and_a_misspelt_one_is_refused_with_what_may_be_meant() -> None:
    assert [field_named(one.value) for one in PickupField] == list(PickupField)
    with pytest.raises(WrongUse, match="'jobbid' is no field") as refused:
        field_named("jobbid")
    assert "jobid" in refused.value.mend


@pytest.mark.parametrize(
    ("threshold", "is_shared"),
    [
        (Threshold(1), True),
        (Threshold(rate=DeliveryRate(1)), True),
        (Threshold(connect_interval=1), True),
        (Threshold(), False),
        (Threshold(0), False),
        (Threshold(1, DeliveryRate(1), 1, cluster=False), False),
    ],
)
def test_servers_share_limits_that_let_some_begin_unless_each_has_them_for_itself(
    threshold: Threshold, *, is_shared: bool
) -> None:
    assert threshold.is_shared is is_shared
    assert not threshold.stop


def test_connections_begin_one_in_each_connect_interval() -> None:
    assert Threshold(connect_interval=3 * SECOND).connects == DeliveryRate(1, 3 * SECOND)
    assert Threshold(connect_interval=0).connects is Threshold().connects is None


def test_policies_count_alike_where_their_fields_and_groups_are_the_same() -> None:
    """Whatever their limits; the order of the fields matters."""
    other_limits = CounterPolicy(ROLLED_UP.fields, ROLLED_UP.groups)
    assert ROLLED_UP.counts_as(other_limits)
    assert not ROLLED_UP.counts_as(CounterPolicy(ROLLED_UP.fields))
    assert not ROLLED_UP.counts_as(CounterPolicy(ROLLED_UP.fields[::-1], ROLLED_UP.groups))
    assert PER_LOCAL_IP.counts_as(CounterPolicy((LOCAL_IP,)))


def test_a_condition_is_known_by_its_number() -> None:
    """The default has none."""
    conditions = tuple(condition(DOMAIN, text, Threshold(1)) for text in ("a.org", "b.org", "*.org"))
    policy = CounterPolicy((DOMAIN,), conditions=conditions)
    found = {text: policy.condition((text,)) for text in ("a.org", "b.org", "c.org", "d.com")}
    assert found == {"a.org": 0, "b.org": 1, "c.org": 2, "d.com": None}


def test_only_the_values_of_a_field_with_groups_are_counted_as_groups() -> None:
    """A value in no group stands for itself, and so does a field that the mail lacks."""
    assert ROLLED_UP.key({LOCAL_IP: "::1", REMOTE_MX: "mx.example.org"}) == ("::1", "mx.example.org")
    assert ROLLED_UP.key({}) == ("", "")
    assert PER_DOMAIN.key({LOCAL_IP: "::1"}) == ("::1", "")


def test_a_value_that_was_kept_is_compared_in_its_normal_form_where_it_has_one() -> None:
    assert kept_pattern(DOMAIN, "*.Example.org") == DomainsBelow("example.org")
    assert kept_pattern(DOMAIN, "No Domain") == ExactValue("no domain")
    assert kept_pattern(LOCAL_IP, "192.0.2.1/24") == ExactValue("")
