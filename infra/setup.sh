#!/usr/bin/env bash
# Set-up: OS packages, virtual environment, sshd for the lab's nodes, enough inotify instances. What is done already costs a look.
# No service is started: sshd is unpacked from its package, never installed; on Fedora it is installed and disabled.
# `setup.sh libvirt` installs what labs of virtual machines need as well, `setup.sh vagrant` also the Vagrantfile's.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
venv="$top/.venv"
python=${PYTHON:-python3}
cache="${XDG_CACHE_HOME:-$HOME/.cache}/nodeproof"
packages="$top/infra/packages.txt"
release=${OS_RELEASE:-/etc/os-release}

say() { printf 'nodeproof: %s\n' "$*" >&2; }
refuse() { say "$1 (set-up); $2"; exit 2; }

labs=process
locks=("$top/requirements.lock")
case "${1:-}" in
    '') ;;
    libvirt) labs+=" libvirt"; locks+=("$top/requirements-libvirt.lock") ;;
    vagrant) labs+=" libvirt vagrant"; locks+=("$top/requirements-libvirt.lock") ;;
    *) refuse "unknown kind of lab '$1'" "choose libvirt or vagrant, or give none" ;;
esac

# What each part of the virtual environment is installed from is written beside it.
recipe() { cat "$@" "$top/pyproject.toml" "$0" | sha256sum | cut -c1-16; }
is_from() { [ "$(cat "$venv/.set-up-${1##*/}" 2>/dev/null)" = "$(recipe "$1")" ]; }
all_from_their_locks() {
    local lock
    for lock in "${locks[@]}"; do is_from "$lock" || return 1; done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
    command -v sudo >/dev/null || refuse "installing packages needs root and there is no sudo" "run make setup as root"
    sudo -n true 2>/dev/null || sudo -v || refuse "sudo does not let you" "run make setup as root"
    sudo -- "$@"
}

# The column of packages.txt: that of the distribution, or of one that it is like.
column() {
    local id ids=''
    # shellcheck source=/dev/null
    [ ! -r "$release" ] || ids=$(. "$release" && printf '%s %s' "${ID:-}" "${ID_LIKE:-}")
    for id in $ids; do
        case $id in
            debian) echo 2; return ;;
            ubuntu) echo 3; return ;;
            fedora) echo 4; return ;;
        esac
    done
    echo 5
}

is_installed() {
    case $column in
        2 | 3) dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
        4) rpm -q --quiet --whatprovides "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing_packages() {
    local name
    awk -v labs="$labs" -v column="$column" \
        'labs ~ $1 && $1 != "#" && $column != "-" { print $column }' "$packages" | while read -r name; do
        is_installed "$name" || printf '%s ' "$name"
    done
}

install_packages() {
    local missing install
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    case $column in
        2 | 3) install="apt-get -qq update && apt-get -qq -y --no-install-recommends install $missing" ;;
        4) install="dnf -q -y --setopt=install_weak_deps=False install $missing" ;;
        *) refuse "missing: ${missing% }" "install them with your package manager" ;;
    esac
    say "installing packages: $missing"
    # Services of new packages must not start: invoke-rc.d and systemd both heed this environment.
    as_root env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 RUNLEVEL=1 bash -c "$install" >/dev/null
    # Fedora would start a new sshd at the next boot. A container has no systemctl.
    case $column-$missing in
        4-*openssh-server*) ! command -v systemctl >/dev/null || as_root systemctl disable --quiet sshd.service ;;
    esac
}

# Whether it is the version that apt would install; asked only when apt's lists have changed since.
has_newest_sshd() {
    [ -x "$cache/sshd/usr/sbin/sshd" ] || return 1
    [ /var/lib/apt/lists -nt "$cache/.sshd-compared" ] || return 0
    local newest
    newest=$(LC_ALL=C apt-cache policy openssh-server | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }')
    [ -z "$newest" ] || [ "$(readlink "$cache/sshd")" = "sshd-$newest" ] || return 1
    touch "$cache/.sshd-compared"
}

# A shell of its own: its trap sees its variables, and its folder is not the caller's.
# Each version has a folder of its own, which stays: the sshd of a lab that runs starts itself for each connection.
unpack_sshd() (
    [ -x /usr/sbin/sshd ] && exit 0
    has_newest_sshd && exit 0
    command -v apt-get >/dev/null || refuse "no /usr/sbin/sshd" "install OpenSSH's server; it need not run"
    say "unpacking sshd for the lab's nodes (it is not installed, and no service starts)"
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/sshd.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    apt-get -qq download openssh-server 2>/dev/null || {
        # An older one is better than none on a machine that is offline.
        [ -x "$cache/sshd/usr/sbin/sshd" ] && exit 0
        as_root apt-get -qq update
        apt-get -qq download openssh-server 2>"$work/errors" || refuse "no openssh-server: $(tail -n 1 "$work/errors")" "install it"
    }
    version=$(dpkg-deb -f "$work"/openssh-server_*.deb Version)
    dpkg-deb -x "$work"/openssh-server_*.deb "$work/root"
    mv -T "$work/root" "$cache/sshd-$version" 2>/dev/null || [ -x "$cache/sshd-$version/usr/sbin/sshd" ]
    ln -s "sshd-$version" "$work/link"
    [ -L "$cache/sshd" ] || rm -rf "$cache/sshd"
    mv -T "$work/link" "$cache/sshd"
    touch "$cache/.sshd-compared"
)

# The binding is built against the libvirt of this machine.
missing_binding() { [ "${#locks[@]}" -gt 1 ] && ! "$venv/bin/python" -c 'import libvirt' 2>/dev/null; }

make_venv() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || refuse "Python 3.11 or newer is needed" "set PYTHON"
    say "making the virtual environment from ${locks[*]##*/}"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    local lock
    for lock in "${locks[@]}"; do
        "$venv/bin/pip" install --quiet --require-hashes -r "$lock"
    done
    "$venv/bin/pip" install --quiet --no-deps --no-build-isolation -e "$top"
    for lock in "${locks[@]}"; do
        recipe "$lock" >"$venv/.set-up-${lock##*/}"
    done
}

# A kubelet that finds none free sees no plugin (docs/findings/no-free-inotify-instance.md). Until the next boot;
# who is not root is told by doctor.
enough_inotify() {
    local limit=/proc/sys/fs/inotify/max_user_instances enough=1024
    [ "$(id -u)" -eq 0 ] && [ "$(cat "$limit")" -lt "$enough" ] || return 0
    if echo "$enough" 2>/dev/null >"$limit"; then say "fs.inotify.max_user_instances is $enough now, until the next boot"; fi
}

column=$(column)
if ! all_from_their_locks || [ -n "$(missing_packages)" ] || missing_binding; then
    install_packages
    make_venv
fi
unpack_sshd
enough_inotify
