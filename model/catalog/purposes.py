"""What every column and every compaction is for, in words for people who read the schema but not the code.

Names are lower case, as servers have them. The usual meaning of a column's name is given once, and a table's own entry
overrides it. Source: James's own code and upgrade notes, and `model.catalog.ledger`.
"""

from collections.abc import Mapping
from typing import Final

from mailmend.model.catalog.james_tables import LEVELED, SIZE_TIERED
from mailmend.model.catalog.mail import TWCS_MESSAGES
from mailmend.model.table import Column, Compaction, OtherColumn, Table
from mailmend.model.values import constant_text

_ANYWHERE: Final[Mapping[str, str]] = {
    "messageid": "the message",
    "mailboxid": "the mailbox",
    "uid": "the message's number in the mailbox, growing",
    "threadid": "the thread; null means the message's own id",
    "modseq": "version of the flags in the mailbox, growing",
    "flaganswered": "\\Answered",
    "flagdeleted": "\\Deleted",
    "flagdraft": "\\Draft",
    "flagflagged": "\\Flagged",
    "flagrecent": "\\Recent",
    "flagseen": "\\Seen",
    "flaguser": "whether there is any user flag; gone since JAMES-4225",
    "userflags": "flags with names that users chose",
    "internaldate": "when the message arrived",
    "save_date": "when the message came into this mailbox",
    "bodystartoctet": "bytes before the body",
    "fullcontentoctets": "bytes of the whole message",
    "bodyoctets": "bytes of the body; gone since September 2026",
    "headercontent": "blob id of the header",
    "bodycontent": "blob id of the body",
    "attachments": "the attachments, in order",
    "mailboxbase": "namespace and user of the path",
    "namespace": "namespace of the path, #private for people's own",
    "user": "whose mailbox",
    "username": "whose",
    "mailboxname": "name of the mailbox, with its parents",
    "uidvalidity": "as long as it stays, uids mean the same messages",
    "rights": "what the holder may do",
    "blobid": "blob id of the content",
    "type": "media type",
    "size": "bytes",
    "message_id": "the message that it came with",
    "mimemessageid": "hash of a Message-ID, In-Reply-To or References",
    "mimemessageids": "hashes of all of them",
    "basesubject": "hash of the subject without Re: and Fwd:",
    "thread_id": "the thread",
    "keyspacename": "the mail keyspace that it is about",
    "startedat": "when it began",
    "endedat": "when it ended; null while it goes on",
    "owner": "who: user, machine and process",
    "state": "how far it came",
    "day": "the UTC day of the time in its id",
    "bucket": "spreads a day, or a run, over partitions",
    "projection": "the table that is wrong, or late",
    "rowkey": "key of the row there, as JSON",
    "error": "why it failed",
    "checksum": "SHA-256 of the text that was run",
    "claim": "token of the lease that it was done under",
    "toolversion": "version of mailmend",
    "generation": "what the keyspace was recognised as",
    "queuename": "the queue",
    "timerangestart": "start of the slice of time that it was enqueued in",
    "enqueueid": "the mail's own number in the queue",
    "enqueuedtime": "when it was enqueued",
    "headerblobid": "blob id of the header",
    "bodyblobid": "blob id of the body",
    "attributes": "values that mailets keep with it, as JSON",
    "errormessage": "what went wrong the last time",
    "sender": "envelope sender; null for a mail without one",
    "recipients": "envelope recipients",
    "remotehost": "name of the machine that it came from",
    "remoteaddr": "address of the machine that it came from",
    "lastupdated": "when it was changed the last time",
    "perrecipientspecificheaders": "headers for single recipients: recipient, name, value",
}

_MIME_COLUMNS: Final = """
    textuallinecount contentdescription contentdispositionparameters contentdispositiontype
    contentid contentlanguage contentlocation contentmd5 contenttransferencoding
    contenttypeparameters mediatype subtype
"""

_IN_TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "messagecounter": {"nextuid": "the last uid that was given out"},
    "modseq": {"nextmodseq": "the last modseq that was given out"},
    "mailboxcounters": {"count": "messages", "unseen": "messages without \\Seen"},
    "mailboxrecents": {"recent_mesage_uid": "uid of a message with \\Recent (James's spelling)"},
    "applicableflag": {"userflags": "every user flag that was ever set in the mailbox"},
    "messagev3": dict.fromkeys(_MIME_COLUMNS.split(), "what its name says of the MIME part; gone since JAMES-4198"),
    "mailbox": {"id": "the mailbox", "name": "name of the mailbox, with its parents"},
    "attachmentv2": {"idasuuid": "the attachment", "id": "the attachment's id as text"},
    "aclv2": {"id": "the mailbox", "key": "holder of the rights"},
    "annotation": {"key": "name of the annotation", "value": "its value"},
    "subscription": {"mailbox": "name of the mailbox"},
    "message_fast_view_projection": {"preview": "first words of the text", "hasattachment": "whether there is any"},
    "email_query_view_received_at": {"receivedat": "when the message arrived"},
    "eventstore": {
        "aggregateid": "what the events are about",
        "eventid": "number of the event",
        "snapshot": "number of the event from which to read",
        "event": "the event as JSON",
    },
    "schemaversion": {"key": "when the version was reached", "value": "the version"},
    "blobs": {"id": "the blob", "position": "number of chunks", "metadata": "what was stored with it"},
    "enqueuedmailsv4": {
        "bucketid": "spreads a slice over partitions, by the mail's name",
        "name": "name of the mail",
        "state": "the processor that it goes to next",
    },
    "browsestart": {"browsestart": "start of the first slice that may hold a mail without a mark"},
    "contentstart": {"contentstart": "start of the first slice that may hold rows"},
    "duemails": {
        "dueslice": "start of the slice of time that it is due in",
        "bucketid": "spreads a slice over partitions, by the mail's name",
        "dueat": "before it the mail is not delivered",
        "attempts": "how often it was tried",
        "name": "name of the mail",
        "state": "the processor that it goes to next",
    },
    "slicetallies": {
        "timerangestart": "start of the slice",
        "writer": "the process that counts",
        "enqueued": "mails that it has put into the slice",
        "marked": "mails of the slice that it has marked",
        "settled": "whether it counts nothing at the moment",
        "isforeign": "whether it saw a mail there that another program enqueued",
    },
    "queuestate": {
        "furtheststart": "the furthest browse start that was seen",
        "duestart": "start of the first slice that may hold mails that are not due",
        "sweptat": "when the last sweep ended",
    },
    "blobparts": {"id": "the blob", "chunknumber": "place of the chunk", "data": "the bytes"},
    "repair_run": {
        "run": "the run; its time is when it began",
        "command": "what was typed",
        "asof": "the moment as of which it writes, in microseconds",
        "options": "what it was asked for, as JSON",
        "summary": "what it found and did, as JSON",
        "undoes": "the run that it takes back",
    },
    "repair_finding": {
        "run": "the run that found it",
        "before": "the rows as they were before the fix, as JSON",
        "result": "what became of it",
    },
    "repair_lag": {
        "noticed": "when it was noticed",
        "suspect": "what the next run looks at, as JSON",
        "cause": "the error that outlived the retries",
    },
    "repair_lease": {
        "name": "what may be worked on by one at a time",
        "claim": "token of this claim; every heartbeat writes it anew",
        "purpose": "what for",
        "acquiredat": "since when",
        "expiresat": "when it ends without another heartbeat",
    },
    "job_run": {
        "job": "its name in the settings file",
        "run": "this run; its time is when it began",
        "command": "what ran",
        "endsby": "when it is ended at the latest",
        "exitcode": "exit code of the command",
        "reason": "why it was ended before its end",
    },
    "job_turn": {
        "job": "its name in the settings file",
        "dueat": "when its schedule asks for the run",
        "claim": "whose row it is",
        "begunat": "when it was begun",
    },
    "admin_task": {
        "task": "this task; its time is when it was asked for",
        "type": "James's word for its kind",
        "options": "other parts of the request, as JSON",
        "status": "waiting, inProgress, completed, failed or canceled",
        "submittedat": "when it was asked for",
        "submittedfrom": "the host that was asked",
        "submittedby": "the name of the token",
        "executedon": "the host that runs it",
        "cancelledfrom": "the host that was asked to cancel it",
        "cancelledby": "the name of the token",
        "information": "what it has done, as JSON with James's names",
    },
    "job_pause": {
        "job": "its name in the settings file",
        "pausedat": "since when it does not run",
        "reason": "why not",
    },
    "run_limit": {
        "run": "the run of a job, or of a repair by hand",
        "at": "when it was set",
        "rowspersecond": "rows read and written each second at most, over all workers; null: as it was started",
        "maxfixes": "as many may be mended; null: as it was started",
    },
    "delivery_suspension": {
        "suspension": "its id; the time in it is when it was made",
        "fields": "values of the mails that are held back, by field, as JSON; none: every mail",
        "reason": "why they are",
        "endsat": "when it ends; null: when it is removed",
    },
    "delivery_condition": {
        "condition": "its id",
        "fields": "the fields of the policies that it is of, as JSON",
        "matches": "the values for which it holds, by field, as JSON; none: always",
        "limits": "as JSON: concurrency, rate (count and nanoseconds), connect_interval (nanoseconds), stop",
        "reason": "why they are set",
        "madeat": "when it was made first: the earlier one is tested first",
        "endsat": "when it ends; null: when it is removed",
    },
    "delivery_order_history": {
        "kind": "suspension or condition; values: what was set on queued mails",
        "at": "its time is when it was done",
        "event": "added, renewed or removed; of values: set or undone",
        "changedby": "who did it: user, machine and process, or a hook's name",
        "orderid": "the id of the suspension, condition or change of values",
        "fields": "as in the table of its kind, like all that follows; or the values",
        "matches": "the values of a condition; of values: the options that chose recipients",
        "limits": "the fields of a condition; of values: how many recipients and mails",
        "owner": "who had made it",
        "reason": "why",
        "madeat": "when a condition was made first",
        "endsat": "when it ends; null: when it is removed",
    },
    "delivery_intent": {
        "mail": "the first id of the mail in its queue; nil: some were ordered a while ago, so servers look",
        "number": "which recipient of the mail",
        "action": "hold, defer, bounce or delete",
        "reason": "why",
        "madeat": "when the command was given",
        "untilat": "until when it is deferred",
    },
    "delivery_policies": {
        "server": "the process that serves",
        "algorithm": "how it counts rates",
        "policies": "fields and groups of each policy, as JSON",
        "saidat": "when it said so last",
    },
    "delivery_attempt": {
        "firstmail": "the mail's first number in the queue, which it keeps over all attempts",
        "number": "the recipient's place in the mail",
        "attempt": "its id; the time in it is when it began",
        "mail": "the mail's own number in the queue at this attempt",
        "fields": "what policies counted it by, as JSON: transport, job, tenant, grouping, domain, server, our address",
        "sources": "our addresses that it could have come from, as JSON",
        "readyat": "since when it could be picked",
        "outcome": "delivered, refused, failed or returned; null: none is known, and the server may have the mail",
        "stage": "how far it got",
        "status": "enhanced status code",
        "host": "the server that was tried",
        "bytes": "length of the mail",
        "urgent": "whether it had priority",
        "server": "the process that tried: machine and number",
    },
    "delivery_view": {
        "epoch": "its number: each is one more than the last",
        "members": "names of the servers that share the limits, in the order of their places",
        "since": "of each of them, the epoch since which it is there without a gap",
        "before": "names of the servers that did so in the epoch before",
    },
    "delivery_server": {
        "server": "its name",
        "process": "boot of its host, inode of its space of process ids, and its process id; empty: unknown",
        "adopted": "the last epoch that it goes by; -1: none yet",
        "state": "serving, or ended",
        "since": "when it was started",
        "seenat": "its last heartbeat",
    },
    "delivery_life": {
        "server": "its name",
        "claim": "of the membership of the process that wrote it",
        "span": "under which its counters' rows are: as long as each process could go on where the last one was",
        "epoch": "of the last view that it went by",
        "changes": "of its share: from when on (microseconds, null: always), and its places, as JSON",
        "number": "of the last of these changes",
        "stamp": "below all stamps of rows that this process writes",
        "seenmicros": "when it was written, by the server's clock, which counts as never set back",
    },
    "delivery_rate": {
        "server": "its name",
        "span": "which row of the server's life its counters belong to",
        "policy": "what the policy counts by: a checksum of its fields and groups",
        "counter": "the values of these fields, as JSON",
        "state": "what began, when, under which rate, and how many more may begin before the next row, as JSON",
        "seenmicros": "when it was written, by the server's clock",
    },
    "schema_migration": {
        "number": "number of the migration",
        "name": "its name",
        "phase": "before or after the software that needs it is rolled out",
        "chain": "checksum over this migration and all before it",
        "statements": "how many statements it has",
        "donestatements": "how many of them are done",
        "note": "why it is recorded, where it was not run",
    },
    "schema_statement": {
        "number": "number of the migration",
        "position": "place of the statement in it",
        "attempt": "the attempt that ran it last",
        "cql": "its text",
    },
    "schema_unlock": {
        "at": "when",
        "holder": "whose lease was ended",
        "unlockedby": "who ended it",
        "reason": "why",
    },
    "schema_baseline": {
        "fingerprint": "digest of the whole keyspace at that moment",
        "objects": "digest of each table, type, index and view",
        "migrations": "files that count as done",
        "adoptedat": "when it was taken over",
    },
}

_TIME_WINDOWS: Final = "TimeWindowCompactionStrategy"
_MESSAGES_WHY: Final = (
    "wide windows, since old messages still change their flags: what is written late is read from several SSTables, "
    "and `mailmend schema advise` measures what that costs"
)
_BY_STRATEGY: Final[Mapping[str, str]] = {
    _TIME_WINDOWS: "what is written together expires together, so that whole SSTables drop",
    SIZE_TIERED.strategy: "few rows, each partition read whole: the cheapest to write",
    LEVELED.strategy: "rows are read much more often than they change: few SSTables for each read",
    "UnifiedCompactionStrategy": "few SSTables for each read, under late updates too (Cassandra 5.0 and later)",
}
_BY_TABLE: Final[Mapping[str, str]] = {
    "duemails": "each mail leaves at a time of its own, so nothing expires together; here tombstones soon meet "
    "what they delete",
}
_DEFAULT_WHY: Final = "nothing is asked of it, so the server's own default serves"


def purpose_of(table: str, column: str) -> str:
    """What a column is for; table and column in any case; "" where unknown."""
    name = column.lower()
    return _IN_TABLE.get(table.lower(), {}).get(name) or _ANYWHERE.get(name, "")


def null_text(column: Column, table: Table) -> str:
    """What a null of a compared column is compared as."""
    if column.is_set:
        return "null is the empty set"
    match column.null_is:
        case None:
            return "as it is"
        case OtherColumn(name):
            return f"null is {table.column(name).spelling}"
        case constant:
            return f"null is {constant_text(constant)}"


def why_compacted(table: Table) -> str:
    if table.compaction is None:
        return _DEFAULT_WHY
    if _same(table.compaction, TWCS_MESSAGES):
        return _MESSAGES_WHY
    return _BY_TABLE.get(table.name) or _BY_STRATEGY.get(table.compaction.strategy, "not known to mailmend")


def _same(one: Compaction, other: Compaction) -> bool:
    """Whether two compactions are equal, ignoring options that the server has added."""
    return one.strategy == other.strategy and other.options.items() <= one.options.items()
