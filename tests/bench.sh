#!/bin/bash
# Compares the built binary with fio on a disk in memory, and holds it against its
# bounds; `make bench` calls it: tests/bench.sh [BINARY [compat]]. With compat: our
# classic tools against the tools themselves.
#
# Prints a line for each figure: its bound, and ok or NOT MET. Exits 0 whatever it
# finds, other than 0 where it could not measure. Needs root; takes some two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

binary=${1:-dist/$(image/cross-build.sh --host)/storage-selftest}
[ "$(id -u)" = 0 ] || { echo "bench: must be root: it makes a loop device" >&2; exit 1; }
[ -x "$binary" ] || { echo "bench: $binary is missing: make" >&2; exit 1; }

# Bytes and operations a second, read and written; 0 is no limit.
throttle() {
    local file group=/sys/fs/cgroup/blkio
    for file in read_bps write_bps read_iops write_iops; do
        [ ! -w $group/blkio.throttle.${file}_device ] ||
            echo "$(cat "/sys/class/block/${loop#/dev/}/dev") $1" >$group/blkio.throttle.${file}_device
        shift
    done
}

work=$(mktemp -d)
image=$(mktemp /dev/shm/bench.XXXXXX)
loop=
clean_up() {
    # A child that was stopped half-way may hold the disk a moment longer.
    for _ in 1 2 3 4 5; do
        ! mountpoint -q "$work/disk" || umount "$work/disk" || { sleep 1; continue; }
        break
    done
    [ -z "$loop" ] || { throttle 0 0 0 0 && losetup -d "$loop"; }
    rm -f "$image"
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# Random data: a hole would be read faster than memory. mkfs must not punch any,
# nor leave the kernel tables to write while we measure.
head -c 1G /dev/urandom >"$image"
loop=$(losetup --show -f "$image")
mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
mkdir "$work/disk"
# No commit of the journal by the clock, which the disk would count for whoever runs then.
mount -o nodiscard,commit=300 "$loop" "$work/disk"

# The classic tools on a disk of the speed of a good card: on memory itself their figures
# are of their own code. Only where the kernel's root group has a throttle.
[ "${2:-}" != compat ] || throttle 90000000 60000000 3000 1500

python3 tests/bench.py "$binary" "$loop" "$work" "${@:2}"
