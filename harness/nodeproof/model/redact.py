"""Takes out of texts and values what is secret, before they are written where others read them.

Whatever a lab's components log, its nodes answer or an exception says goes through here on its way into a
run's folder, to Allure, to JUnit and to the terminal. What is taken out is named in its place, with a digest
by a key that only this process has: two secrets stay different, and neither can be guessed from it. Data is
cleaned as values (`value`), before it becomes JSON. JSON inside a text stays JSON. Taking out twice is taking
out once.

A secret is known by its form (a PEM block, a JWT), by the name before it (`DB_PASSWORD=`, `"token":`), by the
option of a program (`ipmitool -P`), or because this process's own environment has it under such a name. Each
pattern is looked for where a literal of it is, and none goes over the same text again and again: a log of
100 MB takes seconds, whatever is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

Json = Any
Match = Callable[[str, int], re.Match[str] | None]
"""Of a text at a place."""
KEY, CERTIFICATE, TOKEN = "[redacted private key", "[redacted certificate", "[redacted token"
PASSWORD, ENCODED = "[redacted password", "[redacted PEM"
"""How a replacement begins; a digest and a bracket follow."""
LONGEST_KEY = 8 * 1024
"""How far (characters) a key reaches whose beginning a log's rotation took: the PEM of RSA with 8192 bits is
shorter. Who takes the tail of a text takes so much more, cleans it, and then cuts."""

_DIGEST_KEY = secrets.token_bytes(32)
_DIGEST_BYTES = 4
_BASE64 = r"[A-Za-z0-9+/=]"
_BREAK = r"(?:\s|\\+[nrt])"
"""Between a block's lines: also where the text is in a JSON string, or in a JSON string in another."""
_STAMP = r'\n[^\n"\\]{0,160}?'
"""Before them in a journal, where each has a time and a name."""
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}(?:(?P<key>PRIVATE KEY(?: BLOCK)?)|CERTIFICATE(?: REQUEST)?)-----"
    rf"(?:{_BREAK}{{0,4}}(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{{0,100}})*+"
    rf"(?:(?:{_BREAK}*+|{_STAMP} (?={_BASE64}{{16,}}+[ \r]*+(?:\n|\Z))){_BASE64}{{16,}}+)*+"
    rf"(?:(?:(?:{_BREAK}*|{_STAMP} ){_BASE64}{{1,15}})?(?:{_BREAK}*|{_STAMP})"
    r"-----END [A-Z0-9 ]{1,40}-----)?"
)
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BEFORE_END = re.compile(rf"(?:{_BASE64}|\s|\\)*+")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{5,}+(?:(?:\.[A-Za-z0-9_-]*+){2,4}|(?:\.[A-Za-z0-9_-]*+)?\Z)")
_RUN = re.compile(r"[A-Za-z0-9_-]*+")
_VALUE = r"[A-Za-z0-9._~+/=-]{8,}+"
_WITH_DIGIT = r"(?=[A-Za-z._~+/=-]*+[0-9])"
"""Tells a token from a word that follows `token:` in a sentence."""
_QUOTES = r"[\"'\\]{0,4}"
_ARGUMENT = r"(?P<secret>(?!\[redacted )[^\s\"'\\,;]{2,256}+)"
"""What a program is given by an option, also in a JSON list of arguments."""
_APART = r"[\"'\\,= \t]{1,10}"
"""Between an option and its value."""


def _any_case(literal: str) -> str:
    """A pattern for a literal in any case; unlike with IGNORECASE, `re` skips to where it may begin."""
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in literal)


_PASSWORD_WORDS = ("passw", "passphrase", "passcode")
_KEY_WORDS = ("access", "api", "private", "certificate")
_WORDS = "|".join(
    (
        _any_case("access") + "[-_ ]?" + _any_case("key") + "(?:[-_ ]?" + _any_case("id") + ")?",
        f"(?:{'|'.join(map(_any_case, _KEY_WORDS[1:]))})[-_ ]?{_any_case('key')}",
        f"{_any_case('passw')}(?:{_any_case('or')})?{_any_case('d')}",
        *map(_any_case, ("passphrase", "passcode", "token", "secret", "cookie", "credential")),
        # Not in `author`, nor in `authentication`, whose values are modes and addresses.
        r"(?:(?<![A-Za-z])[aA]|(?<=[a-z])A)(?:uth|UTH)(?![A-Za-z])",
    )
)
_NAME_LITERALS = (
    *_PASSWORD_WORDS,
    *("token", "secret", "cookie", "credential", "auth"),
    *(f"{word}{between}key" for word in _KEY_WORDS for between in ("", "-", "_", " ")),
)
_NAME = rf"(?P<name>(?:{_WORDS})[sS]?(?P<tail>[\w.-]{{0,40}}+))"
_HARMLESS = re.compile(
    r"(?i)(?:file|path|dir|names?|refs?|requests?|review|seconds|ttl|expiry|expires|expiration|audiences?|type|"
    r"mode|provider|config|spec|policy|strategy|webhook|cache|controller|cleaner|syncs|length|authentication|issuer|"
    r"url|uri|endpoint|sock|socket|ca-cert-hash|(?<![a-z])id)$"
)
"""How a name ends that tells something of a secret, and not the secret: `tokenExpirationSeconds`."""
_QUOTED = (
    r"(?P<slashes>\\{0,7})(?P<quote>[\"'])"
    r"(?P<quoted>(?:[^\\\n\"']++|\\++(?![\"'])|(?!(?P=slashes)(?P=quote))\\*+[\"'])*+)"
)
"""Up to the same quote with as many backslashes: a string in JSON, or in JSON in a JSON string."""
_BARE = r"(?P<bare>[^\s\"'\\&<>]{1,2048}+)"
_IN_QUOTES = r"\\{0,7}[\"']"
_NAMES = re.compile(_NAME)
_ASSIGNED = re.compile(
    rf"{_NAME}(?P<end>{_IN_QUOTES})?[ \t]{{0,3}}(?P<sign>[:=])[ \t]{{0,20}}(?:{_QUOTED}|{_BARE})"
)
_AFTER_OPTION = re.compile(rf"{_NAME}[\"']?(?P<sign>[ \t,]{{1,3}})(?:{_QUOTED}|(?!-){_BARE})")
_LONGEST_OPTION = 40
_OPTION = re.compile(rf"--[\w-]{{0,{_LONGEST_OPTION}}}\Z")
_PAIR = re.compile(
    rf"name{_IN_QUOTES}[ \t]{{0,3}}:[ \t]{{0,3}}{_IN_QUOTES}[\w.-]{{0,80}}?{_NAME}{_IN_QUOTES},"
    r"\s{0,20}"
    rf"{_IN_QUOTES}value(?P<sign>{_IN_QUOTES}[ \t]{{0,3}}:[ \t]{{0,3}}){_QUOTED}(?P<bare>(?!))?"
)
_PAIR_OF_LINES = re.compile(
    rf"name: [\"']?[\w.-]{{0,80}}?{_NAME}[\"']?[ \t]*(?:\n|\\{{1,7}}n)"
    rf"[ \t]{{0,40}}value(?P<sign>:[ \t]{{1,20}})(?:{_QUOTED}|{_BARE})"
)
"""An environment variable of a pod, in JSON and in YAML."""
_NO_SECRET = re.compile(r"(?:(?i:true|false|null|none|nil)|<.*|\[redacted.*)?[,;)}\]]*", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LIKE_TOKEN = re.compile(r"[^\s/][^\s]{5,}")
_SHORTEST_WITH_DIGIT, _SHORTEST_WORD = 8, 16
"""What follows `token: ` is a word of a sentence where it is shorter, and no token."""
_LEAST_OF_ENVIRONMENT = 8
"""A shorter value is likely to be a word that stands for something else elsewhere."""
_PASSWORD_OPTIONS = (("ipmitool", "-P"), ("fence_", "-p"), ("sshpass", "-p"))
"""Programs (or how their names begin) that take a password by an option without a name."""
_BY_FORM = tuple(
    (tuple(literals.split("|")), re.compile(pattern), kind)
    for literals, pattern, kind in (
        # base64 of `-----BEGIN`, as in client-key-data and in a Secret; then of a JWT, as in a Secret.
        (
            "ls0tls1crudjti",
            rf"(?P<secret>LS0tLS1CRUdJTi{_BASE64}*+(?:{_BREAK}*+{_BASE64}{{16,}}+)*+)",
            ENCODED,
        ),
        ("zxlk", rf"(?P<secret>ZXlK{_BASE64}{{60,}}+)", TOKEN),
        ("key-data", rf"key-data{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}{_QUOTES}(?P<secret>{_BASE64}{{8,}}+)", KEY),
        (
            "authorization",
            rf"{_any_case('uthorization')}{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}[\[\"'\\]{{0,5}}(?i:bearer|basic)\s{{1,3}}"
            rf"(?P<secret>{_VALUE})",
            TOKEN,
        ),
        ("bearer", rf"{_any_case('earer')}(?:\s|\+|%20){{1,3}}{_WITH_DIGIT}(?P<secret>{_VALUE})", TOKEN),
        (
            "cookie",
            rf"{_any_case('cookie')}: (?P<secret>(?!\[redacted )[^\s\"'\\][^\n\"'\\]{{3,2048}}+)",
            TOKEN,
        ),
        # A bootstrap token has a form that an Event's name may have, too.
        (
            "token",
            rf"{_any_case('token')}\s{{1,3}}{_QUOTES}(?P<secret>[a-z0-9]{{6}}\.[a-z0-9]{{16}})\b",
            TOKEN,
        ),
        # What joins K3s and RKE2. Source: https://docs.k3s.io/cli/token
        ("k10", r"(?P<secret>\bK10[0-9a-f]{8,128}::[^\s\"'\\,;&]{3,256}+)", TOKEN),
        ("ghp_|gho_|ghu_|ghs_|ghr_", r"(?P<secret>\bgh[pousr]_[A-Za-z0-9]{16,}+)", TOKEN),
        ("github_pat_|glpat-|xox", r"(?P<secret>\b(?:github_pat_|glpat-|xox[abeprs]-)[\w-]{10,}+)", TOKEN),
        ("akia|asia", r"(?P<secret>\b(?:AKIA|ASIA)[A-Z0-9]{12,20}+)", TOKEN),
        (
            "sig=|signature=",
            r"\b(?:sig|(?i:x-amz-signature))=(?P<secret>(?!\[redacted )[^\s\"'\\&]{8,}+)",
            TOKEN,
        ),
        # kubeadm prints it on a line of its own. Source: kubeadm's cmd/phases/init/uploadcerts.go
        (
            "certificate key|certificate-key|certificatekey",
            rf"{_any_case('ertificate')}[- _]?{_any_case('key')}:?{_BREAK}{{1,4}}"
            r"(?P<secret>[0-9a-f]{32,128}+)",
            TOKEN,
        ),
        ("private-lines", rf"Private-Lines: \d{{1,4}}(?P<secret>(?:{_BREAK}++{_BASE64}{{8,}}+)++)", KEY),
        ("ipmitool", rf"\bipmitool\b[^\n]{{0,300}}?[\s\"'\\,]-P{_APART}{_ARGUMENT}", PASSWORD),
        ("fence_", rf"\bfence_\w{{1,40}}\b[^\n]{{0,300}}?[\s\"'\\,]-p{_APART}{_ARGUMENT}", PASSWORD),
        ("sshpass", rf"\bsshpass{_APART}-p[\"'\\,= \t]{{0,10}}{_ARGUMENT}", PASSWORD),
        (
            "-u|-user",
            rf"[\s\"'](?:-u|--user|--proxy-user){_APART}[^\s:\"'\\]{{0,64}}:(?!\d+\b){_ARGUMENT}",
            PASSWORD,
        ),
        (
            "passw",
            rf"{_any_case('passw')}(?:{_any_case('or')})?{_any_case('d')}\s(?:for|of)\s[^\s:]{{1,64}}"
            rf"(?: ?[:=]| is) ?{_QUOTES}{_ARGUMENT}",
            PASSWORD,
        ),
        ("@", r"://[^\s/:@\"'\\\[]{0,64}:(?P<secret>(?!\[redacted )[^\s/@\"'\\\[]{1,256})@", PASSWORD),
    )
)  # fmt: skip


def text(given: str) -> str:
    """The text without private keys, certificates, tokens and passwords.

    What is a secret only by its meaning (a random word that somebody chose) cannot be known.
    """
    return _text(given, _of_environment(os.environ))


def value(given: Json) -> Json:
    """Data as JSON has it, with every string in it clean, also those that only their key makes secrets."""
    return _value(given, _of_environment(os.environ))


def is_suspect(line: str) -> bool:
    """Whether a line of JSON may hold a secret: a quick look, without which nobody cleans it."""
    # Each pod has this field, twice: it is true or false.
    lower = line.lower().replace("automountserviceaccounttoken", "")
    return any(literal in lower for literal in _ALL_LITERALS) or any(
        json.dumps(secret)[1:-1] in line for secret in _of_environment(os.environ)
    )


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret: `DB_PASSWORD`, `X-Auth-Token`, `client_secret`.

    The name of a secret's file, its lifetime and the reference to a Secret are none.
    """
    return any(map(_names_secret, _NAMES.finditer(name)))


def _text(given: str, known: Collection[str]) -> str:
    for secret in known:
        if secret in given:
            given = given.replace(secret, _mark(TOKEN, secret))
    lower = given.lower()
    if len(given) < _SHORT and not _ANY_LITERAL.search(lower):
        return given
    for literals, clean in _CLEANERS:
        if any(literal in lower for literal in literals):
            given = clean(given)
    return given


def _value(given: Json, known: Collection[str]) -> Json:
    if isinstance(given, str):
        return _text(given, known)
    if isinstance(given, Mapping):
        # An environment variable of a pod has its name beside its value.
        named = str(given.get("name", ""))
        return {
            _value(key, known): _under(named if key == "value" else str(key), part, known)
            for key, part in given.items()
        }
    if isinstance(given, list | tuple):
        words = [part if isinstance(part, str) else "" for part in given]
        before = ["", *words[:-1]]
        return [
            _under(_label(option, words), part, known) for option, part in zip(before, given, strict=False)
        ]
    return given


def _under(name: str, given: Json, known: Collection[str]) -> Json:
    """A value that has a name, or an option before it."""
    if is_secret_name(name):
        if isinstance(given, str) and _is_secret(name, given):
            return _mark(_kind(name), given)
        if isinstance(given, int | float) and not isinstance(given, bool) and _kind(name) == PASSWORD:
            return _mark(PASSWORD, str(given))
    return _value(given, known)


def _label(option: str, words: Collection[str]) -> str:
    """What an option of a command line says that follows it."""
    programs = {word.rpartition("/")[2] for word in words}
    for program, short in _PASSWORD_OPTIONS:
        if option == short and any(name.startswith(program) for name in programs):
            return "password"
    return option.removeprefix("--") if option.startswith("--") and "=" not in option else ""


def _of_environment(environment: Mapping[str, str]) -> list[str]:
    """The secrets that this process was started with, the longest first."""
    found = {
        told
        for name, told in environment.items()
        if len(told) >= _LEAST_OF_ENVIRONMENT and is_secret_name(name) and _is_secret(name, told)
    }
    return sorted(found, key=len, reverse=True)


def _mark(kind: str, secret: str) -> str:
    """What stands in the place of a secret."""
    told = secret.encode(errors="surrogatepass")
    return f"{kind} {hashlib.blake2s(told, key=_DIGEST_KEY, digest_size=_DIGEST_BYTES).hexdigest()}]"


def _kind(name: str) -> str:
    return PASSWORD if any(word in name.lower() for word in _PASSWORD_WORDS) else TOKEN


def _names_secret(found: re.Match[str]) -> bool:
    """Whether a name that has one of the words is a secret's; `secret: a-name` names an object."""
    if _HARMLESS.search(found["tail"]):
        return False
    is_all = found.start("name") == 0 or not re.match(r"[\w.-]", found.string[found.start("name") - 1])
    return not (is_all and found["name"].lower() in ("secret", "secrets"))


def _is_secret(name: str, told: str) -> bool:
    """Whether this is a secret, where its name says that there is one."""
    if _NO_SECRET.fullmatch(told):
        return False
    if _kind(name) == PASSWORD:
        return True
    return bool(_LIKE_TOKEN.fullmatch(told)) and not _NUMBER.fullmatch(told)


def _is_bare_secret(found: re.Match[str], told: str) -> bool:
    """The same without quotes, where what follows may be the next word of a sentence."""
    if not _is_secret(found["name"], told):
        return False
    if _kind(found["name"]) == PASSWORD:
        return len(told) > 1
    if "=" in found["sign"]:
        return True
    if any(c.isdigit() for c in told) or ":" not in found["sign"]:
        return len(told) >= _SHORTEST_WITH_DIGIT
    follows = found.string[found.end() : found.end() + 1]
    return len(told) >= _SHORTEST_WORD and follows in ("", "\n", "\r", '"', "'", "\\")


def _without_pem(given: str) -> str:
    return _PEM.sub(lambda found: _mark(KEY if found["key"] else CERTIFICATE, found[0]), given)


def _without_ends(given: str) -> str:
    """What is left of keys whose beginning was cut off."""

    def parts() -> Iterator[str]:
        done = 0
        for end in _END.finditer(given):
            before = given[max(done, end.start() - LONGEST_KEY) : end.start()]
            of_key = _BEFORE_END.match(before[::-1])
            begin = end.start() - (of_key.end() if of_key else 0)
            yield given[done:begin]
            yield _mark(KEY, given[begin : end.end()])
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
                yield _mark(TOKEN, found[0])
                done = found.end()
            run = _RUN.match(given, at)
            at = given.find("eyJ", found.end() if found else run.end() if run else at + 1)
        yield given[done:]

    return "".join(parts())


def _without_named(given: str) -> str:
    """Without the values that follow names of secrets."""
    return "".join(_replaced(given, _words(given), _assigned))


def _words(given: str) -> list[int]:
    """Where a word may be that a secret's name has: quicker than a pattern for all of them."""
    # The only letter that is longer in lower case would move what is behind it.
    lower, places = given.replace("\u0130", "i").lower(), []
    for literal in _NAME_LITERALS:
        at = lower.find(literal)
        while at >= 0:
            places.append(at)
            at = lower.find(literal, at + 1)
    return sorted(places)


def _assigned(given: str, at: int) -> re.Match[str] | None:
    """The name that begins there with its value, also as a program's option with its argument."""
    if found := _ASSIGNED.match(given, at):
        return found
    is_option = _OPTION.search(given[max(0, at - _LONGEST_OPTION - 2) : at])
    return _AFTER_OPTION.match(given, at) if is_option else None


def _replaced(given: str, places: Iterable[int], match: Match) -> Iterator[str]:
    """A text's parts, without the secrets that matches at these places have; one in another is its part."""
    done = 0
    for at in places:
        found = match(given, at) if at >= done else None
        place = _place(found) if found and _names_secret(found) else None
        if found and place:
            begin, end, quote = place
            yield given[done:begin]
            yield f"{quote}{_mark(_kind(found['name']), given[begin:end])}{quote}"
            done = end
    yield given[done:]


def _paired(pattern: re.Pattern[str]) -> Callable[[str], str]:
    """Without the values of environment variables that are secrets by their names."""

    def clean(given: str) -> str:
        return "".join(_replaced(given, map(re.Match.start, pattern.finditer(given)), pattern.match))

    return clean


def _place(found: re.Match[str]) -> tuple[int, int, str] | None:
    """Where the secret of a match is, and what has to be around its replacement; None where there is none."""
    if found["bare"] is None:
        return (*found.span("quoted"), "") if _is_secret(found["name"], found["quoted"]) else None
    told, begin = found["bare"], found.start("bare")
    if end_quote := found.groupdict().get("end"):
        # In JSON: a number is replaced by a string; null, true, a list and an object are no secrets.
        number = _NUMBER.match(told)
        if number and not told[number.end() :].strip(",}]"):
            is_pin = _kind(found["name"]) == PASSWORD
            return (begin, begin + number.end(), end_quote) if is_pin else None
        if told[0] in "[{":
            return None
    return (begin, found.end("bare"), "") if _is_bare_secret(found, told) else None


def _formed(pattern: re.Pattern[str], kind: str) -> Callable[[str], str]:
    """Without what has the form of a secret."""

    def clean(found: re.Match[str]) -> str:
        (begin, end), start = found.span("secret"), found.start()
        return f"{found[0][: begin - start]}{_mark(kind, found['secret'])}{found[0][end - start :]}"

    return lambda given: pattern.sub(clean, given)


_CLEANERS: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("-----begin ",), _without_pem),
    (("-----end ",), _without_ends),
    (("eyj",), _without_jwt),
    *((literals, _formed(pattern, kind)) for literals, pattern, kind in _BY_FORM),
    *((_NAME_LITERALS, _paired(pattern)) for pattern in (_PAIR, _PAIR_OF_LINES)),
    (_NAME_LITERALS, _without_named),
)
_ALL_LITERALS = tuple(dict.fromkeys(literal for literals, _clean in _CLEANERS for literal in literals))
_ANY_LITERAL = re.compile("|".join(map(re.escape, _ALL_LITERALS)))
_SHORT = 1024
"""Characters below which one pattern is quicker than a look for each literal."""
