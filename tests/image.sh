#!/bin/bash
# Runs the pieces in image/ as their tools would: tests/image.sh PIECE
# The root is this Debian machine's own with a tmpfs over it, in a mount namespace
# of its own; with the tools' variables set, and their functions as they define them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${IMAGE_TEST:-}" ] || IMAGE_TEST=$(mktemp -d) exec unshare --mount "$0" "$@"
export IMAGE_TEST
trap 'rm -rf --one-file-system "$IMAGE_TEST" 2>/dev/null || true' EXIT
PATH=$PATH:/usr/sbin:/sbin

arch=$(dpkg --print-architecture)
image/deb.sh "$arch" >/dev/null
deb=$(realpath dist/storage-selftest_*_"$arch".deb)
fail() { echo "image: $*" >&2; exit 1; }

make_root() {
    mount -t tmpfs tmpfs "$IMAGE_TEST"
    mkdir "$IMAGE_TEST"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$IMAGE_TEST/upper,workdir=$IMAGE_TEST/work" "$IMAGE_TEST/root"
    root=$IMAGE_TEST/root
    [ ! -e "$root/usr/bin/storage-selftest" ] || fail "is installed on this machine"
}

# What must be so after a piece did its work.
installed() { # ROOT
    local timer
    [ -x "$1/usr/bin/storage-selftest" ] || fail "no program"
    for timer in storage-selftest.timer storage-selftest-routine.timer; do
        [ -L "$1/etc/systemd/system/timers.target.wants/$timer" ] || fail "$timer is not enabled"
    done
    [ ! -e "$1/var/lib/storage-selftest/state.toml" ] || fail "a state in the image"
    [ -z "$(find "$1/root" -name '*.deb' -newer "$deb")" ] || fail "the package was left in /root"
}

by_dpkg() {
    chroot "$root" dpkg -s storage-selftest | grep -q '^Status: install ok installed' || fail "dpkg does not know it"
    installed "$root"
}

pi_gen() {
    make_root
    cp -r image/pi-gen "$IMAGE_TEST/stage"
    cp "$deb" "$IMAGE_TEST/stage/00-storage-selftest/files/"
    cd "$IMAGE_TEST/stage"
    copy_previous() { fail "ROOTFS_DIR is there"; }
    on_chroot() { chroot "$ROOTFS_DIR" bash -e; }
    export -f copy_previous on_chroot fail
    export ROOTFS_DIR=$root ARCH=$arch
    ./prerun.sh
    cd 00-storage-selftest
    ./00-run.sh
    by_dpkg
}

rpi_image_gen() {
    make_root
    export IGconf_selftest_deb=$deb
    # As mmdebstrap runs hooks.
    sed -n 's/^    - //p' image/rpi-image-gen/storage-selftest.yaml | while read -r hook; do
        sh -ec "$hook" exec "$root"
    done
    grep -qx Path=/var/lib/storage-selftest "$root/etc/rpi-image-gen/slot-shared.d/storage-selftest.conf"
    by_dpkg
}

armbian() {
    make_root
    mkdir -p "$root/tmp/overlay"
    cp "$deb" "$root/tmp/overlay/"
    cp image/armbian/customize-image.sh "$root/tmp/"
    chroot "$root" /tmp/customize-image.sh bookworm meson64 odroidc4 no "$arch"
    by_dpkg
}

armbian_extension() {
    make_root
    export SDCARD=$root ARCH=$arch EXTENSION_DIR=$IMAGE_TEST/extension
    mkdir "$EXTENSION_DIR"
    cp "$deb" image/armbian/storage-selftest.sh "$EXTENSION_DIR/"
    # shellcheck disable=SC2317 # the extension calls them
    display_alert() { :; }
    # shellcheck disable=SC2317
    chroot_sdcard_apt_get_install() { chroot "$SDCARD" apt-get -qq -y --no-install-recommends install "$@"; }
    # shellcheck source=/dev/null
    . "$EXTENSION_DIR/storage-selftest.sh"
    pre_customize_image__storage_selftest
    by_dpkg
}

sdm() {
    make_root
    mkdir -p "$root/etc/sdm"
    cat >"$root/etc/sdm/sdm-readparams" <<'PARAMETERS'
plugin_getargs() { local IFS='|'; for pair in $2; do declare -g "$pair"; done; }
logtoboth() { echo "$*"; }
PARAMETERS
    cp image/sdm/storage-selftest "$root/tmp/"
    for phase in 0 1 post-install; do
        case $phase in
        0) SDMPT=$root image/sdm/storage-selftest $phase "deb=$deb" ;;
        *) SDMPT='' chroot "$root" /tmp/storage-selftest $phase "deb=$deb" ;;
        esac
    done
    by_dpkg
}

mounted_root() {
    make_root
    image/install.sh "$root" "$deb"
    by_dpkg
}

# A foreign system whose programs cannot run here, in the second partition.
img_file() {
    local size=$((64 << 20)) image=$IMAGE_TEST/card.img foreign=$IMAGE_TEST/foreign
    mount -t tmpfs tmpfs "$IMAGE_TEST"
    mkdir -p "$foreign"/{etc,usr/bin,dev,root}
    echo 'ID=raspbian' >"$foreign/etc/os-release"
    cp dist/aarch64/storage-selftest "$foreign/usr/bin/env"
    mkfs.ext4 -q -d "$foreign" "$IMAGE_TEST/root.ext4" "$((size >> 10))k"
    truncate -s $((9 << 20)) "$image"
    cat "$IMAGE_TEST/root.ext4" >>"$image"
    # A partition table by hand: type, first sector, sectors; FAT first, as on a Pi.
    entry() { printf '%b' "$(printf '\\x00\\x00\\x00\\x00\\x%02x\\x00\\x00\\x00' "$1")"; for n in "$2" "$3"; do
        printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)) $((n >> 24)))"; done; }
    { entry 12 2048 16384; entry 131 18432 $((size / 512)); } |
        dd of="$image" bs=1 seek=446 conv=notrunc status=none
    printf '\x55\xaa' | dd of="$image" bs=1 seek=510 conv=notrunc status=none

    image/deb.sh arm64 >/dev/null
    image/install.sh "$image" | tee "$IMAGE_TEST/said"
    grep -q 'offset 9437184$' "$IMAGE_TEST/said" || fail "wrong offset"
    nothing_stays "$image"
    mkdir "$IMAGE_TEST/at"
    mount -o loop,ro,offset=9437184 "$image" "$IMAGE_TEST/at"
    installed "$IMAGE_TEST/at"
    [ "$(stat -c %u:%a "$IMAGE_TEST/at/usr/bin/storage-selftest")" = 0:755 ] || fail "owner or mode"
    umount "$IMAGE_TEST/at"

    # A package that breaks off: an error, and still nothing stays mounted.
    head -c 100000 dist/storage-selftest_*_arm64.deb >"$IMAGE_TEST/broken.deb"
    ! image/install.sh "$image" "$IMAGE_TEST/broken.deb" 2>/dev/null || fail "half a package passed"
    nothing_stays "$image"
}

nothing_stays() { # IMAGE
    ! grep -q "$IMAGE_TEST/card" /proc/mounts || fail "still mounted"
    [ -z "$(losetup -j "$1")" ] || fail "a loop device stays"
}

case ${1:-} in
pi-gen) pi_gen ;;
rpi-image-gen) rpi_image_gen ;;
armbian | armbian-extension | sdm | mounted-root | img-file) "${1//-/_}" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac
