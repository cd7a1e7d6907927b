"""The messages and mailboxes of James as a file of projections: `--projections mail`.

It says what `model.catalog.mail` says in Python: `MESSAGES` and `PATHS` are this text, bound to the
catalog's own tables. Source: docs/adr/0079-the-mail-families-in-the-form-of-a-file.md.
"""

from typing import Final

MAIL: Final = "mail"
"""The name of this declaration where a file is expected."""

MAIL_TEXT: Final = """
[truth.imapUidTable.null_is]
threadId = { column = "messageId" }
modSeq = 0
flagAnswered = false
flagDeleted = false
flagDraft = false
flagFlagged = false
flagRecent = false
flagSeen = false

[truth.imapUidTable.mirror.messageIdTable]
required = ["modSeq", "internalDate", "bodyStartOctet", "fullContentOctets", "headerContent"]
filled_from_content = ["internalDate", "bodyStartOctet", "fullContentOctets", "headerContent"]

[truth.imapUidTable.filter.firstUnseen]
when = { flagSeen = false }

[truth.imapUidTable.filter.messageDeleted]
when = { flagDeleted = true }

[truth.imapUidTable.filter.mailboxRecents]
renamed = { recent_mesage_uid = "uid" }
when = { flagRecent = true }

[truth.imapUidTable.union.applicableFlag]
column = "userFlags"

[truth.imapUidTable.count.mailboxCounters]
counters = { count = {}, unseen = { flagSeen = false } }
generators = ["messageCounter", "modseq"]
numbered_by = { uid = "messageCounter", modSeq = "modseq" }
used_with = ["mailboxPathV3", "mailbox"]

[truth.imapUidTable.content.messageV3]

[truth.mailboxPathV3.mirror.mailbox]
renamed = { id = "mailboxId", name = "mailboxName" }
required = ["uidvalidity"]
fields = { mailboxbase = { namespace = "namespace", user = "user" } }
only_reported = { WITHDRAW = "no path is registered for this mailbox" }
"""
