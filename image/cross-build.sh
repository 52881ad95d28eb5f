#!/bin/bash
# Builds static musl binaries: image/cross-build.sh aarch64|armv7|armv6|x86_64 ...
# Each lands in dist/<arch>/storage-selftest.
#
# Two ways, chosen for each target by what the machine has:
#
#   rustup  The first cargo on PATH has the target's standard library, or
#           rustup can add it. rustc brings its own linker (rust-lld) and its
#           own musl, so nothing else is needed.
#   debian  The target cannot be had. Debian's rustc-web, cargo-web and
#           rust-web-src (image/prerequisites.sh installs them) compile the
#           standard library from source; zig, from PyPI by way of
#           cargo-zigbuild in a venv under target/, brings musl and the linker.
#           Debian's tools are called by /usr/bin, so a rustup elsewhere on
#           PATH does not disturb them, nor they it.
#
# CROSS_WAY=rustup or CROSS_WAY=debian forces one of them.
#
#   cross-build.sh --way ARCH...   say the way for these, without building
#   cross-build.sh --cargo         say which cargo is new enough for this crate
#   cross-build.sh --host          say which ARCH this machine is
#
# Everything that is kept between runs is under target/cross/.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/target/cross
name=storage-selftest
# A rustup that cannot reach its server may hang instead of saying so.
rustup_patience=90
zigbuild=0.24.1
zig=0.17.1

triple() {
    case $1 in
    aarch64) echo aarch64-unknown-linux-musl ;;
    armv7) echo armv7-unknown-linux-musleabihf ;;
    armv6) echo arm-unknown-linux-musleabihf ;;
    x86_64) echo x86_64-unknown-linux-musl ;;
    *) echo "cross-build: no such target: $1 (aarch64, armv7, armv6, x86_64)" >&2; exit 64 ;;
    esac
}

# Not from uname alone: a 32-bit userland on a 64-bit kernel is common on a Pi.
# armhf means ARMv6 on Raspberry Pi OS, and the ARMv6 binary runs on all of them.
host() {
    case $(dpkg --print-architecture 2>/dev/null || uname -m) in
    amd64 | x86_64) echo x86_64 ;;
    arm64 | aarch64) echo aarch64 ;;
    armhf | armv6* | armv7*) echo armv6 ;;
    *) echo "cross-build: no target for this machine" >&2; exit 1 ;;
    esac
}

new_enough() { # CARGO
    local need have
    need=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    have=$("$1" --version 2>/dev/null | cut -d' ' -f2)
    [ -n "$have" ] && [ "$(printf '%s\n' "$need" "$have" | sort -V | head -n1)" = "$need" ]
}

find_cargo() {
    local c
    for c in "$(command -v cargo || true)" /usr/bin/cargo; do
        if [ -x "$c" ] && new_enough "$c"; then
            echo "$c"
            return
        fi
    done
    return 1
}

# Asked once, before any way(): rustup's proxies take 50 ms each.
sysroot=  # of the first rustc on PATH, where that toolchain is new enough
look() {
    ! new_enough cargo || sysroot=$(rustc --print sysroot)
}

way() { # TRIPLE
    local refused=$cache/no-rustup-$1
    if [ -n "${CROSS_WAY:-}" ]; then
        echo "$CROSS_WAY"
    elif [ -z "$sysroot" ]; then
        echo debian
    elif [ -d "$sysroot/lib/rustlib/$1/lib" ]; then
        echo rustup
    elif [ -e "$refused" ] || ! command -v rustup >/dev/null; then
        echo debian
    elif timeout "$rustup_patience" rustup target add "$1" >/dev/null 2>&1; then
        echo rustup
    else
        # Remembered: make clean forgets it.
        mkdir -p "$cache" && touch "$refused"
        echo debian
    fi
}

# The standard library, compiled anew without its backtrace printer and without the texts of
# panics: half of the binary. A panic, which is a fault of ours, ends the process by a signal;
# a debug build says where. RUSTC_BOOTSTRAP: neither is stable yet.
small_std=("-Zbuild-std=std,panic_abort" "-Zbuild-std-features=optimize_for_size")
small_flags="-C force-unwind-tables=no -Zunstable-options -Cpanic=immediate-abort"

build_rustup() { # --target TRIPLE...
    local std=() flags=
    if [ -d "$sysroot/lib/rustlib/src/rust/library" ] ||
        timeout "$rustup_patience" rustup component add rust-src >/dev/null 2>&1; then
        std=("${small_std[@]}") flags=$small_flags
    fi
    # Pi 5 kernels have 16 KiB pages, other ARM kernels up to 64 KiB. Functions with the same code
    # are kept once.
    RUSTFLAGS="$flags -C linker=rust-lld -C link-self-contained=yes -C link-arg=-zmax-page-size=65536 -C link-arg=--icf=all" \
        RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$cache/rustup cargo build --locked --release "${std[@]}" "$@"
}

build_debian() { # --target TRIPLE...
    local venv=$cache/venv
    if [ ! -e "$venv/$zigbuild-$zig" ]; then
        echo "cross-build: fetching zig and cargo-zigbuild from PyPI into target/" >&2
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check \
            "cargo-zigbuild==$zigbuild" "ziglang==$zig"
        touch "$venv/$zigbuild-$zig"
    fi
    env -u RUSTUP_TOOLCHAIN \
        PATH="$venv/bin:/usr/bin:/bin" CARGO=/usr/bin/cargo RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        RUSTFLAGS="$small_flags -C link-self-contained=no -C link-arg=-Wl,-z,max-page-size=65536" \
        ZIG_GLOBAL_CACHE_DIR="$cache/zig" CARGO_ZIGBUILD_CACHE_DIR="$cache/zigbuild" \
        CARGO_TARGET_DIR="$cache/debian" \
        cargo-zigbuild zigbuild --locked --release "${small_std[@]}" "$@"
}

case ${1:-} in
--cargo) find_cargo; exit ;;
--host) host; exit ;;
--way)
    shift
    look
    for arch; do
        t=$(triple "$arch")
        echo "$arch $(way "$t")"
    done
    exit ;;
'' | -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two at once would lay the venv twice
look

declare -A targets=([rustup]='' [debian]='')
for arch; do
    t=$(triple "$arch")
    w=$(way "$t")
    targets[$w]+=" --target $t"
done
for w in rustup debian; do
    read -ra args <<<"${targets[$w]}"
    # One cargo for all targets, so that both cores have work during each link.
    [ ${#args[@]} -eq 0 ] || "build_$w" "${args[@]}"
done
for arch; do
    t=$(triple "$arch")
    built=$cache/$(way "$t")/$t/release/$name
    mkdir -p "dist/$arch"
    cmp -s "$built" "dist/$arch/$name" || install -m 755 "$built" "dist/$arch/$name"
    echo "dist/$arch/$name: $(stat -c %s "$built") bytes, way $(way "$t")"
done
