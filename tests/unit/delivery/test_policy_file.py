"""Policy files as operators write them: what they come to, and what is said of those that cannot be used."""

from pathlib import Path

import pytest

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of, read_policies
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, ThresholdCondition, pattern_of
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.model.errors import WrongUse

LOCAL_IP, MX, REMOTE_IP = PickupField.LOCAL_IP, PickupField.REMOTE_MX, PickupField.REMOTE_IP
DOMAIN, JOB = PickupField.RECIPIENT_DOMAIN, PickupField.JOB_ID


def read(text: str) -> PickupPolicies:
    return policies_of(text, "policies.yaml").said


def picked(text: str, *mails: ActiveMail) -> int:
    """How many of the mails may be delivered at once."""
    found = read(text)
    engine = PickupEngine(found.policies, found.algorithm)
    for one in mails:
        engine.add(one)
    return len(list(iter(lambda: engine.pick(0), None)))


def mails(count: int, source: str = "192.0.2.1", **values: str) -> list[ActiveMail]:
    fields = {PickupField(name): value for name, value in values.items()}
    return [ActiveMail(f"{values} {number}", fields, (source,)) for number in range(count)]


PER_ADDRESS = """\
- fields:
  - localip
  default:
    concurrency: 10000
"""

PER_DOMAIN = """\
- fields:
  - localip
  - recipientdomain
  conditions:
  - if:
      recipientdomain: halon.io
    then:
      concurrency: 2
  default:
    concurrency: 5
"""

ROLLED_UP = """\
- fields:
  - localip
  - remotemx:
      gsuite:
        - '*.google.com'
        - '*.googlemail.com'
        - '*.smtp.goog'
  conditions:
  - if:
      remotemx: '#gsuite'
    then:
      concurrency: 10
      rate: 50
  default:
    concurrency: 5
    rate: 10
- fields:
  - localip
  - remotemx:
      o365:
        - '*.protection.outlook.com'
  - remoteip
  conditions:
  - if:
      remotemx: '#o365'
    then:
      concurrency: 10
      rate: 30
"""


SUSPENDED = """\
- transportid: customer1
  recipientdomain: gmail.com
"""

POOL = """\
- localip: 192.0.2.1
  recipientdomain: gmail.com
"""


def test_suspensions_hold_what_matches_in_all_of_their_fields() -> None:
    """Lists and networks too; `{}` is everything. Groups belong to policies."""
    found = read("lists: {big: [a.org, '*.b.org']}\nsuspends: [{recipientdomain: '@big', localip: 192.0.2.0/28}, {}]")
    first, everything = found.suspensions
    domain = PickupField.RECIPIENT_DOMAIN
    assert [first.holds({domain: one, LOCAL_IP: "192.0.2.9"}) for one in ("a.org", "x.b.org", "c.org")] == [
        True,
        True,
        False,
    ]
    assert not first.holds({domain: "a.org", LOCAL_IP: "192.0.2.16"})
    assert everything.holds({})
    with pytest.raises(BadPolicyFile, match="line 1, column 30: a suspension knows no groups"):
        read("suspends: [{recipientdomain: '#g'}]")


def test_the_first_example_limits_each_address() -> None:
    """Ten thousand at once from each of ours."""
    assert read(PER_ADDRESS).policies == (CounterPolicy((LOCAL_IP,), default=Threshold(concurrency=10_000)),)


def test_the_second_example_has_an_exception_for_one_domain() -> None:
    """Two to that, five to each other, from each address."""
    assert picked(PER_DOMAIN, *mails(9, recipientdomain="halon.io")) == 2
    assert picked(PER_DOMAIN, *mails(9, recipientdomain="example.org")) == 5
    assert (
        picked(PER_DOMAIN, *mails(9, recipientdomain="halon.io"), *mails(9, "192.0.2.2", recipientdomain="halon.io"))
        == 4
    )


def test_the_fourth_example_holds_one_transport_back_from_one_domain() -> None:
    """A list of suspensions alone: both fields must match."""
    suspended = mails(1, transportid="customer1", recipientdomain="gmail.com")
    others = [
        *mails(1, transportid="customer1", recipientdomain="a.org"),
        *mails(1, transportid="customer2", recipientdomain="gmail.com"),
    ]
    assert sent_from(SUSPENDED, *suspended, *others) == {other.id: "192.0.2.1" for other in others}


def test_the_fifth_example_takes_one_address_from_a_pool() -> None:
    """A mail that may go from another address goes from that one; with the one address alone it waits."""
    pool = ActiveMail("pool", {DOMAIN: "gmail.com"}, ("192.0.2.1", "192.0.2.2"))
    alone = ActiveMail("alone", {DOMAIN: "gmail.com"}, ("192.0.2.1",))
    assert sent_from(POOL, pool, alone) == {"pool": "192.0.2.2"}


def sent_from(text: str, *active: ActiveMail) -> dict[str, str]:
    """The mails that may be delivered under a file's suspensions, with their source addresses."""
    engine = PickupEngine(())
    for suspension in read(text).suspensions:
        engine.suspend(suspension, 0)
    for mail in active:
        engine.add(mail)
    return {picked.mail.id: picked.source for picked in iter(lambda: engine.pick(0), None)}


def test_the_third_example_rolls_servers_up() -> None:
    """Google's servers are counted together; Outlook's by address, and others not at all by that policy."""
    burst = PickupEngine(read(ROLLED_UP).policies, RateAlgorithm.SLIDING)
    for number in range(20):
        burst.add(*mails(1, remotemx=f"mx{number}.google.com", remoteip="192.0.2.9"))
    assert len(list(iter(lambda: burst.pick(0), None))) == 10
    first, second = read(ROLLED_UP).policies
    assert first.key({LOCAL_IP: "a", MX: "aspmx.l.google.com"}) == ("a", "#gsuite")
    assert first.threshold(("a", "#gsuite")) == Threshold(10, DeliveryRate(50))
    assert first.threshold(("a", "mx.example.org")) == Threshold(5, DeliveryRate(10))
    assert second.fields == (LOCAL_IP, MX, REMOTE_IP)
    assert second.threshold(("a", "#o365", "192.0.2.1")) == Threshold(10, DeliveryRate(30))
    assert second.threshold(("a", "mx.example.org", "192.0.2.1")) is None


def test_a_whole_file_has_its_algorithm_and_lists() -> None:
    """Policies below their name; a list stands for each of its values."""
    found = read("""
version: '1'
rate:
  algorithm: sliding
lists:
  vip: [one.example, '*.two.example']
policies:
- fields: [recipientdomain, jobid]
  conditions:
  - if: {recipientdomain: '@vip', jobid: [a, b]}
    then: {}
  default: {rate: 100/60, connectinterval: 0.5, stop: true}
""")
    condition = ThresholdCondition(
        {
            DOMAIN: (pattern_of(DOMAIN, "one.example"), pattern_of(DOMAIN, "*.two.example")),
            JOB: (pattern_of(JOB, "a"), pattern_of(JOB, "b")),
        },
        Threshold(),
    )
    default = Threshold(None, DeliveryRate(100, 60 * SECOND), SECOND // 2, stop=True)
    assert found == PickupPolicies((CounterPolicy((DOMAIN, JOB), {}, (condition,), default),), RateAlgorithm.SLIDING)


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        ("50", DeliveryRate(50)),
        ("100/60", DeliveryRate(100, 60 * SECOND)),
        ("'100/60'", DeliveryRate(100, 60 * SECOND)),
        ("[1, 0.5]", DeliveryRate(1, SECOND // 2)),
    ],
)
def test_a_rate_has_four_spellings(written: str, rate: DeliveryRate) -> None:
    """A number, a fraction, the same quoted, a pair."""
    assert read(f"- default: {{rate: {written}}}").policies == (CounterPolicy(default=Threshold(rate=rate)),)


def test_a_value_is_what_stands_there() -> None:
    """`no`, 012 and nothing at all are names of jobs; YAML's own meanings are none."""
    (policy,) = read(
        "- fields: [jobid]\n  conditions:\n  - {if: {jobid: [no, 012, '']}, then: {concurrency: 1}}"
    ).policies
    assert [policy.threshold((job,)) is not None for job in ("no", "012", "", "False", "10")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_tenants_have_weights() -> None:
    """The empty one is that of mails without tenant; YAML's own meanings are none."""
    assert read("tenants: {acme: 3, '': 100, no: 02}").weights == {"acme": 3, "": 100, "no": 2}
    assert read("[]").weights == {}


def test_an_empty_list_limits_nothing() -> None:
    """As no file does."""
    assert read("[]") == read("policies: []") == PickupPolicies()


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "there are no policies"),
        ("- fields: [", 1, 12, "this is not YAML"),
        ("- fields: [localip]\n  default: 5", 2, 12, "a threshold has entries"),
        ("- fields: [domain]", 1, 12, "'domain' is no field"),
        ("- fields: [localip, localip]", 1, 21, "counted by twice"),
        ("- fields: [jobid]\n- field: [jobid]", 2, 3, "a policy has no 'field'"),
        ("- default: {concurency: 5}", 1, 13, "a threshold has no 'concurency'"),
        ("- default: {concurrency: -1}", 1, 26, "'-1' is no number of deliveries"),
        ("- default: {concurrency: many}", 1, 26, "'many' is no number of deliveries"),
        ("- default: {rate: 0}", 1, 19, "a rate must allow at least 1 delivery"),
        ("- default: {rate: [1, 2, 3]}", 1, 19, "'1/2/3' is not a rate"),
        ("- default: {connectinterval: soon}", 1, 30, "'soon' is no number of seconds"),
        ("- default: {stop: maybe}", 1, 19, "'maybe' is neither"),
        ("- default: {rate: 1, rate: 2}", 1, 22, "'rate' is there twice"),
        ("- {conditions: [{if: {}}]}", 1, 17, "lacks its then"),
        (
            "- fields: [jobid]\n  conditions:\n  - if: {localip: 192.0.2.1}\n    then: {}",
            3,
            10,
            "does not count by localip",
        ),
        (
            "- fields: [localip]\n  conditions:\n  - if: {localip: nowhere}\n    then: {}",
            3,
            19,
            "'nowhere' is no address",
        ),
        ("- fields: [jobid]\n  conditions:\n  - if: {jobid: '#a'}\n    then: {}", 3, 17, "no group '#a'"),
        ("- fields: [jobid]\n  conditions:\n  - if: {jobid: '@a'}\n    then: {}", 3, 17, "no list '@a'"),
        ("- fields: [jobid]\n  conditions:\n  - if: {jobid: [[a]]}\n    then: {}", 3, 18, "a value is one value"),
        ("- fields: [jobid: {'a b': [x]}]", 1, 20, "'a b' is no name of a group"),
        ("- fields:\n  - jobid: {g: [x]}\n  conditions:\n  - {if: {jobid: x}, then: {}}", 4, 18, "x is counted as #g"),
        ("- fields: [{jobid: {}, localip: {}}]", 1, 12, "one name, with its groups"),
        ("rate: {algorithm: fast}\npolicies: []", 1, 19, "'fast' is no algorithm"),
        ("rate: {algorithm: sliding}\npolicies: [{default: {rate: 99999}}]", 2, 29, "would remember"),
        ("policies: 5", 1, 11, "policies are a list"),
        ("lists: {a: [x, [y]]}", 1, 16, "a value is one value"),
        ("tenants: [acme]", 1, 10, "tenants has entries like"),
        ("tenants: {a: 1, acme: 0}", 1, 23, "'0' is no weight of a tenant"),
        ("limits: []", 1, 1, "a policy file has no 'limits'"),
        ("- fields: [jobid]\n  conditions:\n  - if: {jobid: '/a(?=b)/'}\n    then: {}", 3, 17, "has a look-ahead"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(text: str, line: int, column: int, said: str) -> None:
    """File, line and column, and the line itself with a caret."""
    with pytest.raises(BadPolicyFile) as raised:
        read(text)
    assert (raised.value.place.line, raised.value.place.column) == (line, column), str(raised.value)
    assert f"policies.yaml, line {line}, column {column}: " in str(raised.value)
    assert said in str(raised.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """None is there, or it is no text."""
    file = tmp_path / "policies.yaml"
    with pytest.raises(WrongUse, match="cannot be read: No such file"):
        read_policies(file)
    file.write_bytes(b"\xff")
    with pytest.raises(WrongUse, match="not UTF-8"):
        read_policies(file)
    file.write_text(PER_ADDRESS)
    assert read_policies(file).said == read(PER_ADDRESS)


def test_each_part_of_a_file_has_its_place() -> None:
    """An entry at its name, one of a list at its own beginning; a list alone is one of policies."""
    read_file = policies_of("lists:\n  a: [x]\npolicies:\n- fields: [jobid, localip: {g: []}]\n", "policies.yaml")
    places = [
        read_file.place_of(path)
        for path in (("lists", "a"), ("policies", 0), ("policies", 0, "fields", 1, "localip", "g"))
    ]
    assert [(one.line, one.column) for one in places] == [(2, 3), (4, 3), (4, 29)]
    alone = policies_of("- default: {rate: 1}\n- default:\n    rate: 2\n", "policies.yaml")
    place = alone.place_of(("policies", 1, "default", "rate"))
    assert (place.line, place.column, place.text) == (3, 5, "    rate: 2")


def test_a_list_is_used_where_anything_refers_to_it() -> None:
    """A condition, a group or a suspension; a value of that name without @ is none."""
    lists = "lists: {a: [x.org], b: [y.org], c: [z.org], d: [w.org]}\n"
    policy = (
        "policies: [{fields: [recipientdomain: {g: ['@a']}], conditions: [{if: {recipientdomain: '@b'}, then: {}}]}]\n"
    )
    assert read(f"{lists}{policy}suspends: [{{recipientdomain: ['@c', d]}}]").unused_lists == ("d",)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (
            "- fields: [recipientdomain]\n  conditions:\n  - if: {recipientdomain: .example.org}\n    then: {}",
            3,
            27,
            "*.ex",
        ),
        (
            "- fields: [recipientdomain]\n  conditions:\n  - if: {recipientdomain: 'a.org:25'}\n    then: {}",
            3,
            27,
            "a.org",
        ),
        (
            (
                "- fields: [recipientdomain]\n  conditions:\n  - if:\n      recipientdomain: |\n        example.com\n"
                "    then: {}"
            ),
            *(4, 24, "Did you mean 'example.com'?"),
        ),
        ("- fields: [{grouping: {g: ['&google']}}]", 1, 28, "'&google' is how Halon names a grouping"),
        ("suspends: [{recipientdomain: 'https://a.org'}]", 1, 30, "Did you mean 'a.org'?"),
        ("suspends: [{recipientdomain: '@a.org'}]", 1, 30, "Did you mean 'a.org'? There are: none."),
        ("lists: {l: [a.org, 'b.org ']}\nsuspends: [{recipientdomain: '@l'}]", 1, 20, "Did you mean 'b.org'?"),
        ("suspends: [{localip: 192.0.2.1/24}]", 1, 22, "Did you mean 192.0.2.0/24?"),
        ("tenants: {'acme ': 3}", 1, 11, "Did you mean 'acme'?"),
    ],
)
def test_a_value_that_no_mail_can_have_is_refused_where_it_stands(
    text: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(BadPolicyFile) as refused:
        policies_of(text, "policies.yaml")

    place = refused.value.place
    assert (place.line, place.column) == (line, column)
    assert message in str(refused.value)
