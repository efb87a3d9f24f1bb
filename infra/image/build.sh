#!/usr/bin/env bash
# Builds the guest: build.sh KUBELET FOLDER puts vmlinuz, initrd.img, disk.qcow2 and packages.txt into FOLDER.
# Debian 13 from the mirror that apt uses here (or $NODEPROOF_DEBIAN_MIRROR). Needs root; starts no service.
set -euo pipefail
umask 022

suite=trixie
disk_size=8G
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
here=$(cd "$(dirname "$0")" && pwd)
kubelet=${1:?kubelet executable}
out=${2:?folder}
work=$out/work
root=$work/root

say() { printf 'image: %s\n' "$*"; }
refuse() { say "$1; $2" >&2; exit 2; }

# The place of `label`'s packages, as apt on this machine knows it.
place() {
    # shellcheck disable=SC2016  # these are apt's variables
    apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(REPO_URI)' |
        awk -F '|' -v label="$1" '$1 == "Packages" && $2 == "Debian" && $3 == label && !found { print $4; found = 1 }'
}

sources() {
    local main security
    main=${NODEPROOF_DEBIAN_MIRROR:-$(place Debian)}
    security=${NODEPROOF_DEBIAN_SECURITY_MIRROR:-$(place Debian-Security)}
    [ -n "$main" ] || refuse "apt knows no mirror of Debian here" "set NODEPROOF_DEBIAN_MIRROR"
    echo "deb $main $suite main"
    echo "deb $main $suite-updates main"
    [ -z "$security" ] || echo "deb $security $suite-security main"
}

# How this machine's apt reaches its mirrors (proxies, time-outs).
apt_access() { apt-config dump | grep -iE '^Acquire::(https?|retries)(::| )' | grep -v '""' || true; }

bootstrap() {
    local include
    include=$(grep -v '^#' "$here/packages.txt" | paste -sd,)
    apt_access >"$work/apt.conf"
    sources >"$work/sources.list"
    mmdebstrap --quiet --mode=root --variant=minbase --include="$include" --keyring="$keyring" \
        --aptopt="$work/apt.conf" \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/lib/x86_64-linux-gnu/libLLVM*' \
        --dpkgopt='path-exclude=/usr/lib/x86_64-linux-gnu/libgallium*' \
        --dpkgopt='force-confold' \
        --dpkgopt='force-unsafe-io' \
        --essential-hook="copy-in '$here/files/etc/initramfs-tools' /etc" \
        "$suite" "$root" - <"$work/sources.list"
}

# A docker archive with busybox as its only layer: archive NAME ENTRYPOINT (as JSON).
archive() {
    local folder=$work/archive-$1 layer config
    mkdir -p "$folder"
    cp "$work/layer.tar" "$folder/layer.tar"
    layer=$(sha256sum "$folder/layer.tar" | cut -d' ' -f1)
    printf '{"architecture":"amd64","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Env":["PATH=/bin"],%s},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "\"Entrypoint\":$2" "$layer" >"$folder/config.json"
    config=$(sha256sum "$folder/config.json" | cut -d' ' -f1)
    mv "$folder/config.json" "$folder/$config.json"
    printf '[{"Config":"%s.json","RepoTags":["nodeproof.local/%s:1"],"Layers":["layer.tar"]}]' "$config" "$1" \
        >"$folder/manifest.json"
    packed "$folder" "$root/usr/share/nodeproof/images/$1.tar"
}

packed() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$2" .; }

images() {
    local layer=$work/layer applet
    mkdir -p "$layer/bin" "$layer/etc" "$layer/tmp" "$layer/root" "$root/usr/share/nodeproof/images"
    chmod 1777 "$layer/tmp"
    install -m 755 "$root/usr/bin/busybox" "$layer/bin/busybox"
    for applet in $("$layer/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$layer/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$layer/etc/passwd"
    echo 'root:x:0:' >"$layer/etc/group"
    packed "$layer" "$work/layer.tar"
    archive busybox '["/bin/sh"]'
    # The first process of a container ignores a signal that it does not handle.
    archive pause '["/bin/sh","-c","trap \"exit 0\" TERM INT; sleep 2000000000 \u0026 wait"]'
}

units() {
    in_guest systemctl --quiet disable ssh.service ssh.socket
    in_guest systemctl --quiet enable systemd-networkd.service containerd.service \
        nodeproof-track.service nodeproof-images.service nodeproof-settled.service
    in_guest systemctl --quiet mask getty@tty1.service serial-getty@ttyS0.service \
        apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        systemd-networkd-wait-online.service
    # What these would load or mount no guest needs, and each costs seconds under emulation.
    in_guest systemctl --quiet mask modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service \
        modprobe@fuse.service modprobe@dm_mod.service modprobe@loop.service systemd-pstore.service \
        sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
        systemd-network-generator.service systemd-udev-load-credentials.service
    in_guest systemctl --quiet set-default multi-user.target
    local generator
    mkdir -p "$root/etc/systemd/system-generators"
    for generator in "$root"/usr/lib/systemd/system-generators/*; do
        [ "${generator##*/}" = systemd-fstab-generator ] ||
            ln -s /dev/null "$root/etc/systemd/system-generators/${generator##*/}"
    done
}

# Its warnings (systemctl misses /proc) are shown only when it fails.
in_guest() {
    chroot "$root" "$@" 2>"$work/said" || { cat "$work/said" >&2; return 1; }
}

customize() {
    cp -r "$here/files/." "$root/"
    install -m 755 "$kubelet" "$root/usr/local/bin/kubelet"
    images
    units
    rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/apt/apt.conf.d/99mmdebstrap"
    rm -rf "$root"/etc/apt/sources.list* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
    install -d -m 700 "$root/root/.ssh" "$root/etc/kubernetes"
    install -d -m 755 "$root/var/log/journal" "$root/var/lib/nodeproof"
    # Valid, so that no boot is a "first boot"; the seed brings each node's own.
    echo 6e6f646570726f6f662d696d61676500 >"$root/etc/machine-id"
    rm -f "$root/var/lib/dbus/machine-id"
    echo nodeproof >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 nodeproof\n' >"$root/etc/hosts"
    : >"$root/etc/resolv.conf"
    echo 'LABEL=NPROOT / ext4 rw,noatime 0 0' >"$root/etc/fstab"
    # Nothing to bring up to date at boot.
    touch "$root/etc/.updated" "$root/var/.updated"
}

disk() {
    # shellcheck disable=SC2016  # these are dpkg-query's variables
    chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' >"$out/packages.txt"
    cp "$root"/boot/vmlinuz-* "$out/vmlinuz"
    cp "$root"/boot/initrd.img-* "$out/initrd.img"
    rm -rf "${root:?}"/boot/* "$root"/vmlinuz* "$root"/initrd.img*
    mke2fs -q -t ext4 -L NPROOT -m 0 -i 65536 -O '^metadata_csum' -E lazy_itable_init=0,lazy_journal_init=0 \
        -d "$root" "$work/disk.raw" "$disk_size"
    qemu-img convert -f raw -O qcow2 "$work/disk.raw" "$out/disk.qcow2"
}

[ "$(id -u)" -eq 0 ] || refuse "building an image needs root" "run it with sudo"
[ -r "$keyring" ] || refuse "$keyring is missing" "install debian-archive-keyring"
mkdir -p "$work"
say "installing Debian $suite"
bootstrap
say "adding the kubelet, units and container images"
customize
say "making the disk"
disk
rm -rf "$work"
chown --reference="$out" "$out"/*
say "done after $SECONDS s"
