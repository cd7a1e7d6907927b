"""A declared truth with every kind of projection that a program writes: users, and what follows from them."""

from typing import Final

from mailmend.model.table import Table, columns

USERS: Final = Table("users", columns("id uuid", regular="email text, team text, name text, tags set<text>"))
BY_EMAIL: Final = Table(
    "by_email",
    columns("email text", regular="id uuid, team text, name text, tags set<text>"),
)
BY_TEAM: Final = Table("by_team", columns("team text", "id uuid", regular="email text"))
BY_TAG: Final = Table("by_tag", columns("tag text", "id uuid", "name text"))
LEADS: Final = Table("leads", columns("team text", "id uuid"))
TAGS: Final = Table("tags", columns("team text", regular="tags set<text>"))
COUNTS: Final = Table("counts", columns("team text", regular="total counter, named counter"))
PROJECTIONS: Final = (BY_EMAIL, BY_TEAM, BY_TAG, LEADS, TAGS, COUNTS)
LEADS_ALONE: Final = """
[truth.users.filter.leads]
when = { name = "lead" }
"""
"""A filter whose truth has no mirror."""

DECLARED: Final = """
[truth.users.mirror.by_email]

[truth.users.mirror.by_team]

[truth.users.explode.by_tag]
column = "tags"
element = "tag"

[truth.users.filter.leads]
when = { name = "lead" }

[truth.users.union.tags]
column = "tags"

[truth.users.count.counts]
counters = { total = {}, named = { name = { null = false } } }
"""
