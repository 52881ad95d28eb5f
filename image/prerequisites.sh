#!/bin/bash
# Installs what a Debian 12 or 13 machine lacks: image/prerequisites.sh [build|dist|test|rig|bare]...
#
#   build  to compile for this machine (the default)
#   dist   to compile for every target
#   test   for `make test`: every target, user emulation, tools to make disks with
#   rig    for `make rig-test`: whole-machine emulation
#   bare   for tests/bare-root.sh
#
# Says what it installs and why; silent when nothing is missing. Without root it
# changes nothing, names the command to run, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

backports=  # set when the packages are to come from Debian 12's backports
packages=()
cargo=$(image/cross-build.sh --cargo || true)

need() { # PACKAGE COMMAND-OR-FILE WHY
    command -v "$2" >/dev/null || [ -e "$2" ] || [[ " ${packages[*]} " == *" $1 "* ]] || {
        [ ${#packages[@]} -gt 0 ] || echo "This machine lacks:"
        printf '  %-18s %s\n' "$1" "$3"
        packages+=("$1")
    }
}

debian_toolchain() {
    # Debian 12's own rustc is 1.63 and 13's 1.85, both too old for us. The
    # -web packages, kept current for browsers, are 1.96 in both. An old
    # rustc-web without the security suite's update counts as missing.
    local why="the Rust compiler" have=/usr/bin/cargo
    [ "$cargo" = $have ] || PATH=/usr/bin:/bin image/cross-build.sh --cargo >/dev/null || have=/nonexistent
    need rustc-web $have "$why"
    need cargo-web $have "its package manager"
}

build() { # ARCH...
    local ways ensurepip=/
    [ -n "$cargo" ] || debian_toolchain
    ways=$(image/cross-build.sh --way "$@")
    case $ways in
    *debian*)
        debian_toolchain
        need rust-web-src /usr/lib/rustlib/src/rust/library "the standard library's source, built for musl"
        [ -e target/cross/venv/bin/pip ] || python3 -c 'import ensurepip' 2>/dev/null || ensurepip=/nonexistent
        need python3-venv $ensurepip "to fetch zig, the cross linker, from PyPI"
        ;;
    esac
    need gcc cc "links what cargo runs on this machine while it builds"
    need libc6-dev /usr/include/stdio.h "for gcc"
}

tests() {
    build x86_64 aarch64 armv6
    case $cargo in
    '' | /usr/bin/*)
        need rustfmt-web rustfmt "cargo fmt --check"
        need rust-web-clippy cargo-clippy "cargo clippy"
        ;;
    esac
    need shellcheck shellcheck "lints the shell scripts"
    need e2fsprogs mkfs.ext4 "ext4 disks to test on"
    need xfsprogs mkfs.xfs "xfs disks to test on"
    need btrfs-progs mkfs.btrfs "btrfs disks to test on"
    need fdisk sfdisk "partitions to test on"
    need dosfstools mkfs.vfat "vfat disks to test on"
    need mtools mshowfat "where a file lies on them"
    need fio fio "what the probes are compared with"
    # Named before bindfs, which would bring Debian 12's old fuse: that and the
    # fuse3 of the rig's ntfs-3g cannot be installed side by side.
    need fuse3 fusermount3 "mounts the next"
    need bindfs bindfs "a file system that stands for a share"
    need hdparm hdparm "what compat is compared with"
    need python3 python3 "helpers of the tests"
    need util-linux losetup "loop devices"
    need mount mount "loop devices"
    need kmod modprobe "kernel modules of file systems"
    need procps ps "what the tests look at while a run goes on"
    need systemd systemd-analyze "systemd-analyze verify"
    need prometheus promtool "checks the example's alert rules"
    need lintian lintian "checks the packages"
    need qemu-user-static qemu-aarch64-static "runs the aarch64 and armv6 binaries"
}

rig() {
    need qemu-system-x86 qemu-system-x86_64 "the emulated amd64 board"
    need qemu-system-arm qemu-system-aarch64 "the emulated arm64 board"
    need qemu-utils qemu-img "its disks"
    local roms=/usr/lib/ipxe/qemu # of Debian 12
    [ -d $roms ] || roms=/usr/share/qemu/pxe-virtio.rom # of Debian 13
    need ipxe-qemu $roms "boot ROMs that QEMU looks for"
    need seabios /usr/share/seabios/bios.bin "its BIOS"
    need mmdebstrap mmdebstrap "makes the guests with systemd"
    need arch-test arch-test "tells it that arm64 can be emulated"
    need qemu-user-static qemu-aarch64-static "emulates arm64 while the Raspberry Pi's card is made"
    need busybox-static busybox "the guest without a distribution"
    need cpio cpio "its initramfs"
    need kmod depmod "its modules"
    need xz-utils xz "its modules"
    need zstd zstd "its modules"
    need e2fsprogs mkfs.ext4 "disks for the guests"
    need xfsprogs mkfs.xfs "disks for the guests"
    need btrfs-progs mkfs.btrfs "disks for the guests"
    need dosfstools mkfs.vfat "disks for the guests"
    need exfatprogs mkfs.exfat "disks for the guests"
    need fuse3 fusermount3 "for the next; not beside Debian 12's old fuse"
    need ntfs-3g mkfs.ntfs "disks for the guests"
    need f2fs-tools mkfs.f2fs "disks for the guests"
    need fdisk sfdisk "partitions on them"
    need cryptsetup-bin cryptsetup "LUKS disks"
    need nbdkit nbdkit "disks with faults"
    need python3 python3 "talks to QEMU's monitor"
    # Debian 12's QEMU 7.2 cannot go beside a qemu-utils from backports, and
    # the rig wants one QEMU everywhere: 10, as in Debian 13.
    # shellcheck source=/dev/null
    [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" != bookworm ] || backports=bookworm-backports
}

# The kernel runs foreign binaries by themselves once it knows their emulator,
# also those that our binary starts. Where no systemd is running, nobody did this.
binfmt() {
    local dir=/proc/sys/fs/binfmt_misc arch
    [ "$(id -u)" = 0 ] || return 0
    [ -e $dir/register ] || mount -t binfmt_misc binfmt_misc $dir 2>/dev/null || return 0
    for arch in aarch64 arm; do
        [ "qemu-$arch" = "qemu-$(uname -m)" ] || [ -e $dir/qemu-$arch ] ||
            cat /usr/lib/binfmt.d/qemu-$arch.conf >$dir/register 2>/dev/null || true
    done
}

[ $# -gt 0 ] || set -- build
for group; do
    case $group in
    build) build "$(image/cross-build.sh --host)" ;;
    dist) build aarch64 armv7 armv6 x86_64 ;;
    test) tests ;;
    rig) rig ;;
    bare) need mmdebstrap mmdebstrap "makes the bare root" ;;
    *) echo "prerequisites: no such group: $group (build, dist, test, rig, bare)" >&2; exit 64 ;;
    esac
done

if [ ${#packages[@]} -gt 0 ]; then
    install=(apt-get install -y --no-install-recommends --no-remove "${packages[@]}")
    if ! command -v apt-get >/dev/null; then
        echo "prerequisites: no apt-get here: install them as this system does" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        echo "Run as root:  apt-get update && ${install[*]}" >&2
        [ -z "$backports" ] || echo "with $backports among apt's sources and -t $backports" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    # Someone else may be installing, and nobody answers questions about changed files.
    apt=(-o DPkg::Lock::Timeout=300 -o DPkg::Options::=--force-confold)
    if [ -n "$backports" ]; then
        # Backports for this one command; the machine's own sources stay as they are.
        lists=$PWD/target/apt
        mkdir -p "$lists/sources" "$lists/lists/partial"
        cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list "$lists/sources" 2>/dev/null || true
        [ ! -s /etc/apt/sources.list ] || cp /etc/apt/sources.list "$lists/sources/machine.list"
        # shellcheck disable=SC2016 # apt expands them
        mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
            sed -n 's/^bookworm //p' | head -n1)
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $backports main" >"$lists/sources/backports.list"
        apt+=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$lists/sources"
            -o "Dir::State::lists=$lists/lists" -t "$backports")
    fi
    echo "Installing them: ${install[*]}"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # apt's own account is hundreds of lines: shown only if it fails.
    if ! { apt-get "${apt[@]}" update && "${install[0]}" "${apt[@]}" "${install[@]:1}"; } >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        exit 1
    fi
    if [[ " ${packages[*]} " == *" cargo-web "* ]] && ! image/cross-build.sh --cargo >/dev/null; then
        echo "prerequisites: still no cargo as new as Cargo.toml's rust-version; is the security suite among apt's sources?" >&2
        exit 1
    fi
fi
for group; do
    case $group in test | rig) binfmt ;; esac
done
