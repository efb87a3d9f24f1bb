"""Takes out of a text what is secret, before it is written where others read it.

Whatever a lab's components log, its nodes answer or an exception says goes through here on its way into a
run's folder, to Allure, to JUnit and to the terminal. What is taken out is named in its place, and JSON
stays JSON: nothing that matches has a quote in it. Taking out twice is taking out once.

Each pattern is looked for where a literal of it is, and none goes over the same text again and again: a log
of 100 MB takes seconds, whatever is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

KEY, CERTIFICATE, TOKEN = "[redacted private key]", "[redacted certificate]", "[redacted token]"
PASSWORD, ENCODED = "[redacted password]", "[redacted PEM]"
LONGEST_KEY = 8 * 1024
"""How far (characters) a key reaches whose beginning a log's rotation took: the PEM of RSA with 8192 bits is
shorter. Who takes the tail of a text takes so much more, cleans it, and then cuts."""

_BASE64 = r"[A-Za-z0-9+/=]"
_BREAK = r"(?:\s|\\+[nrt])"
"""Between a block's lines: also where the text is in a JSON string, or in a JSON string in another."""
_STAMP = r'\n[^\n"\\]{0,160}?'
"""Before them in a journal, where each has a time and a name."""
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}(?:(?P<key>PRIVATE KEY)|CERTIFICATE(?: REQUEST)?)-----"
    rf"(?:{_BREAK}{{0,4}}(?:Proc-Type|DEK-Info): [^\n\\]{{0,100}})*+"
    rf"(?:(?:{_BREAK}*+|{_STAMP} (?={_BASE64}{{16,}}+[ \r]*+(?:\n|\Z))){_BASE64}{{16,}}+)*+"
    rf"(?:(?:(?:{_BREAK}*|{_STAMP} ){_BASE64}{{1,15}})?(?:{_BREAK}*|{_STAMP})"
    r"-----END [A-Z0-9 ]{1,40}-----)?"
)
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----")
_BEFORE_END = re.compile(rf"(?:{_BASE64}|\s|\\)*+")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{5,}+(?:(?:\.[A-Za-z0-9_-]*+){2,4}|(?:\.[A-Za-z0-9_-]*+)?\Z)")
_RUN = re.compile(r"[A-Za-z0-9_-]*+")
_VALUE = r"[A-Za-z0-9._~+/=-]{8,}+"
_WITH_DIGIT = r"(?=[A-Za-z._~+/=-]*+[0-9])"
"""Tells a token from a word that follows `token:` in a sentence."""
_QUOTES = r"[\"'\\]{0,4}"
_SIMPLE = tuple(
    (literal, re.compile(pattern), replacement)
    for literal, pattern, replacement in (
        # base64 of `-----BEGIN`, as in client-key-data and in a Secret; then of a JWT, as in a Secret.
        ("LS0tLS1CRUdJTi", rf"LS0tLS1CRUdJTi{_BASE64}*+(?:{_BREAK}*+{_BASE64}{{16,}}+)*+", ENCODED),
        ("ZXlK", rf"ZXlK{_BASE64}{{60,}}+", TOKEN),
        ("key-data", rf"(key-data{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}{_QUOTES}){_BASE64}{{8,}}+", rf"\1{KEY}"),
        (
            "uthorization",
            rf"(uthorization{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}[\[\"'\\]{{0,5}}(?:[Bb]earer|[Bb]asic)\s{{1,3}}){_VALUE}",
            rf"\1{TOKEN}",
        ),
        ("earer", rf"(earer(?:\s|\+|%20){{1,3}}){_WITH_DIGIT}{_VALUE}", rf"\1{TOKEN}"),
        ("--token", rf"(--token(?:=|\s{{1,3}}){_QUOTES}){_VALUE}", rf"\1{TOKEN}"),
        ("oken", rf"(oken\\*[\"']\s{{0,3}}:\s{{0,3}}\\*[\"']){_VALUE}", rf"\1{TOKEN}"),
        ("oken", rf"(oken\s{{0,3}}[:=]\s{{0,3}}{_QUOTES}){_WITH_DIGIT}{_VALUE}", rf"\1{TOKEN}"),
        (
            "assword",
            rf"(assword{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}{_QUOTES})[^\s\"'\\,;&\[]{{3,}}+",
            rf"\1{PASSWORD}",
        ),
        ("://", r"(://[^\s/:@\"'\\\[]{1,64}:)[^\s/@\"'\\\[]{1,256}@", rf"\1{PASSWORD}@"),
    )
)  # fmt: skip


def text(given: str) -> str:
    """The text without private keys, certificates, tokens and passwords.

    What is a secret only by its meaning (a random word that somebody chose) cannot be known.
    """
    for literal, clean in _CLEANERS:
        if literal in given:
            given = clean(given)
    return given


def _without_pem(given: str) -> str:
    return _PEM.sub(lambda found: KEY if found["key"] else CERTIFICATE, given)


def _without_ends(given: str) -> str:
    """What is left of keys whose beginning was cut off."""

    def parts() -> Iterator[str]:
        done = 0
        for end in _END.finditer(given):
            before = given[max(done, end.start() - LONGEST_KEY) : end.start()]
            of_key = _BEFORE_END.match(before[::-1])
            yield given[done : end.start() - (of_key.end() if of_key else 0)]
            yield KEY
            done = end.end()
        yield given[done:]

    return "".join(parts())


def _without_jwt(given: str) -> str:
    """A JWT may begin anywhere in a run of letters (after an escaped line break, say). Where none does, none
    does in the rest of that run.
    """

    def parts() -> Iterator[str]:
        done, at = 0, given.find("eyJ")
        while at >= 0:
            found = _JWT.match(given, at)
            if found:
                yield given[done:at]
                yield TOKEN
                done = found.end()
            run = _RUN.match(given, at)
            at = given.find("eyJ", found.end() if found else run.end() if run else at + 1)
        yield given[done:]

    return "".join(parts())


def _replacing(pattern: re.Pattern[str], replacement: str) -> Callable[[str], str]:
    return lambda given: pattern.sub(replacement, given)


_CLEANERS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("-----BEGIN ", _without_pem),
    ("-----END ", _without_ends),
    ("eyJ", _without_jwt),
    *((literal, _replacing(pattern, replacement)) for literal, pattern, replacement in _SIMPLE),
)
