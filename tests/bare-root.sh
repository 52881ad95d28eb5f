#!/bin/bash
# Shows that a fresh clone builds on a machine with nothing but git, make and
# ca-certificates: tests/bare-root.sh 12|13 [MAKE-TARGET]...
#
# Makes such a Debian root (kept as a tar under target/bare/), clones HEAD into
# it and runs each make target there, or plain make. As root.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
12) suite=bookworm ;;
13) suite=trixie ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64 ;;
esac
release=$1
shift
[ $# -gt 0 ] || set -- all

image/prerequisites.sh bare
tar=$PWD/target/bare/$release.tar
root=$PWD/target/bare/$release
rm -rf --one-file-system "$root" # what a killed run left
mkdir -p "$root"
trap 'rm -rf --one-file-system "$root"' EXIT

[ -e "$tar" ] || {
    # Without a mirror's name it takes Debian's own, with updates and security.
    mmdebstrap --quiet --format=tar --variant=apt --include=git,make,ca-certificates "$suite" "$tar.new"
    mv "$tar.new" "$tar"
}
tar -C "$root" -xf "$tar"

# A network that inspects TLS has its own authority, and maybe settings for the
# clients: what this machine trusts and uses, the root must too.
give() {
    local f
    for f; do
        [ ! -e "$f" ] || install -D -m 644 "$f" "$root$f"
    done
}
give /etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts /etc/pip.conf ~/.cargo/config.toml
mapfile -t settings < <(grep -ls Acquire /etc/apt/apt.conf /etc/apt/apt.conf.d/*)
for file in "${settings[@]}"; do
    # A package's own file would stand in that package's way there.
    dpkg-query -S "$file" >/dev/null 2>&1 || give "$file"
done
mapfile -t environment < <(env | grep -iE '^((https?|no|all)_proxy|pip_(index|extra|cert|default|timeout)[a-z_]*|cargo_(http|net|registr)[a-z_]*)=' || true)

git clone --quiet --no-hardlinks . "$root/root/storage-selftest"

# The mounts are in a mount namespace: gone with it, whatever happens. The root is
# a mount of its own, so that a program in it finds what it is on.
# shellcheck disable=SC2016 # expanded inside
unshare --mount bash -euc '
    root=$1
    shift
    mount --bind "$root" "$root"
    for d in proc sys dev; do
        mount --rbind /$d "$root/$d"
    done
    exec chroot "$root" "$@"
' bare "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" \
    bash -euc '
    cd ~/storage-selftest
    for target; do
        echo "=== Debian $(cat /etc/debian_version): make $target"
        start=$SECONDS
        make "$target"
        echo "=== make $target: $((SECONDS - start)) s"
    done
' bare "$@"
