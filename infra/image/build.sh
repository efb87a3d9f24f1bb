#!/usr/bin/env bash
# Builds the guest: build.sh KUBELET FOLDER [KUBEADM] puts vmlinuz, initrd.img, disk.qcow2 and packages.txt into FOLDER.
# KUBEADM is a folder with executables of a cluster by name, and images.txt, the names of its container images.
# Debian 13 from the mirror that apt uses here (or $NODEPROOF_DEBIAN_MIRROR). Needs root; starts no service.
set -euo pipefail
umask 022

suite=trixie
disk_size=8G
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
here=$(cd "$(dirname "$0")" && pwd)
kubelet=${1:?kubelet executable}
out=${2:?folder}
kubeadm=${3:-}
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
    include=$(grep -v '^#' "$here/packages.txt" | paste -sd,)${kubeadm:+,sudo}
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

# Adds an image to the archive in a folder: image FOLDER NAME ENTRYPOINT (as JSON) LAYER...
image() {
    local folder=$1 name=$2 entrypoint=$3 layer digest config layers="" digests=""
    shift 3
    mkdir -p "$folder"
    for layer; do
        digest=$(sha256sum "$layer" | cut -d' ' -f1)
        ln -f "$layer" "$folder/$digest.tar"
        layers+=${layers:+,}\"$digest.tar\"
        digests+=${digests:+,}\"sha256:$digest\"
    done
    printf '{"architecture":"amd64","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Env":["PATH=/usr/local/bin:/usr/sbin:/bin"],%s},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
        "\"Entrypoint\":$entrypoint" "$digests" >"$folder/config.json"
    config=$(sha256sum "$folder/config.json" | cut -d' ' -f1)
    mv "$folder/config.json" "$folder/$config.json"
    printf '{"Config":"%s.json","RepoTags":["%s"],"Layers":[%s]}\n' "$config" "$name" "$layers" >>"$folder/images"
}

# Writes the archive of a folder's images, which is imported at the first boot.
archive() {
    printf '[%s]' "$(paste -sd, "$1/images")" >"$1/manifest.json"
    rm "$1/images"
    packed "$1" "$root/usr/share/nodeproof/images/${1##*/}.tar"
}

packed() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$2" .; }

# The first process of a container ignores a signal that it does not handle.
pause='["/bin/sh","-c","trap \"exit 0\" TERM INT; sleep 2000000000 \u0026 wait"]'

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
    image "$work/nodeproof" nodeproof.local/busybox:1 '["/bin/sh"]' "$work/layer.tar"
    image "$work/nodeproof" nodeproof.local/pause:1 "$pause" "$work/layer.tar"
    archive "$work/nodeproof"
}

# Installs executables of the cluster below a folder; several names of one file become links.
executables() {
    local folder=$1 name file
    shift
    mkdir -p "$folder"
    for name; do
        file=$(readlink -f "$kubeadm/$name")
        [ -e "$folder/${file##*/}" ] || install -m 755 "$file" "$folder/${file##*/}"
        [ -e "$folder/$name" ] || ln -s "${file##*/}" "$folder/$name"
    done
}

# A layer with programs of the guest and the libraries that they load: programs LAYER PROGRAM...
programs() {
    local layer=$1 libraries
    shift
    libraries=$(in_guest ldd "$@" | grep -o '/[^ ]*\.so[^ ]*' | sort -u)
    # shellcheck disable=SC2086  # these are many
    in_guest tar -C / -chf - --sort=name --mtime=@0 -P "$@" $libraries /usr/lib/x86_64-linux-gnu/xtables >"$layer"
}

# What a machine of a kubeadm cluster has more.
cluster() {
    rm "$root/usr/local/bin/kubelet"
    executables "$root/usr/local/bin" kubelet kubeadm kubectl
    cp -r "$here/kubeadm/." "$root/"
    # Its owner's account; sshd takes a password that begins with ! for a locked account.
    in_guest useradd --create-home --shell /bin/bash --password '*' admin
    chmod 440 "$root/etc/sudoers.d/admin"
    cluster_images
}

cluster_images() {
    local layers=$work/cluster-layers name
    executables "$layers/kubernetes/usr/local/bin" \
        etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler
    mkdir -p "$layers/kubernetes/tmp"
    chmod 1777 "$layers/kubernetes/tmp"
    executables "$layers/coredns" coredns
    programs "$layers/iptables.tar" /usr/sbin/iptables /usr/sbin/iptables-save /usr/sbin/iptables-restore \
        /usr/sbin/ip6tables /usr/sbin/ip6tables-save /usr/sbin/ip6tables-restore /usr/sbin/nft
    for name in kubernetes coredns; do
        packed "$layers/$name" "$layers/$name.tar"
    done
    while read -r name; do
        case $name in
            */coredns:*) image "$work/cluster" "$name" '["/coredns"]' "$layers/coredns.tar" ;;
            */pause:*) image "$work/cluster" "$name" "$pause" "$work/layer.tar" ;;
            */kube-proxy:*) image "$work/cluster" "$name" '["kube-proxy"]' "$layers/kubernetes.tar" "$layers/iptables.tar" ;;
            *) image "$work/cluster" "$name" '[]' "$layers/kubernetes.tar" ;;
        esac
    done <"$kubeadm/images.txt"
    archive "$work/cluster"
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
    chroot "$root" "$@" 2>"$work/errors" || { cat "$work/errors" >&2; return 1; }
}

customize() {
    cp -r "$here/files/." "$root/"
    install -m 755 "$kubelet" "$root/usr/local/bin/kubelet"
    images
    [ -z "$kubeadm" ] || cluster
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
    # kubeadm's preflight checks read config-*.
    rm -rf "${root:?}"/boot/{vmlinuz,initrd.img,System.map}-* "$root"/vmlinuz* "$root"/initrd.img*
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
