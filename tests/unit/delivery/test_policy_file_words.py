"""What a policy file says of each kind of mistake: place, problem, and what to write instead."""

import pytest

from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of

ONE = " is one value, and neither a list nor a mapping"
LIST = "Begin each of them with '- '."
ENTRIES = " has entries like 'name: value'"

LISTS = {
    "lists: {a: x}": f"1:12 the values of a list are a list\n{LIST}",
    "lists: {a: [[y]]}": f"1:13 a value{ONE}",
    "lists: [a]": f"1:8 lists{ENTRIES}",
    "lists: {[a]: [x]}": f"1:9 a name in lists{ONE}",
}
SUSPENDS = {
    "suspends: {}": f"1:11 suspends are a list\n{LIST}",
    "suspends: [a]": f"1:12 a suspension{ENTRIES}",
    "suspends: [{jobid: '#g'}]": ("1:20 a suspension knows no groups\nWrite the values, or '@name' of a list."),
    "suspends: [{colour: x}]": (
        "1:13 'colour' is no field\n"
        "There are: transportid, localip, remoteip, remotemx, recipientdomain, "
        "jobid, grouping, tenantid."
    ),
    "suspends: [{[a]: x}]": f"1:13 a name in a suspension{ONE}",
    "suspends: [{jobid: x, jobid: y}]": "1:23 'jobid' is there twice in a suspension",
    "suspends: [{jobid: [[x]]}]": f"1:21 a value{ONE}",
    "suspends: [{jobid: '@l'}]": "1:20 there is no list '@l'\nThere are: none.",
    "lists: {l: [], m: []}\nsuspends: [{jobid: '@k'}]": ("2:20 there is no list '@k'\nThere are: l, m."),
    "lists: {a.org: [x]}\nsuspends: [{jobid: '@b.org'}]": (
        "2:20 there is no list '@b.org'\nDid you mean 'b.org'? Did you mean '@a.org'? There are: a.org."
    ),
}
TENANTS = {
    "tenants: [a]": f"1:10 tenants{ENTRIES}",
    "tenants: {'acme ': 1}": "1:11 'acme ' is no name\nDid you mean 'acme'?",
    "tenants: {a: [1]}": f"1:14 a weight{ONE}",
    "tenants: {a: 0}": ("1:14 '0' is no weight of a tenant\nWrite 1 to 100; a suspension holds mails."),
}
INCOMING = {
    "incoming: {}": f"1:11 incoming are a list\n{LIST}",
    "incoming: [a]": f"1:12 a rule of incoming{ENTRIES}",
    "incoming: [{remove: [[a]]}]": f"1:22 a header field{ONE}",
    "incoming: [{remove: 'a b'}]": "1:21 'a b' is no name of a header field\nWrite it like X-Job.",
    "incoming: [{if: [a]}]": f"1:17 if{ENTRIES}",
    "incoming: [{if: {header: [a]}}]": f"1:26 header{ENTRIES}",
    "incoming: [{if: {header: {X-A: a, x-a: b}}}]": "1:35 'x-a' is there twice in header",
    "incoming: [{if: {colour: x}}]": (
        "1:18 'colour' is no field of a mail that comes in\n"
        "There are: client, helo, user, sender, senderdomain, recipient, recipientdomain, header."
    ),
    "incoming: [{if: {sender: '#g'}}]": (
        "1:26 rules of incoming know no groups\nWrite the values, or '@name' of a list."
    ),
    "incoming: [{if: {header: {X-A: '#g'}}}]": (
        "1:32 rules of incoming know no groups\nWrite the values, or '@name' of a list."
    ),
    "incoming: [{set: [a]}]": f"1:18 set{ENTRIES}",
    "incoming: [{set: {attributes: [a]}}]": f"1:31 attributes{ENTRIES}",
    "incoming: [{set: {attributes: {jobid: x}}}]": (
        "1:32 jobid is set outside the attributes\nWrite it as jobid: below set."
    ),
    "incoming: [{set: {attributes: {MAIL_PRIORITY: 1}}}]": (
        "1:32 MAIL_PRIORITY is set outside the attributes\nWrite it as priority: below set."
    ),
    "incoming: [{set: {attributes: {priority: 1}}}]": (
        "1:32 priority is set outside the attributes\nWrite it as priority: below set."
    ),
    "incoming: [{set: {attributes: {mailmend.x: 1}}}]": (
        "1:32 'mailmend.x' is no attribute that a rule may set\nmailmend.* and dsn-* are set by other means."
    ),
    "incoming: [{set: {attributes: {dsn-x: 1}}}]": (
        "1:32 'dsn-x' is no attribute that a rule may set\nmailmend.* and dsn-* are set by other means."
    ),
    "incoming: [{set: {attributes: {'': 1}}}]": (
        "1:32 '' is no attribute that a rule may set\nmailmend.* and dsn-* are set by other means."
    ),
    "incoming: [{set: {attributes: {a: [1]}}}]": f"1:35 a value{ONE}",
    "incoming: [{set: {jobid: [a]}}]": f"1:26 a value{ONE}",
    "incoming: [{set: {jobid: '${who}'}}]": (
        "1:26 ${who} is neither a group of an expression of this rule nor one of"
        " client, helo, user, sender, senderdomain, recipient, recipientdomain"
    ),
    "incoming: [{set: {jobid: '${'}}]": (
        "1:26 '${' has a '${' without its end\nWrite ${1}, ${name} or ${senderdomain}."
    ),
    "incoming: [{set: {priority: 11}}]": ("1:29 '11' is no priority\nPriorities go from 0, the last, to 9, the first."),
    "incoming: [{stop: maybe}]": "1:19 'maybe' is neither true nor false",
    "incoming: [{stop: [x]}]": f"1:19 stop{ONE}",
    "incoming: [{colour: 1}]": (
        "1:13 a rule of incoming has no 'colour'\nIt may have: if, set, remove, hold, delay, reject, stop."
    ),
    "incoming: [{hold: ''}]": (
        "1:19 '' is neither true nor false, nor a reason\nA reason is one line of at most 200 characters."
    ),
    "incoming: [{hold: 'by ${sender}'}]": (
        "1:19 'by ${sender}' has a '${', and only what is set has references\nWrite the text itself."
    ),
    "incoming: [{delay: soon}]": ("1:20 'soon' is no time to wait\nWrite it like 600, which is in seconds, or 10m."),
    "incoming: [{delay: 400d}]": "1:20 '400d' is longer than 366d, the longest that makes sense here",
    "incoming: [{reject: 250 fine}]": (
        "1:21 '250 fine' is no reply that refuses a mail\n"
        "Write it like 550 5.7.1 no such mails here; 4yz is for now, 421 would end the connection."
    ),
    "incoming: [{reject: 421 4.7.0 go}]": (
        "1:21 '421 4.7.0 go' is no reply that refuses a mail\n"
        "Write it like 550 5.7.1 no such mails here; 4yz is for now, 421 would end the connection."
    ),
    "incoming: [{reject: 550 4.7.1 no}]": "1:21 4.7.1 is no status of a reply 550\nWrite it like 550 5.7.1.",
    "incoming: [{reject: größer}]": (
        "1:21 'größer' is neither true nor false, nor a reply\n"
        "A reply is one line of at most 400 characters of ASCII, like 550 5.7.1 no such mails here."
    ),
}
POLICIES = {
    "policies: {}": f"1:11 policies are a list\n{LIST}",
    "- a": f"1:3 a policy{ENTRIES}",
    "- {default: a}": f"1:13 a threshold{ENTRIES}",
    "- {default: {rate: {}}}": f"1:20 a rate{ONE}",
    "- {default: {rate: [[1]]}}": f"1:21 a number of a rate{ONE}",
    "- {default: {rate: 0}}": (
        "1:20 a rate must allow at least 1 delivery\nTo let none through, suspend what is meant."
    ),
    "- {default: {connectinterval: soon}}": ("1:31 'soon' is no number of seconds\nWrite it like 5, or 0.5."),
    "- {default: {concurrency: -1}}": (
        "1:27 '-1' is no number of deliveries\nWrite 0, which lets none begin, or more."
    ),
    "- {default: {concurrency: [1]}}": f"1:27 concurrency{ONE}",
    "- {fields: {}}": f"1:12 fields are a list\n{LIST}",
    "- {fields: [[a]]}": f"1:13 a field{ONE}",
    "- {fields: [jobid, jobid]}": "1:20 jobid is counted by twice",
    "- {fields: [{}]}": "1:13 a field with groups is one name, with its groups below it",
    "- {fields: [{jobid: {}, tenantid: {}}]}": ("1:13 a field with groups is one name, with its groups below it"),
    "- {fields: [{jobid: {}, jobid: {}}]}": "1:25 'jobid' is there twice in a field with groups",
    "- {fields: [{jobid: x}]}": f"1:21 groups{ENTRIES}",
    "- {fields: [{jobid: {'a b': [x]}}]}": (
        "1:22 'a b' is no name of a group\nLetters, digits, '.', '-' and '_' make one."
    ),
    "- {fields: [{jobid: {g: x}}]}": f"1:25 the patterns of a group are a list\n{LIST}",
    "- {fields: [{jobid: {g: [[h]]}}]}": f"1:26 a value{ONE}",
    "- {conditions: {}}": f"1:16 conditions are a list\n{LIST}",
    "- {conditions: [a]}": f"1:17 a condition{ENTRIES}",
    "- {conditions: [{}]}": ("1:17 a condition lacks its then\nWrite the limits below then; then: {} sets no limit."),
    "- {conditions: [{if: [a], then: {}}]}": f"1:22 if{ENTRIES}",
    "- {conditions: [{if: {jobid: x}, then: {}}]}": ("1:23 this does not count by jobid\nIt counts by: nothing."),
    "- {fields: [jobid, localip], conditions: [{if: {tenantid: x}, then: {}}]}": (
        "1:49 this does not count by tenantid\nIt counts by: jobid, localip."
    ),
    "- {fields: [jobid], conditions: [{if: {jobid: [[x]]}, then: {}}]}": f"1:48 a value{ONE}",
    "- {fields: [jobid], conditions: [{if: {jobid: '#g'}, then: {}}]}": (
        "1:47 jobid has no group '#g' here\nIt has: none."
    ),
    "- {fields: [jobid: {g: [x], h: [x]}], conditions: [{if: {jobid: ['', x, y]}, then: {}}]}": (
        "1:65 x is counted as #g, and never alone\nWrite '#g'."
    ),
    "- {fields: [jobid: {g: [x], h: [y]}], conditions: [{if: {jobid: '#k'}, then: {}}]}": (
        "1:65 jobid has no group '#k' here\nIt has: g, h."
    ),
    "- {default: {rate: 1, rate: 2}}": "1:23 'rate' is there twice in a threshold",
}
RATE = {
    "rate: {algorithm: fast}": ("1:19 'fast' is no algorithm of rates\nThere are: tokenbucket, fixedwindow, sliding."),
    "rate: {algorithm: [sliding]}": f"1:19 algorithm{ONE}",
    "rate: fast": f"1:7 rate{ENTRIES}",
    "rate: {algorithm: sliding}\npolicies: [{default: {rate: 99999}}]": (
        "2:29 a sliding rate of 99,999 would remember as many instants\n"
        "Count at most 10,000, over a shorter interval, or take the token bucket."
    ),
}
QUOTAS = {
    "quotas: {}": f"1:9 quotas are a list\n{LIST}",
    "quotas: [a]": f"1:10 a quota{ENTRIES}",
    "quotas: [{}]": ("1:10 a quota lacks its name\nClients are told which quota is full, and so are metrics: name it."),
    "quotas: [{name: q}, {name: q}]": "1:28 there are two quotas 'q'",
    "quotas: [{name: 'a b'}]": ("1:17 'a b' is no name of a quota\nLetters, digits, '.', '-' and '_' make one."),
    "quotas: [{name: q, fields: [remotemx]}]": (
        "1:29 remotemx is no field here\nThere are: transportid, jobid, tenantid, grouping, recipientdomain."
    ),
    "quotas: [{name: q, default: {messages: x}}]": (
        "1:40 'x' is no number of mails\nWrite 0, which lets none in, or more."
    ),
    "quotas: [{name: q, default: a}]": f"1:29 the limits of a quota{ENTRIES}",
    "quotas: [{name: q, default: {bytes: 5Q}}]": (
        "1:37 '5Q' is no number of bytes\nWrite it like 5000000, 500M or 5G; K is 1024."
    ),
}
FIELDS = {
    "fields: {}": f"1:9 fields are a list\n{LIST}",
    "fields: [[a]]": f"1:10 a field{ONE}",
    "fields: [a, a]": "1:13 the field a is there twice",
    "fields: [jobid]": "1:10 jobid is a field already\nLeave it out: no file has to declare it.",
    "fields: [sender]": "1:10 sender is a field already\nLeave it out: no file has to declare it.",
    "fields: [dsn-ret]": (
        "1:10 'dsn-ret' is no attribute that can be a field\n"
        "Letters, digits, '.', '-' and '_' make one, 50 at most; the first is a letter."
    ),
    "fields: [campaign]\nsuspends: [{campain: x}]": (
        "2:13 'campain' is no field\nDid you mean 'campaign'? There are: transportid, localip, remoteip, remotemx, "
        "recipientdomain, jobid, grouping, tenantid, campaign."
    ),
    "fields: [campaign]\nquotas: [{name: q, fields: [campaign]}]": (
        "2:29 campaign is no field here\nThere are: transportid, jobid, tenantid, grouping, recipientdomain."
    ),
}
CLASSES = {
    "classes: {}": f"1:10 classes are a list\n{LIST}",
    "classes: [{}]": "1:11 a rule of classes lacks its class\nIt needs: class.",
    "classes: [{class: a b}]": (
        "1:19 'a b' is no name of a class\nWrite letters, digits and '-', a letter first, at most 40."
    ),
    "classes: [{class: A, code: [421, 9]}]": (
        "1:34 '9' is no code of replies\nWrite it like 421, or 45x: x is any digit."
    ),
    "classes: [{class: A, enhanced: 4.7}]": (
        "1:32 '4.7' is no enhanced status code\nWrite it like 4.7.1, or x.7.28: x is any number."
    ),
    "classes: [{class: A, reply: ' '}]": "1:29 an empty text is in every reply\nWrite words, or leave out reply.",
    "classes: [{class: A, reply: '/a(?=b)/'}]": (
        "1:29 /a(?=b)/ has a look-ahead, which cannot be matched in linear time\n"
        "Write the expression without it. See docs/policy-file.md for the syntax that is taken."
    ),
    "classes: [{class: A, clas: B}]": (
        "1:22 a rule of classes has no 'clas'\nDid you mean 'class'? It may have: class, code, enhanced, reply."
    ),
}
_RULE = "name: a, class: Timeout, fields: [jobid], trigger: 5/60, then: suspend, for: 10m"
AUTOMATION = {
    "automation: [{name: a}]": (
        "1:14 an automatic rule lacks its class\nIt needs: name, class, fields, trigger, then, for."
    ),
    f"automation: [{{{_RULE}}}, {{{_RULE}}}]": "1:105 there are two automatic rules 'a'",
    f"automation: [{{{_RULE.replace('[jobid]', '[]')}}}]": (
        "1:48 an automatic rule without fields is about all mails\nName a field, like recipientdomain."
    ),
    f"automation: [{{{_RULE.replace('Timeout', '[]')}}}]": (
        "1:31 there is no class, so no reply counts\nName a class, like RateLimited."
    ),
    f"automation: [{{{_RULE.replace('5/60', '5')}}}]": (
        "1:66 '5' is no trigger\nWrite X replies within Y seconds as X/Y, like 5/60."
    ),
    f"automation: [{{{_RULE.replace('5/60', '1001/60')}}}]": (
        "1:66 '1001/60' is too large for a trigger\nAt most 1,000 replies within 86,400 seconds."
    ),
    f"automation: [{{{_RULE.replace('suspend', 'stop')}}}]": (
        "1:78 it is not said what is ordered\nWrite suspend, or limits, like {concurrency: 1}."
    ),
    f"automation: [{{{_RULE.replace('suspend', '{}')}}}]": (
        "1:78 it is not said which limits are ordered\nWrite them like {concurrency: 1}."
    ),
    f"automation: [{{{_RULE.replace('10m', '9s')}}}]": "1:92 '9s' is too short\nWrite 10s or more.",
    f"automation: [{{{_RULE}, if: {{jobid: '#g'}}}}]": (
        "1:109 an automatic rule knows no groups\nWrite the values, or '@name' of a list."
    ),
    f"fields: [campaign]\nautomation: [{{{_RULE.replace('[jobid]', '[campaign]')}}}]": (
        "2:49 orders do not know campaign, which is a field of this file alone\n"
        "Name another field: transportid, localip, remoteip, remotemx, recipientdomain, jobid, grouping, tenantid."
    ),
    f"policies: [{{}}]\nautomation: [{{{_RULE.replace('suspend', '{rate: 1}')}}}]": (
        "2:48 no policy counts by exactly jobid, so these limits would never hold\n"
        "Add one, which may have no limits of its own; or write then: suspend."
    ),
}
YAML = {
    "": "1:1 there are no policies in it\nWrite at least [].",
    "- [": "1:4 this is not YAML: did not find expected node content",
    "- \ud800": "1:1 half a character is in it",
    "a: \x00": (
        "1:1 this is not YAML: unacceptable character #x0000: control"
        ' characters are not allowed\n  in "<unicode string>", position 3'
    ),
    "- {<<: {a: b}}": ("1:4 merge keys (<<) are not read\nWrite the entries out: YAML 1.2 has no merge keys."),
    "- a\n---\n- b": "3:1 this is a second document, and a policy file is one",
    "- *a": "1:3 there is no anchor &a above this alias\nThere are: none.",
    "limits: []": (
        "1:1 a policy file has no 'limits'\n"
        "Did you mean 'lists'? It may have: version, rate, lists, fields, policies, "
        "suspends, incoming, tenants, quotas, classes, automation, transports."
    ),
    "a: b: c": "1:5 this is not YAML: mapping values are not allowed in this context",
    "- 'x": "1:5 this is not YAML: found unexpected end of stream",
    "%YAML 9.9\n---\n[]": "1:1 this is not YAML: found incompatible YAML document",
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *LISTS.items(),
        *SUSPENDS.items(),
        *TENANTS.items(),
        *INCOMING.items(),
        *POLICIES.items(),
        *RATE.items(),
        *QUOTAS.items(),
        *FIELDS.items(),
        *CLASSES.items(),
        *AUTOMATION.items(),
        *YAML.items(),
    ],
)
def test_each_mistake_has_its_place_its_problem_and_its_remedy(text: str, answer: str) -> None:
    with pytest.raises(BadPolicyFile) as refused:
        policies_of(text, "policies.yaml")

    (error,) = refused.value.each
    assert f"{error.place.line}:{error.place.column} {error.problem}\n{error.mend}".rstrip() == answer
