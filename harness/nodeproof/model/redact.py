"""Redaction of secrets in texts and data, before they are written where others can read them.

Logs of components, answers of nodes and exceptions pass through this module before they reach a run's folder,
Allure, JUnit or the terminal. A replacement names the kind of secret, with a digest keyed by a value of this
process: different secrets stay different, and the digest does not reveal them. Data is redacted as values
(`value`) before it becomes JSON. JSON in a text stays JSON. Redaction is idempotent.

A secret is recognized by its form (a PEM block, a JWT), by its name (`DB_PASSWORD=`, `"token":`), by the
option of a program (`ipmitool -P`), or because the environment of this process has it under such a name. Each
pattern is only tried at one of its literals, and none scans the same text repeatedly: a log of 100 MB takes
seconds, whatever its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from nodeproof.model.pattern import Json

Match = Callable[[str, int], re.Match[str] | None]
"""Match at a position of a text."""
KEY, CERTIFICATE, TOKEN = "[redacted private key", "[redacted certificate", "[redacted token"
PASSWORD, ENCODED = "[redacted password", "[redacted PEM"
"""Prefixes of replacements; a digest and a bracket follow."""
LONGEST_KEY = 8 * 1024
"""Longest rest (characters) of a key whose start was lost by log rotation: the PEM of RSA with 8192 bits is
shorter. To get the tail of a text, take this much more, redact it, and then cut it."""

_DIGEST_KEY = secrets.token_bytes(32)
_DIGEST_BYTES = 4
_BASE64 = r"[A-Za-z0-9+/=]"
_BREAK = r"(?:\s|\\+[nrt])"
"""Line break in a block, also in a JSON string, or in a JSON string in another."""
_STAMP = r'\n[^\n"\\]{0,160}?'
"""Line prefix in a journal: time and name."""
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}(?:(?P<key>PRIVATE KEY(?: BLOCK)?)|CERTIFICATE(?: REQUEST)?)-----"
    rf"(?:{_BREAK}{{0,4}}(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{{0,100}})*+"
    rf"(?:(?:{_BREAK}*+|{_STAMP} (?={_BASE64}{{16,}}+[ \r]*+(?:\n|\Z))){_BASE64}{{16,}}+)*+"
    rf"(?:(?:(?:{_BREAK}*|{_STAMP} ){_BASE64}{{1,15}})?(?:{_BREAK}*|{_STAMP})"
    r"-----END [A-Z0-9 ]{1,40}-----)?"
)
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BEFORE_END = re.compile(rf"(?:{_BASE64}|\s|\\)*+")
_JWT = re.compile(
    r"eyJ[A-Za-z0-9_-]{5,}+(?:(?:\.[A-Za-z0-9_-]*+){2,4}|(?:\.[A-Za-z0-9_-]*+)?\Z|\.[A-Za-z0-9_-]{16,}+)"
)
"""Also one without its header: kubectl 1.37 prints what follows the first dot of an unknown resource."""
_RUN = re.compile(r"[A-Za-z0-9_-]*+")
_VALUE = r"[A-Za-z0-9._~+/=-]{8,}+"
_WITH_DIGIT = r"(?=[A-Za-z._~+/=-]*+[0-9])"
"""Distinguishes a token from a word after `token:` in a sentence."""
_QUOTES = r"[\"'\\]{0,4}"
_ARGUMENT = r"(?P<secret>(?!\[redacted )[^\s\"'\\,;]{2,256}+)"
"""Argument of a program's option, also in a JSON list of arguments."""
_APART = r"[\"'\\,= \t]{1,10}"
"""Separator between an option and its value."""


def _any_case(literal: str) -> str:
    """Return a pattern for a literal in any case.

    Unlike with IGNORECASE, `re` can skip to the places where it may start.
    """
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in literal)


_PASSWORD_WORDS = ("passw", "passphrase", "passcode", "_pwd", "_pass", "sshpass")
_KEY_WORDS = ("access", "api", "private", "certificate")
_WORDS = "|".join(
    (
        _any_case("access") + "[-_ ]?" + _any_case("key") + "(?:[-_ ]?" + _any_case("id") + ")?",
        f"(?:{'|'.join(map(_any_case, _KEY_WORDS[1:]))})[-_ ]?{_any_case('key')}",
        f"{_any_case('passw')}(?:{_any_case('or')})?{_any_case('d')}",
        # Environment variables such as MYSQL_PWD: in lower case it is a folder, or a pass of a controller.
        r"_(?:PWD|PASS)(?![A-Za-z])",
        "SSHPASS",
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
"""End of a name that describes a secret without being one: `tokenExpirationSeconds`."""
_QUOTED = (
    r"(?P<slashes>\\{0,7})(?P<quote>[\"'])"
    r"(?P<quoted>(?:[^\\\n\"']++|\\++(?![\"'])"
    r"|(?!(?:(?P=slashes)\\(?P=slashes)\\)*(?P=slashes)(?P=quote))\\*+[\"'])*+)"
)
"""String in JSON, or in JSON in a JSON string: up to the same quote with as many backslashes.

More backslashes belong to the content: each of its own is written as twice one more than those of the quote.
"""
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
"""Environment variable of a pod, in JSON and in YAML."""
_PAIR_OF_ATTRIBUTES = re.compile(
    rf"(?:[nN]ame|[kK]ey)\s?=\s?{_IN_QUOTES}[\w.:-]{{0,80}}?{_NAME}{_IN_QUOTES}\s{{1,20}}"
    rf"{_any_case('value')}(?P<sign>\s?=\s?){_QUOTED}(?P<bare>(?!))?"
)
_TAG = re.compile(r"(?:<|&lt;)[\w.:-]{0,40}\Z")
_LONGEST_TAG = 44
_ELEMENT = re.compile(
    rf"{_NAME}(?:\s[^<>&]{{0,200}}+)?(?:>|&gt;)(?:<!\[CDATA\[)?(?P<block>(?:[^<&\]]|&(?!lt;)|\](?!\]>)){{1,4096}}+)"
    r"(?:\]\]>)?(?:<|&lt;)/[\w.:-]{0,40}?(?P=name)\s{0,3}(?:>|&gt;)"
)
_ATTRIBUTE = re.compile(
    rf"{_NAME}\s[^<>]{{0,200}}?\b{_any_case('value')}(?P<sign>\s?=\s?){_QUOTED}(?P<bare>(?!))?"
)
"""Element of XML: its text, or its attribute `value`."""
_BLOCK_HEAD = (
    rf"{_NAME}(?:{_IN_QUOTES})?[ \t]{{0,3}}:[ \t]{{1,20}}[|>][-+0-9]{{0,2}}"
    r"[ \t]{0,20}+(?:#[^\n\\]{0,200}+)?"
)
_BLOCK = re.compile(rf"{_BLOCK_HEAD}(?=\r?\n|\\{{1,15}}[rn])")
"""Start of a block scalar of YAML, whose text is in the following lines."""
_KEY_START = re.compile(r"(?:\A|\n|\\n|[\"'])(?P<indent>[ \t]*(?:- +)*)[\"']?[\w.-]*\Z")
_LONGEST_KEY_START = 160
_NO_SECRET = re.compile(r"(?:(?i:true|false|null|none|nil)|<.*|\[redacted.*)?[,;)}\]]*", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LIKE_TOKEN = re.compile(r"[^\s/][^\s]{5,}")
_SHORTEST_WITH_DIGIT, _SHORTEST_WORD = 8, 16
"""Shortest tokens after `token: `; a shorter text is a word of a sentence."""
_LEAST_OF_ENVIRONMENT = 8
"""Shortest secret from the environment; a shorter value is likely to be an ordinary word elsewhere."""
_PASSWORD_OPTIONS = (("ipmitool", "-P"), ("fence_", "-p"), ("racadm", "-p"), ("sshpass", "-p"))
"""Programs (or prefixes of their names) with an unnamed option for a password."""
_BY_FORM = tuple(
    (tuple(literals.split("|")), re.compile(pattern), kind)
    for literals, pattern, kind in (
        # base64 of `-----BEGIN`, as in client-key-data and in a Secret; then of a JWT, as in a Secret.
        ("ls0tls1crudjti",
         rf"(?P<secret>LS0tLS1CRUdJTi{_BASE64}*+(?:{_BREAK}*+{_BASE64}{{16,}}+)*+)", ENCODED),
        ("zxlk", rf"(?P<secret>ZXlK{_BASE64}{{60,}}+)", TOKEN),
        ("key-data", rf"key-data{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}{_QUOTES}(?P<secret>{_BASE64}{{8,}}+)", KEY),
        ("authorization",
         rf"{_any_case('uthorization')}{_QUOTES}\s{{0,3}}[:=]\s{{0,3}}[\[\"'\\]{{0,5}}(?i:bearer|basic|token|apikey)\s{{1,3}}"
         rf"(?P<secret>{_VALUE})", TOKEN),
        ("bearer", rf"{_any_case('earer')}(?:\s|\+|%20){{1,3}}{_WITH_DIGIT}(?P<secret>{_VALUE})", TOKEN),
        ("cookie",
         rf"{_any_case('cookie')}: (?P<secret>(?!\[redacted )[^\s\"'\\][^\n\"'\\]{{3,2048}}+)", TOKEN),
        # An Event's name may look like a bootstrap token.
        ("token",
         rf"{_any_case('token')}\s{{1,3}}{_QUOTES}(?P<secret>[a-z0-9]{{6}}\.[a-z0-9]{{16}})\b", TOKEN),
        # Join token of K3s and RKE2. Source: https://docs.k3s.io/cli/token
        ("k10", r"(?P<secret>\bK10[0-9a-f]{8,128}::[^\s\"'\\,;&]{3,256}+)", TOKEN),
        ("ghp_|gho_|ghu_|ghs_|ghr_", r"(?P<secret>\bgh[pousr]_[A-Za-z0-9]{16,}+)", TOKEN),
        ("github_pat_|glpat-|xox", r"(?P<secret>\b(?:github_pat_|glpat-|xox[abeprs]-)[\w-]{10,}+)", TOKEN),
        ("npm_|hf_|sk_live_|dckr_pat_",
         r"(?P<secret>\b(?:npm_|hf_|sk_live_|dckr_pat_)[A-Za-z0-9]{16,}+)", TOKEN),
        ("hvs.|pypi-|aiza", r"(?P<secret>\b(?:hvs\.|pypi-|AIza)[\w-]{20,}+)", TOKEN),
        ("akia|asia", r"(?P<secret>\b(?:AKIA|ASIA)[A-Z0-9]{12,20}+)", TOKEN),
        ("sig=|signature=",
         r"\b(?:sig|(?i:x-amz-signature))=(?P<secret>(?!\[redacted )[^\s\"'\\&]{8,}+)", TOKEN),
        # kubeadm prints it on a line of its own. Source: kubeadm's cmd/phases/init/uploadcerts.go
        ("certificate key|certificate-key|certificatekey",
         rf"{_any_case('ertificate')}[- _]?{_any_case('key')}:?{_BREAK}{{1,4}}"
         r"(?P<secret>[0-9a-f]{32,128}+)", TOKEN),
        ("private-lines", rf"Private-Lines: \d{{1,4}}(?P<secret>(?:{_BREAK}++{_BASE64}{{8,}}+)++)", KEY),
        ("ipmitool", rf"\bipmitool\b[^\n]{{0,300}}?[\s\"'\\,]-P[\"'\\,= \t]{{0,10}}{_ARGUMENT}", PASSWORD),
        ("racadm", rf"\bracadm\b[^\n]{{0,300}}?[\s\"'\\,]-p{_APART}{_ARGUMENT}", PASSWORD),
        ("fence_", rf"\bfence_\w{{1,40}}\b[^\n]{{0,300}}?[\s\"'\\,]-p{_APART}{_ARGUMENT}", PASSWORD),
        ("sshpass", rf"\bsshpass{_APART}-p[\"'\\,= \t]{{0,10}}{_ARGUMENT}", PASSWORD),
        ("-u|-user",
         rf"[\s\"'](?:-u|--user|--proxy-user){_APART}[^\s:\"'\\]{{0,64}}:(?!\d+\b){_ARGUMENT}", PASSWORD),
        ("passw",
         rf"{_any_case('passw')}(?:{_any_case('or')})?{_any_case('d')}\s(?:for|of)\s[^\s:]{{1,64}}"
         rf"(?: ?[:=]| is) ?{_QUOTES}{_ARGUMENT}", PASSWORD),
        ("@", r"://[^\s/:@\"'\\\[]{0,64}:(?P<secret>(?!\[redacted )[^\s/@\"'\\\[]{1,256})@", PASSWORD),
    )
)  # fmt: skip


def text(raw: str) -> str:
    """Return the text without private keys, certificates, tokens and passwords.

    A secret without a recognizable form or name, such as a chosen word, cannot be detected.
    """
    return _text(raw, _environment_secrets(tuple(os.environ.items())))


def value(raw: Json) -> Json:
    """Return JSON data with every string redacted, including strings that are secrets by their key."""
    return _value(raw, _environment_secrets(tuple(os.environ.items())))


def is_suspect(line: str) -> bool:
    """Return whether a line of JSON may contain a secret, as a fast test before redaction."""
    # Each pod has this field twice, with the value true or false.
    lower = line.lower().replace("automountserviceaccounttoken", "")
    return any(literal in lower for literal in _ALL_LITERALS) or any(
        json.dumps(secret)[1:-1] in line for secret in _environment_secrets(tuple(os.environ.items()))
    )


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret: `DB_PASSWORD`, `X-Auth-Token`, `client_secret`.

    Names for a secret's file or lifetime, or for a reference to a Secret, are not.
    """
    return any(map(_names_secret, _NAMES.finditer(name)))


def _text(raw: str, secrets_of_process: Collection[str]) -> str:
    for secret in secrets_of_process:
        if secret in raw:
            raw = raw.replace(secret, _mark(TOKEN, secret))
    lower = raw.lower()
    if len(raw) < _SHORT and not _ANY_LITERAL.search(lower):
        return raw
    for literals, clean in _CLEANERS:
        if any(literal in lower for literal in literals):
            raw = clean(raw)
    return raw


def _value(raw: Json, secrets_of_process: Collection[str]) -> Json:
    if isinstance(raw, str):
        return _text(raw, secrets_of_process)
    if isinstance(raw, Mapping):
        # An environment variable of a pod has its name in another field than its value.
        variable_name = str(raw.get("name", ""))
        return {
            _value(key, secrets_of_process): _named_value(
                variable_name if key == "value" else str(key), part, secrets_of_process
            )
            for key, part in raw.items()
        }
    if isinstance(raw, list | tuple):
        words = [part if isinstance(part, str) else "" for part in raw]
        before = ["", *words[:-1]]
        return [
            _named_value(_option_name(option, words), part, secrets_of_process)
            for option, part in zip(before, raw, strict=False)
        ]
    return raw


def _named_value(name: str, raw: Json, secrets_of_process: Collection[str]) -> Json:
    """Redact a value that has a name, or follows an option."""
    if is_secret_name(name):
        if isinstance(raw, str) and _is_secret(name, raw):
            return _mark(_kind(name), raw)
        if isinstance(raw, int | float) and not isinstance(raw, bool) and _kind(name) == PASSWORD:
            return _mark(PASSWORD, str(raw))
        if isinstance(raw, list | tuple):
            return [_named_value(name, part, secrets_of_process) for part in raw]
        if isinstance(raw, Mapping) and "value" in raw:
            part = _named_value(name, raw["value"], secrets_of_process)
            return {**_value(raw, secrets_of_process), "value": part}
    return _value(raw, secrets_of_process)


def _option_name(option: str, words: Collection[str]) -> str:
    """Return the name of a command-line option for the argument after it."""
    programs = {word.rpartition("/")[2] for word in words}
    for program, short in _PASSWORD_OPTIONS:
        if option == short and any(name.startswith(program) for name in programs):
            return "password"
    return option.removeprefix("--") if option.startswith("--") and "=" not in option else ""


@lru_cache(maxsize=4)
def _environment_secrets(environment: tuple[tuple[str, str], ...]) -> Sequence[str]:
    """Return the secrets in the environment of this process, longest first."""
    values = {
        content
        for name, content in environment
        if len(content) >= _LEAST_OF_ENVIRONMENT and is_secret_name(name) and _is_secret(name, content)
    }
    return sorted(values, key=len, reverse=True)


def _mark(kind: str, secret: str) -> str:
    """Return the replacement of a secret."""
    secret_bytes = secret.encode(errors="surrogatepass")
    return f"{kind} {hashlib.blake2s(secret_bytes, key=_DIGEST_KEY, digest_size=_DIGEST_BYTES).hexdigest()}]"


def _kind(name: str) -> str:
    return PASSWORD if any(word in name.lower() for word in _PASSWORD_WORDS) else TOKEN


def _names_secret(match: re.Match[str]) -> bool:
    """Return whether a name with one of the words belongs to a secret; `secret: a-name` is a reference."""
    if _HARMLESS.search(match["tail"]):
        return False
    is_all = match.start("name") == 0 or not re.match(r"[\w.-]", match.string[match.start("name") - 1])
    return not (is_all and match["name"].lower() in ("secret", "secrets"))


def _is_secret(name: str, content: str) -> bool:
    """Return whether a value is a secret, given the name of a secret."""
    if _NO_SECRET.fullmatch(content):
        return False
    if _kind(name) == PASSWORD:
        return True
    return bool(_LIKE_TOKEN.fullmatch(content)) and not _NUMBER.fullmatch(content)


def _is_bare_secret(match: re.Match[str], content: str) -> bool:
    """Return whether an unquoted value is a secret, rather than the next word of a sentence."""
    if not _is_secret(match["name"], content):
        return False
    if _kind(match["name"]) == PASSWORD:
        return len(content) > 1
    if "=" in match["sign"]:
        return True
    if any(c.isdigit() for c in content) or ":" not in match["sign"]:
        return len(content) >= _SHORTEST_WITH_DIGIT
    follows = match.string[match.end() : match.end() + 1]
    return len(content) >= _SHORTEST_WORD and follows in ("", "\n", "\r", '"', "'", "\\")


def _without_pem(raw: str) -> str:
    return _PEM.sub(lambda match: _mark(KEY if match["key"] else CERTIFICATE, match[0]), raw)


def _without_key_ends(raw: str) -> str:
    """Redact the rest of keys whose start was cut off."""

    def parts() -> Iterator[str]:
        previous_end = 0
        for end in _END.finditer(raw):
            preceding = raw[max(previous_end, end.start() - LONGEST_KEY) : end.start()]
            of_key = _BEFORE_END.match(preceding[::-1])
            begin = end.start() - (of_key.end() if of_key else 0)
            yield raw[previous_end:begin]
            yield _mark(KEY, raw[begin : end.end()])
            previous_end = end.end()
        yield raw[previous_end:]

    return "".join(parts())


def _without_jwt(raw: str) -> str:
    """Redact JWTs.

    A JWT may start anywhere in a run of letters (after an escaped line break, for example). If none starts at
    the first candidate, none starts in the rest of that run.
    """

    def parts() -> Iterator[str]:
        previous_end, at = 0, raw.find("eyJ")
        while at >= 0:
            match = _JWT.match(raw, at)
            if match:
                yield raw[previous_end:at]
                yield _mark(TOKEN, match[0])
                previous_end = match.end()
            run = _RUN.match(raw, at)
            at = raw.find("eyJ", match.end() if match else run.end() if run else at + 1)
        yield raw[previous_end:]

    return "".join(parts())


def _without_named(raw: str) -> str:
    """Redact the values that follow names of secrets."""
    return "".join(_parts_without_secrets(raw, _word_places(raw), _match_assignment))


def _word_places(raw: str) -> list[int]:
    """Return the positions of words for secrets, faster than a pattern for all of them."""
    # The only letter whose lower case is longer would shift all later positions.
    lower, places = raw.replace("\u0130", "i").lower(), []
    for literal in _NAME_LITERALS:
        at = lower.find(literal)
        while at >= 0:
            places.append(at)
            at = lower.find(literal, at + 1)
    return sorted(places)


def _match_assignment(raw: str, at: int) -> re.Match[str] | None:
    """Match a name with its value at a position, also as a program's option with its argument."""
    if _BLOCK.match(raw, at):
        return _block(_column(raw, at)).match(raw, at)
    if assignment := _ASSIGNED.match(raw, at):
        return assignment
    if _TAG.search(raw[max(0, at - _LONGEST_TAG) : at]):
        return _ELEMENT.match(raw, at) or _ATTRIBUTE.match(raw, at)
    is_option = _OPTION.search(raw[max(0, at - _LONGEST_OPTION - 2) : at])
    return _AFTER_OPTION.match(raw, at) if is_option else None


def _column(raw: str, at: int) -> int:
    """Return the column of the key of YAML that contains a position; 0 if other text precedes it."""
    start = _KEY_START.search(raw[max(0, at - _LONGEST_KEY_START) : at])
    return len(start["indent"]) if start else 0


@lru_cache(maxsize=256)
def _block(column: int) -> re.Pattern[str]:
    """Return a pattern for a block scalar: the lines indented more than its key.

    In a JSON string, line breaks have as many backslashes as an escaped quote at least has.
    """
    indent = rf"[ \t]{{{column + 1},}}+"
    line, end = r"\r?\n(?:[ \t\r]*+\n)*+", r"(?:(?P=slashes)r)?(?P=slashes)n"
    escaped = rf"{end}(?:[ \t]*+{end})*+"
    content = rf"(?:[^\\\n\"]|(?!{end})(?P=slashes)\\*+\"?)*+"
    return re.compile(
        rf"{_BLOCK_HEAD}(?:"
        rf"{line}{indent}(?P<block>[^\n]*+(?:{line}{indent}[^\n]*+)*+)|"
        rf"(?=(?P<slashes>\\{{1,15}}+)[rn]){escaped}{indent}(?P<escaped>{content}(?:{escaped}{indent}{content})*+))"
    )


def _parts_without_secrets(raw: str, places: Iterable[int], match: Match) -> Iterator[str]:
    """Yield the parts of a text with the secrets at these positions replaced; nested secrets count once."""
    previous_end = 0
    for at in places:
        secret_match = match(raw, at) if at >= previous_end else None
        place = _secret_place(secret_match) if secret_match and _names_secret(secret_match) else None
        if secret_match and place:
            begin, end, quote = place
            yield raw[previous_end:begin]
            yield f"{quote}{_mark(_kind(secret_match['name']), raw[begin:end])}{quote}"
            previous_end = end
    yield raw[previous_end:]


def _pair_cleaner(pattern: re.Pattern[str]) -> Callable[[str], str]:
    """Return a function that redacts environment variables that are secrets by their names."""

    def clean(raw: str) -> str:
        return "".join(_parts_without_secrets(raw, map(re.Match.start, pattern.finditer(raw)), pattern.match))

    return clean


def _secret_place(match: re.Match[str]) -> tuple[int, int, str] | None:
    """Return the position of a match's secret and the quote for its replacement, or None without a secret."""
    groups = match.groupdict()
    for group in ("block", "escaped"):
        if (content := groups.get(group)) is not None:
            is_secret = _is_secret(match["name"], "".join(content.split()))
            return (*match.span(group), "") if is_secret else None
    if groups.get("bare") is None:
        return (*match.span("quoted"), "") if _is_secret(match["name"], match["quoted"]) else None
    content, begin = match["bare"], match.start("bare")
    if end_quote := groups.get("end"):
        # In JSON, a string replaces a number; null, true, a list and an object are not secrets.
        number = _NUMBER.match(content)
        if number and content[number.end() :][:1] in ("", *",}]"):
            is_pin = _kind(match["name"]) == PASSWORD
            return (begin, begin + number.end(), end_quote) if is_pin else None
        if content[0] in "[{":
            return None
    return (begin, match.end("bare"), "") if _is_bare_secret(match, content) else None


def _form_cleaner(pattern: re.Pattern[str], kind: str) -> Callable[[str], str]:
    """Return a function that redacts text in the form of a secret."""

    def clean(match: re.Match[str]) -> str:
        (begin, end), start = match.span("secret"), match.start()
        return f"{match[0][: begin - start]}{_mark(kind, match['secret'])}{match[0][end - start :]}"

    return lambda raw: pattern.sub(clean, raw)


_CLEANERS: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("-----begin ",), _without_pem),
    (("-----end ",), _without_key_ends),
    (("eyj",), _without_jwt),
    *((literals, _form_cleaner(pattern, kind)) for literals, pattern, kind in _BY_FORM),
    *((_NAME_LITERALS, _pair_cleaner(pattern)) for pattern in (_PAIR, _PAIR_OF_LINES, _PAIR_OF_ATTRIBUTES)),
    (_NAME_LITERALS, _without_named),
)
_ALL_LITERALS = tuple(dict.fromkeys(literal for literals, _clean in _CLEANERS for literal in literals))
_ANY_LITERAL = re.compile("|".join(map(re.escape, _ALL_LITERALS)))
_SHORT = 1024
"""Length (characters) below which one pattern is faster than a search for each literal."""
