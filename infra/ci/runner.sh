#!/usr/bin/env bash
# What virtual machines need of a runner of GitHub's, which is Ubuntu: a place to get Debian from, as the guests are
# Debian, the keyring to check it by, and KVM for the user of the job. `runner.sh FOLDER` looks below another root.
set -euo pipefail

root=${1:-}
keyring=$root/usr/share/keyrings/debian-archive-keyring.gpg
device=$root/dev/kvm
rules=$root/etc/udev/rules.d/99-nodeproof-kvm.rules

say() { printf 'nodeproof: %s\n' "$*" >&2; }
refuse() { say "$1 (runner); $2"; exit 2; }

knows_debian() {
    # shellcheck disable=SC2016  # these are apt's variables
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)' | grep -xF 'Debian|Debian' >/dev/null
}

mirror() {
    [ -n "${NODEPROOF_DEBIAN_MIRROR:-}" ] || knows_debian ||
        refuse "apt knows no mirror of Debian here, and the guests are Debian" \
            "name one in the repository's variable NODEPROOF_DEBIAN_MIRROR (docs/how-to/run-at-night.md)"
}

keys() {
    [ ! -r "$keyring" ] || return 0
    sudo apt-get -qq update
    sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install debian-archive-keyring >/dev/null
}

# A rule, as packages that are installed later let udev set what a `chmod` gave.
kvm() {
    if [ ! -e "$device" ]; then
        say "there is no $device: guests are emulated, which takes several times as long"
    elif [ "$(stat -c %a "$device")" != 666 ]; then
        echo 'KERNEL=="kvm", GROUP="kvm", MODE="0666", OPTIONS+="static_node=kvm"' | sudo tee "$rules" >/dev/null
        sudo udevadm control --reload-rules
        sudo udevadm trigger --settle --name-match=kvm
    fi
}

mirror
keys
kvm
