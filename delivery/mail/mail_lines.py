"""The lines of a mail, which every reader of it has to see alike: our own rules, and the server that gets it next.

RFC 5321 2.3.8 lets CR and LF stand in a mail only together, as the end of a line. Servers disagree
about a single CR or LF: some end a line there, some do not. A mail that has one could show a header
field, or the end of itself, to the next server and hide it from our rules (SMTP smuggling).
"""

import re
from collections.abc import Iterator
from typing import Final

BLOCK_BYTES: Final = 65_536

# The look-behind starts a match at the first CR of a run alone, so that a long run costs linear time.
_CARRIAGE_RETURNS_BEFORE_LINE_FEED: Final = re.compile(rb"(?<!\r)\r+\n")


def canonical_lines(content: bytes) -> bytes:
    """The content with CR LF at the end of each line, without a CR or LF elsewhere, and without NUL bytes.

    A lone CR, a lone LF, and an LF with several CRs before it end one line each. A last line without an end has none
    afterwards. The function changes nothing in its own result.
    """
    pairs = content.count(b"\r\n")
    is_canonical = content.count(b"\r") == pairs and content.count(b"\n") == pairs and b"\0" not in content
    if is_canonical:
        return content
    lines = content.replace(b"\0", b"")
    lines = _CARRIAGE_RETURNS_BEFORE_LINE_FEED.sub(b"\n", lines)
    return lines.replace(b"\r", b"\n").replace(b"\n", b"\r\n")


def transparent_blocks(lines: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The lines as they are sent after DATA (RFC 5321 4.5.2), with the line of one dot that ends them, in blocks.

    A second dot is put before each dot that begins a line. Only one block is held at a time: a mail that goes to many
    servers at once is in memory once.

    Args:
        lines: as `canonical_lines` has them, ending with CR LF, or empty.
        block_bytes: the size of a block before dots are added.
    """
    start = 0
    while start < len(lines):
        end = start + block_bytes
        if lines[end - 1 : end] == b"\r":
            end += 1  # a line end is never cut in two, so each block shows whether the next begins a line
        block = lines[start:end].replace(b"\r\n.", b"\r\n..")
        begins_line = start == 0 or lines[start - 1 : start] == b"\n"
        if begins_line and block.startswith(b"."):
            block = b"." + block
        yield block
        start = end
    yield b".\r\n"
