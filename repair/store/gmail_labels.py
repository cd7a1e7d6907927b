"""Gmail's labels in an export: its own ones in the languages in which people read Gmail, as data.

Gmail's Takeout writes its own labels in the language of the account: `Inbox,Unread` is `Posteingang,Ungelesen` in a
German one. A message is read in the language that most of its labels belong to, so that a user's own label that means
something in another language stays a keyword.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from enum import Enum
from typing import Final
from unicodedata import normalize

from mailmend.repair.store.flags import Flags, SystemFlag


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
    system = {_SYSTEM[label] for label in own.values() if label in _SYSTEM}
    if GmailLabel.UNREAD not in own.values():
        system.add(SystemFlag.SEEN)
    users = (_NO_ATOM.sub("_", label).strip("_")[:_KEYWORD_MAX] for label in labels if label not in own)
    keywords = {_KEYWORDS[label] for label in own.values() if label in _KEYWORDS}
    return Flags(frozenset(system), frozenset(keywords.union(filter(None, users))))


def gmail_labels(text: str) -> list[str]:
    """The labels of an `X-Gmail-Labels` field: separated by commas, quoted where they contain one."""
    try:
        decoded = str(make_header(decode_header(text)))
    except (HeaderParseError, UnicodeError, LookupError, ValueError):
        decoded = text
    found = (quoted or bare for quoted, bare in _LABEL.findall(decoded))
    return [label.strip() for label in found if label.strip()]


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
    known = ((label, names.get(_comparable(label))) for label in labels)
    return {label: own for label, own in known if own}


def _comparable(label: str) -> str:
    """One form for all spellings of a label: composed letters, one blank between words, no capitals."""
    return " ".join(normalize("NFC", label).split()).casefold()


_BY_NAME: Final = {
    language: {_comparable(name): label for label, names in labels.items() for name in names.split(";")}
    for language, labels in _IN_LANGUAGES.items()
}
