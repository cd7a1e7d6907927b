"""A mail's date and flags, from its header, from Gmail's labels, and from what its source keeps.

Gmail's Takeout writes its own labels in the language of the account: `Inbox,Unread` is
`Posteingang,Ungelesen` in a German one. A message is read in the language that most of its labels
belong to, so that a user's own label that means something in another language stays a keyword.

A header is read line by line: a line that is no field (a bad line, a second `>From ` line) is
passed over, and only an empty line ends the header. What cannot be understood gives way to the next
best source; nothing fails.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final
from unicodedata import normalize

from mailmend.repair.store.mbox import BOM, FIELD, LINE_END, date_text
from mailmend.repair.store.message import Flags, SystemFlag


class GmailLabel(Enum):
    """A label of Gmail's own; the value is its English name."""

    INBOX = "Inbox"
    UNREAD = "Unread"
    OPENED = "Opened"
    ARCHIVED = "Archived"
    SENT = "Sent"
    DRAFT = "Drafts"
    TRASH = "Trash"
    SPAM = "Spam"
    STARRED = "Starred"
    IMPORTANT = "Important"


_IN_LANGUAGES: Final[Mapping[str, Mapping[GmailLabel, str]]] = {
    "en": {
        GmailLabel.INBOX: "Inbox",
        GmailLabel.UNREAD: "Unread",
        GmailLabel.OPENED: "Opened",
        GmailLabel.ARCHIVED: "Archived",
        GmailLabel.SENT: "Sent; Sent Mail",
        GmailLabel.DRAFT: "Drafts; Draft",
        GmailLabel.TRASH: "Trash; Bin",
        GmailLabel.SPAM: "Spam; Junk",
        GmailLabel.STARRED: "Starred",
        GmailLabel.IMPORTANT: "Important",
    },
    "de": {
        GmailLabel.INBOX: "Posteingang",
        GmailLabel.UNREAD: "Ungelesen",
        GmailLabel.OPENED: "Geöffnet",
        GmailLabel.ARCHIVED: "Archiviert",
        GmailLabel.SENT: "Gesendet; Gesendete Nachrichten",
        GmailLabel.DRAFT: "Entwürfe; Entwurf",
        GmailLabel.TRASH: "Papierkorb; Gelöscht",
        GmailLabel.SPAM: "Spam",
        GmailLabel.STARRED: "Markiert",
        GmailLabel.IMPORTANT: "Wichtig",
    },
    "fr": {
        GmailLabel.INBOX: "Boîte de réception",
        GmailLabel.UNREAD: "Non lus; Non lu",
        GmailLabel.OPENED: "Ouvert; Ouverts",
        GmailLabel.ARCHIVED: "Archivés; Archivé; Messages archivés",
        GmailLabel.SENT: "Envoyé; Envoyés; Messages envoyés",
        GmailLabel.DRAFT: "Brouillons; Brouillon",
        GmailLabel.TRASH: "Corbeille",
        GmailLabel.SPAM: "Spam; Pourriel; Indésirables",
        GmailLabel.STARRED: "Favoris; Suivis; Suivi",
        GmailLabel.IMPORTANT: "Important; Importants",
    },
    "es": {
        GmailLabel.INBOX: "Recibidos; Bandeja de entrada",
        GmailLabel.UNREAD: "No leídos; No leído; Sin leer",
        GmailLabel.OPENED: "Abierto; Abiertos",
        GmailLabel.ARCHIVED: "Archivados; Archivado",
        GmailLabel.SENT: "Enviados; Enviado",
        GmailLabel.DRAFT: "Borradores; Borrador",
        GmailLabel.TRASH: "Papelera",
        GmailLabel.SPAM: "Spam; Correo no deseado",
        GmailLabel.STARRED: "Destacados; Destacado; Con estrella",
        GmailLabel.IMPORTANT: "Importante; Importantes",
    },
    "it": {
        GmailLabel.INBOX: "Posta in arrivo",
        GmailLabel.UNREAD: "Da leggere; Non letti; Non letto; Non lette",
        GmailLabel.OPENED: "Aperti; Aperto; Aperte",
        GmailLabel.ARCHIVED: "Archiviati; Archiviato",
        GmailLabel.SENT: "Inviati; Inviato; Posta inviata",
        GmailLabel.DRAFT: "Bozze; Bozza",
        GmailLabel.TRASH: "Cestino",
        GmailLabel.SPAM: "Spam; Posta indesiderata",
        GmailLabel.STARRED: "Speciali; Speciale",
        GmailLabel.IMPORTANT: "Importanti; Importante",
    },
    "nl": {
        GmailLabel.INBOX: "Inbox; Postvak IN",
        GmailLabel.UNREAD: "Ongelezen",
        GmailLabel.OPENED: "Geopend",
        GmailLabel.ARCHIVED: "Gearchiveerd",
        GmailLabel.SENT: "Verzonden; Verzonden berichten",
        GmailLabel.DRAFT: "Concepten; Concept",
        GmailLabel.TRASH: "Prullenbak",
        GmailLabel.SPAM: "Spam",
        GmailLabel.STARRED: "Met ster",
        GmailLabel.IMPORTANT: "Belangrijk",
    },
    "pl": {
        GmailLabel.INBOX: "Odebrane; Skrzynka odbiorcza",
        GmailLabel.UNREAD: "Nieprzeczytane; Nieprzeczytana",
        GmailLabel.OPENED: "Otwarte; Otwarta",
        GmailLabel.ARCHIVED: "Zarchiwizowane; Zarchiwizowana",
        GmailLabel.SENT: "Wysłane; Wysłana",
        GmailLabel.DRAFT: "Wersje robocze; Wersja robocza; Robocze",
        GmailLabel.TRASH: "Kosz",
        GmailLabel.SPAM: "Spam",
        GmailLabel.STARRED: "Oznaczone gwiazdką; Oznaczona gwiazdką; Z gwiazdką",
        GmailLabel.IMPORTANT: "Ważne; Ważna",
    },
    "pt": {
        GmailLabel.INBOX: "Caixa de entrada; Recebidos",
        GmailLabel.UNREAD: "Não lidas; Não lida; Não lidos; Não lido",
        GmailLabel.OPENED: "Aberto; Abertos; Aberta; Abertas",
        GmailLabel.ARCHIVED: "Arquivado; Arquivados; Arquivada; Arquivadas",
        GmailLabel.SENT: "Enviados; Enviado; Enviadas; E-mails enviados; Correio enviado",
        GmailLabel.DRAFT: "Rascunhos; Rascunho",
        GmailLabel.TRASH: "Lixeira; Lixo; Reciclagem",
        GmailLabel.SPAM: "Spam",
        GmailLabel.STARRED: "Com estrela; Marcado com estrela; Marcados com estrela",
        GmailLabel.IMPORTANT: "Importante; Importantes",
    },
    "ja": {
        GmailLabel.INBOX: "受信トレイ",
        GmailLabel.UNREAD: "未読",
        GmailLabel.OPENED: "開封済み",
        GmailLabel.ARCHIVED: "アーカイブ済み; アーカイブ",
        GmailLabel.SENT: "送信済み; 送信済みメール",
        GmailLabel.DRAFT: "下書き",
        GmailLabel.TRASH: "ゴミ箱",
        GmailLabel.SPAM: "迷惑メール",
        GmailLabel.STARRED: "スター付き",
        GmailLabel.IMPORTANT: "重要",
    },
    "cs": {
        GmailLabel.INBOX: "Doručená pošta; Doručené",
        GmailLabel.UNREAD: "Nepřečtené",
        GmailLabel.OPENED: "Otevřené; Otevřeno",
        GmailLabel.ARCHIVED: "Archivováno; Archivované",
        GmailLabel.SENT: "Odeslané; Odeslaná pošta",
        GmailLabel.DRAFT: "Koncepty",
        GmailLabel.TRASH: "Koš",
        GmailLabel.SPAM: "Spam",
        GmailLabel.STARRED: "S hvězdičkou",
        GmailLabel.IMPORTANT: "Důležité",
    },
    "sv": {
        GmailLabel.INBOX: "Inkorgen; Inkorg",
        GmailLabel.UNREAD: "Olästa; Oläst",
        GmailLabel.OPENED: "Öppnade; Öppnat",
        GmailLabel.ARCHIVED: "Arkiverade; Arkiverat",
        GmailLabel.SENT: "Skickat; Skickade",
        GmailLabel.DRAFT: "Utkast",
        GmailLabel.TRASH: "Papperskorgen",
        GmailLabel.SPAM: "Skräppost",
        GmailLabel.STARRED: "Stjärnmärkta; Stjärnmärkt",
        GmailLabel.IMPORTANT: "Viktigt; Viktiga",
    },
    "ru": {
        GmailLabel.INBOX: "Входящие",
        GmailLabel.UNREAD: "Непрочитанные",
        GmailLabel.OPENED: "Открытые; Открыто; Прочитанные",
        GmailLabel.ARCHIVED: "Архивированные; Архив",
        GmailLabel.SENT: "Отправленные",
        GmailLabel.DRAFT: "Черновики",
        GmailLabel.TRASH: "Корзина",
        GmailLabel.SPAM: "Спам",
        GmailLabel.STARRED: "Помеченные",
        GmailLabel.IMPORTANT: "Важное; Важные",
    },
    "zh": {
        GmailLabel.INBOX: "收件箱; 收件匣",
        GmailLabel.UNREAD: "未读; 未讀; 未读邮件; 未讀郵件",
        GmailLabel.OPENED: "已打开; 已開啟",
        GmailLabel.ARCHIVED: "已归档; 已封存",
        GmailLabel.SENT: "已发送; 已发邮件; 寄件備份",
        GmailLabel.DRAFT: "草稿",
        GmailLabel.TRASH: "已删除邮件; 垃圾桶",
        GmailLabel.SPAM: "垃圾邮件; 垃圾郵件",
        GmailLabel.STARRED: "已加星标; 已加星號",
        GmailLabel.IMPORTANT: "重要; 重要邮件; 重要郵件",
    },
}
"""What Gmail calls its labels, by language; forms that it has or had are separated by semicolons."""

_SYSTEM: Final = {
    GmailLabel.STARRED: SystemFlag.FLAGGED,
    GmailLabel.DRAFT: SystemFlag.DRAFT,
    GmailLabel.TRASH: SystemFlag.DELETED,
}
_KEYWORDS: Final = {
    GmailLabel.SPAM: "$Junk",
    GmailLabel.IMPORTANT: "$Important",
    GmailLabel.INBOX: "Inbox",
    GmailLabel.SENT: "Sent",
    GmailLabel.ARCHIVED: "Archived",
}
_LABEL: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,]+)')
_NO_ATOM: Final = re.compile(r"[\s(){%*\"\\\],\x00-\x1f\x7f]+")
_KEYWORD_MAX: Final = 200


def gmail_flags(text: str) -> Flags:
    """The flags of a message with these labels, given as the value of its `X-Gmail-Labels` field."""
    labels = gmail_labels(text)
    own = own_labels(labels)
    system = set()
    keywords = set()
    for label in labels:
        gmails = own.get(label)
        if gmails is None:
            keywords.add(_NO_ATOM.sub("_", label).strip("_")[:_KEYWORD_MAX])
        elif gmails in _SYSTEM:
            system.add(_SYSTEM[gmails])
        elif gmails in _KEYWORDS:
            keywords.add(_KEYWORDS[gmails])
    keywords.discard("")
    if GmailLabel.UNREAD not in own.values():
        system.add(SystemFlag.SEEN)
    return Flags(frozenset(system), frozenset(keywords))


def gmail_labels(text: str) -> list[str]:
    """The labels of an `X-Gmail-Labels` field: separated by commas, quoted where they contain one."""
    try:
        decoded = str(make_header(decode_header(text)))
    except (HeaderParseError, UnicodeError, LookupError, ValueError):
        decoded = text
    found = ((quoted or bare).strip() for quoted, bare in _LABEL.findall(decoded))
    return list(filter(None, found))


def own_labels(labels: Sequence[str]) -> dict[str, GmailLabel]:
    """Gmail's own labels among these, in the language that most of them belong to; in several if these are equal."""
    found = [_among(labels, names) for names in _BY_NAME.values()]
    most = max(len(own) for own in found)
    own: dict[str, GmailLabel] = {}
    for candidate in found:
        if len(candidate) == most:
            own |= candidate
    return own


def _among(labels: Iterable[str], names: Mapping[str, GmailLabel]) -> dict[str, GmailLabel]:
    return {label: own for label in labels if (own := names.get(_comparable(label)))}


def _comparable(label: str) -> str:
    """One form for all spellings of a label: composed letters, one blank between words, no capitals."""
    return " ".join(normalize("NFC", label).split()).casefold()


def _by_name(labels: Mapping[GmailLabel, str]) -> dict[str, GmailLabel]:
    by_name = {}
    for label, names in labels.items():
        for name in names.split(";"):
            by_name[_comparable(name)] = label
    return by_name


_BY_NAME: Final = {language: _by_name(labels) for language, labels in _IN_LANGUAGES.items()}


_HEADER_OCTETS_MAX = 2**20
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD_MAX = timedelta(days=1)
_KEYWORD = re.compile(r"[^\s,(){%*\"\\\]\x00-\x1f\x7f]{1,200}")
_ASCTIME = re.compile(
    r"([A-Z][a-z]{2}) (\d{1,2}) (?:(\d{4}) )?(\d\d?:\d\d(?::\d\d)?)(?: ([A-Z]{1,5}(?: DST)?|[+-]\d{4}))?(?: (\d{4}))?"
    r"(?: ([+-]\d{4}))?"
)
_STATUS = {"R": SystemFlag.SEEN}
_X_STATUS = {
    "A": SystemFlag.ANSWERED,
    "D": SystemFlag.DELETED,
    "F": SystemFlag.FLAGGED,
    "T": SystemFlag.DRAFT,
}
_MAILDIR = {
    "D": SystemFlag.DRAFT,
    "F": SystemFlag.FLAGGED,
    "R": SystemFlag.ANSWERED,
    "S": SystemFlag.SEEN,
    "T": SystemFlag.DELETED,
}
_PASSED = "$Forwarded"

_MOZILLA_FROM = b"From - "
_OLDER_FROM = ">from"
_MOZILLA_FLAGS = {0x1: SystemFlag.SEEN, 0x2: SystemFlag.ANSWERED, 0x4: SystemFlag.FLAGGED}
_MOZILLA_EXPUNGED = 0x8
_MOZILLA_FORWARDED = 0x1000
_MOZILLA_NEW = 0x10000
_MOZILLA_DELETED = 0x200000
_MOZILLA_LABEL_SHIFT = 25
_MOZILLA_STATUS = ("x-mozilla-status", "x-mozilla-status2", "x-mozilla-keys")
_ABOVE_MOZILLA = frozenset(
    {*_MOZILLA_STATUS, "x-account-key", "x-uidl", "x-imap", "status", "x-status", "x-keywords", "content-length"}
)
_MOZILLA_KEYS = {"junk": "$Junk", "nonjunk": "$NotJunk"}

HeaderFields = Mapping[str, Sequence[str]]
"""The values of a header by the names of its fields, lower-cased, in the header's order."""


def fields_of(header: bytes) -> HeaderFields:
    """The fields of a header, unfolded; lines that are no field are passed over, but for `>From ` lines."""
    fields: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in LINE_END.split(header[:_HEADER_OCTETS_MAX].removeprefix(BOM)):
        found = FIELD.match(line)
        if found:
            values = fields.setdefault(found[1].decode().lower(), [])
            values.append(_decoded(line[found.end() :]))
        elif line.startswith(b">From "):
            fields.setdefault(_OLDER_FROM, []).append(_decoded(line))
        elif values and line[:1] in (b" ", b"\t"):
            values[-1] = f"{values[-1]} {_decoded(line)}".strip()
    return fields


def internal_date_of(fields: HeaderFields, envelope: bytes, touched_at: float | None, now: datetime) -> datetime:
    """When the message arrived: by its last Received line, the mbox's line, its Date, its file, or now.

    Dates before 1970 or more than a day ahead are ignored. A placeholder (the year 1970, the fixed date of git's
    patches) is taken only where no source has another date. A line that a mail program wrote when it copied the message
    is believed after the Date: it tells when the copy was made.
    """
    received = _after_semicolon(_text(fields, "received"))
    sent = _text(fields, "date")
    line = envelope_date(envelope)
    sources = [received, line, sent]
    if _is_of_a_copy(fields, envelope):
        sources = [received, sent, line]
    dates = (*map(_parsed, sources), _from_seconds(touched_at))
    possible = [date for date in dates if date and _EARLIEST <= date <= now + _AHEAD_MAX]
    for date in possible:
        if not _is_placeholder(date):
            return date
    return next(iter(possible), now)


def flags_in_header(fields: HeaderFields, envelope: bytes) -> Flags:
    r"""Flags from the fields that mail programs write into an mbox. Without a sign of a first look: \Recent."""
    status = _text(fields, "status")
    system = _letters(_STATUS, status) | _letters(_X_STATUS, _text(fields, "x-status"))
    user = frozenset(_KEYWORD.findall(_text(fields, "x-keywords")))
    programs = []
    if mozillas := mozilla_flags(fields, envelope):
        programs.append(mozillas)
    if "x-gmail-labels" in fields:
        programs.append(gmail_flags(_text(fields, "x-gmail-labels")))
    if not programs and "O" not in status:
        system |= {SystemFlag.RECENT}
    for flags in programs:
        system |= flags.system
        user |= flags.user
    return Flags(system, user)


def mozilla_flags(fields: HeaderFields, envelope: bytes) -> Flags | None:
    """Flags from the status that Thunderbird keeps in a message; None without one."""
    if not _is_mozilla(fields, envelope):
        return None
    first, second = _mozilla(fields)
    system = {flag for bit, flag in _MOZILLA_FLAGS.items() if first & bit}
    if second & _MOZILLA_NEW:
        system.add(SystemFlag.RECENT)
    return Flags(frozenset(system), _mozilla_keywords(fields, first, second))


def flags_in_name(info: str, *, recent: bool, keywords: Sequence[str] = ()) -> Flags:
    """Flags from the name of a Maildir's file.

    Args:
        info: the letters; small ones are keywords of dovecot.
        recent: the file is in `new`.
        keywords: the keywords of the folder's `dovecot-keywords`, in the order of their numbers.
    """
    system = _letters(_MAILDIR, info)
    if recent:
        system |= {SystemFlag.RECENT}
    numbers = [ord(letter) - ord("a") for letter in info if "a" <= letter <= "z"]
    user = {keywords[number] for number in numbers if number < len(keywords)} - {""}
    if "P" in info:
        user.add(_PASSED)
    return Flags(system, frozenset(user))


def is_deleted(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether Thunderbird has deleted the message: it stays in the file until the folder is compacted."""
    if not _is_mozilla(fields, envelope):
        return False
    first, second = _mozilla(fields)
    return bool(first & _MOZILLA_EXPUNGED or second & _MOZILLA_DELETED)


def dovecot_keywords(text: str) -> list[str]:
    """The keywords of a `dovecot-keywords` file by their numbers (`0 $Forwarded`); "" for a number without one."""
    names = [""] * 26
    for line in text.splitlines():
        number, _, name = line.partition(" ")
        if number.isascii() and number.isdigit() and int(number) < len(names) and _KEYWORD.fullmatch(name):
            names[int(number)] = name
    return names


def envelope_date(line: bytes) -> str:
    """The date of an mbox's line in a form that can be parsed; empty without one."""
    text = date_text(line)
    found = _ASCTIME.search(text)
    if not found:
        return text
    month, day, early_year, time, zone, late_year, late_zone = found.groups()
    year = early_year or late_year
    if not year:
        return text
    return f"{day} {month} {year} {time} {late_zone or zone or '+0000'}"


def _is_of_a_copy(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether a mail program wrote the mbox's line: Thunderbird's `From - `, or one above an older such line."""
    return envelope.removeprefix(BOM).startswith(_MOZILLA_FROM) or _OLDER_FROM in fields


def _is_placeholder(date: datetime) -> bool:
    """Whether programs write this date where they know none: 1970, git's 2001-09-17, the first day of DOS."""
    if date.year == _EARLIEST.year:
        return True
    return date in (datetime(2001, 9, 17, tzinfo=UTC), datetime(1980, 1, 1, tzinfo=UTC))


def _is_mozilla(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether Thunderbird wrote the status: senders could write such fields too, but not above all others."""
    if "x-mozilla-status" not in fields and "x-mozilla-status2" not in fields:
        return False
    if envelope.removeprefix(BOM).startswith(_MOZILLA_FROM):
        return True
    for name in fields:
        if name in _MOZILLA_STATUS:
            break
        if name not in _ABOVE_MOZILLA and name != _OLDER_FROM:
            return False
    return True


def _mozilla(fields: HeaderFields) -> tuple[int, int]:
    return _hexadecimal(_text(fields, "x-mozilla-status")), _hexadecimal(_text(fields, "x-mozilla-status2"))


def _mozilla_keywords(fields: HeaderFields, first: int, second: int) -> frozenset[str]:
    words = _KEYWORD.findall(_text(fields, "x-mozilla-keys"))
    keywords = {_MOZILLA_KEYS.get(word.lower(), word) for word in words}
    if label := second >> _MOZILLA_LABEL_SHIFT & 0x7:
        keywords.add(f"$Label{label}")
    if first & _MOZILLA_FORWARDED:
        keywords.add(_PASSED)
    return frozenset(keywords)


def _hexadecimal(text: str) -> int:
    try:
        return int(text[:16], 16)
    except ValueError:
        return 0


def _letters(meanings: dict[str, SystemFlag], letters: str) -> frozenset[SystemFlag]:
    return frozenset(meanings[letter] for letter in letters if letter in meanings)


def _text(fields: HeaderFields, name: str) -> str:
    """The first value of a field: for `Received` the last hop's; "" without one."""
    return next(iter(fields.get(name, ())), "")


def _decoded(octets: bytes) -> str:
    return octets.decode("utf-8", "replace").strip()


def _after_semicolon(received: str) -> str:
    if ";" not in received:
        return ""
    return received.rpartition(";")[2]


def _from_seconds(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _parsed(text: str) -> datetime | None:
    words = " ".join(text.split())
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(words)
            return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None
