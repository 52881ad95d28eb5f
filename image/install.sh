#!/bin/bash
# Puts storage-selftest into an image that another tool made:
#
#   image/install.sh ROOT|IMAGE.img [PACKAGE.deb]
#
# ROOT is a mounted root file system, IMAGE.img a whole disk or one file system.
# Without PACKAGE it is the one in dist/ for the root's architecture. dpkg
# installs it where the root's programs can run here (binfmt for a foreign one),
# otherwise it is unpacked. What the root's presets say is enabled.
set -euo pipefail
export LC_ALL=C

say() { echo "install: $*"; }
die() { echo "install: $*" >&2; exit 1; }

case $# in
1 | 2) ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac
[ "$(id -u)" = 0 ] || die "must be root: it mounts"
# Whatever is mounted is mounted for this process alone, so that nothing stays
# mounted, and no loop device, however it ends.
[ -n "${INSTALL_ALONE:-}" ] || INSTALL_ALONE=yes exec unshare --mount "$0" "$@"

target=$1 package=${2:-}
here=$(cd "$(dirname "$0")/.." && pwd)

is_root() { [ -e "$1/etc/os-release" ] || [ -e "$1/usr/lib/os-release" ]; }

# The partition with an operating system, by its offset; the whole file where
# there is no table.
mount_image() { # IMAGE DIR
    local start sectors
    while read -r start sectors; do
        mount -o "loop,offset=$((start * 512)),sizelimit=$((sectors * 512))" "$1" "$2" 2>/dev/null || continue
        ! is_root "$2" || { say "$1: root at offset $((start * 512))"; return; }
        umount "$2"
    done < <({ partx --raw --noheadings --output START,SECTORS "$1" 2>/dev/null ||
        echo "0 $(($(stat -c %s "$1") / 512))"; } | sort -k2nr)
    die "$1: no partition of it has a root file system"
}

# Debian's name of what a root's programs are made for: ELF's e_machine.
architecture() { # ROOT
    local program
    for program in usr/bin/dpkg usr/bin/env bin/busybox; do
        if [ ! -f "$1/$program" ] || [ -L "$1/$program" ]; then continue; fi
        case $(od -An -tu2 -j18 -N2 "$1/$program" | tr -d ' ') in
        183) echo arm64 ;;
        40) echo armhf ;;
        62) echo amd64 ;;
        *) die "$1: no package for this architecture" ;;
        esac
        return
    done
    die "$1: has no program by which to tell its architecture"
}

has_dpkg() { [ -e "$1/var/lib/dpkg/status" ] && chroot "$1" /usr/bin/dpkg --version >/dev/null 2>&1; }

# The root's own dpkg: this machine's takes no package for another architecture.
by_dpkg() { # ROOT PACKAGE
    mount --bind /dev "$1/dev" # maintainer scripts write to /dev/null
    mount -t tmpfs tmpfs "$1/tmp"
    cp "$2" "$1/tmp/package.deb"
    DEBIAN_FRONTEND=noninteractive chroot "$1" dpkg --force-confold -i /tmp/package.deb >/dev/null
    umount "$1/tmp" "$1/dev"
}

unpack() { # ROOT PACKAGE
    local keep=()
    [ ! -e "$1/etc/storage-selftest.toml" ] || keep=(--exclude=./etc/storage-selftest.toml)
    dpkg-deb --fsys-tarfile "$2" | tar -x -C "$1" --keep-directory-symlink "${keep[@]}"
}

root=$target
if [ ! -d "$target" ]; then
    [ -f "$target" ] || die "$target: neither a directory nor an image"
    root=$(mktemp -d)
    trap 'umount -R "$root" 2>/dev/null; rmdir "$root"' EXIT
    mount_image "$target" "$root"
fi
is_root "$root" || die "$root: no etc/os-release, so not a root file system"
arch=$(architecture "$root")
[ -z "$package" ] || [ -f "$package" ] || die "$package: no such file"
[ -n "$package" ] || package=$(find "$here/dist" -name "storage-selftest_*_$arch.deb" | sort -V | tail -n1)
[ -n "$package" ] || die "no package for $arch: make deb"

if has_dpkg "$root"; then
    by_dpkg "$root" "$package"
    how="installed by dpkg"
else
    unpack "$root" "$package"
    how=unpacked
fi
# Enabled by preset; without systemd here by its own at the first boot.
command -v systemctl >/dev/null || { say "$target: ${package##*/} $how"; exit 0; }
systemctl --root="$root" preset storage-selftest.timer storage-selftest-routine.timer 2>/dev/null
say "$target: ${package##*/} $how; $(systemctl --root="$root" is-enabled storage-selftest.timer || true)"
