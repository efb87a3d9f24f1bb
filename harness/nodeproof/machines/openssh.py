"""Commands as root over ssh(1), by the user's ssh_config, agent and jump hosts, with strict host keys."""

from __future__ import annotations

import contextlib
import glob
import re
import shlex
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.machines.machine import CommandResult, MachineError

CONNECT_TIMEOUT_S = 10
_SLACK_S = 5.0
"""How long timeout(1) may take to end its processes (s)."""
_STATUS = re.compile(r"\d+$", re.MULTILINE)
_TIMED_OUT = 124
"""The exit status of timeout(1) after a time-out."""
# The status goes to stderr behind a token: ssh, sudo and a command all may exit with 1 or 255.
# The variable shows where SSH comes from; sudo would remove it.
_AS_ROOT = """
[ "$(id -u)" = 0 ] || exec sudo -n -- env SSH_CONNECTION="$SSH_CONNECTION" sh -c "$1" sh "$@"
token=$2; shift 2
"$@"
printf '%s %s\\n' "$token" "$?" >&2
"""
# OpenSSH uses the first value of an option, and passes the file on to the ssh of a jump host. A shared
# connection may have been opened with other options, so none is used.
_STRICT = """\
StrictHostKeyChecking yes
UserKnownHostsFile "{known_hosts}"
GlobalKnownHostsFile /dev/null
KnownHostsCommand none
VerifyHostKeyDNS no
NoHostAuthenticationForLocalhost no
UpdateHostKeys no
BatchMode yes
ConnectTimeout {timeout_s}
ServerAliveInterval 5
ServerAliveCountMax 3
ControlMaster no
ControlPath none
ClearAllForwardings yes
ForwardAgent no
PermitLocalCommand no
RemoteCommand none
RequestTTY no
LogLevel ERROR
{hosts}Host *
Include "{config}"
"""


@dataclass(frozen=True)
class OpenSsh:
    """A host by its name in an ssh_config; `config` is a file of `strict_config`."""

    host: str
    config: Path

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command as root, by `sudo -n` if the user is another one.

        Raises:
            MachineError: ssh or sudo fails, or the command does not end within `timeout_s`.
        """
        token = uuid.uuid4().hex
        command = shlex.join(["sh", "-c", _AS_ROOT, "sh", _AS_ROOT, token, *argv])
        # timeout(1) ends the processes of a ProxyCommand, too, which would hold the output open.
        local = ["timeout", f"{timeout_s:g}", "ssh", "-T", "-F", str(self.config), "--", self.host, command]
        try:
            completed = proc.run(local, timeout_s=timeout_s + _SLACK_S, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(f"{self.host}: ssh: {error.output.strip() or 'no answer'}") from error
        stderr, _token, end = completed.stderr.rpartition(f"{token} ")
        # A ProxyCommand may report its own end on stderr, too.
        status = _STATUS.match(end) if _token else None
        if status is None:
            # The last line alone may be about the connection to a jump host that ended.
            reason = (
                "; ".join(completed.stderr.split("\n")[-3:]).strip("; \r") or f"status {completed.status}"
            )
            if completed.status == _TIMED_OUT:
                reason = f"{argv[0]}: no end within {timeout_s:g} s"
            raise MachineError(f"{self.host}: ssh: {reason}")
        return CommandResult(int(status[0]), completed.stdout, stderr)


@contextlib.contextmanager
def strict_config(config: Path, known_hosts: Path, hosts: str = "") -> Iterator[Path]:
    """Write a configuration that reads `config`, and accepts no host key but those of `known_hosts`.

    A jump host's key must be there, too. The `Host` blocks of `hosts` have priority over `config`.
    """
    content = _STRICT.format(
        timeout_s=CONNECT_TIMEOUT_S,
        known_hosts=str(known_hosts.absolute()).replace("%", "%%"),
        # Include expands patterns.
        config=glob.escape(str(config.absolute())),
        hosts=hosts,
    )
    with tempfile.TemporaryDirectory(prefix="nodeproof-ssh-") as folder:
        path = Path(folder) / "config"
        path.write_text(content)
        yield path
