"""A mail's bytes in two: James keeps header and body apart, the header with the blank line that ends it."""

import re
from typing import Final

_BLANK_LINE: Final = re.compile(rb"(?:\A|\n)\r?\n")


def split(content: bytes) -> tuple[bytes, bytes]:
    """The header with its blank line, and the body; together the content again. Without a blank line it is all header.

    Lines end with CRLF (RFC 5322) or with LF alone.
    """
    found = _BLANK_LINE.search(content)
    end = found.end() if found else len(content)
    return content[:end], content[end:]
