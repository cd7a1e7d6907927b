"""Pieces of CQL in one spelling: what is kept as text must be the same text however it was written."""

from collections.abc import Sequence
from itertools import pairwise

from cql.language.lexer import Token

_OPENING, _CLOSING = ("(", "[", "{", ".", "-"), (")", "]", "}", ".", ",", ":")
_COMPARING = ("=", "<", ">", "<=", ">=", "!=", ",")
_UPPER = ("AND", "IS", "NOT", "NULL", "IN", "DEFAULT")
_BEFORE_BRACKETS = ("IN", "AND", "CONTAINS", "KEY", "LIKE", "BETWEEN")


def spaced(tokens: Sequence[Token]) -> str:
    """The tokens as a person would write them: spaces around words and comparisons, none inside brackets."""
    text = _shown(tokens[0])
    for before, token in pairwise(tokens):
        called = token.text in {"(", "["} and before.word not in _BEFORE_BRACKETS and before.text not in _COMPARING
        tight = called or before.text in _OPENING or token.text in _CLOSING
        text += _shown(token) if tight else f" {_shown(token)}"
    return text


def _shown(token: Token) -> str:
    return token.word if token.word in _UPPER else token.text
