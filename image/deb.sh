#!/bin/bash
# Packs dist/<arch>/storage-selftest, its units, configuration and manuals for
# Debian and what is made of it: image/deb.sh arm64|armhf|amd64 ...
# Each lands in dist/. The same commit and binary give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

name=storage-selftest
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n1)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH # of the commit: dpkg-deb takes no later time into the archive
maintainer="$name developers <$(git log -1 --format=%ae)>"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022

# Raspberry Pi OS calls ARMv6 armhf, and that binary runs on all of them.
binary_of() { # ARCHITECTURE
    case $1 in
    arm64) echo dist/aarch64/$name ;;
    armhf) echo dist/armv6/$name ;;
    amd64) echo dist/x86_64/$name ;;
    *) echo "deb: no such architecture: $1 (arm64, armhf, amd64)" >&2; exit 64 ;;
    esac
}

documents() {
    local doc=$root/usr/share/doc/$name section page
    for page in image/man/*.[1-8]; do
        section=${page##*.}
        install -D -m 644 "$page" "$root/usr/share/man/man$section/${page##*/}"
    done
    install -D -m 644 image/alerts.yaml "$doc/examples/alerts.yaml"
    install -D -m 644 image/deb/lintian-overrides "$root/usr/share/lintian/overrides/$name"
    {
        cat image/deb/copyright
        sed '1,4d; s/^$/./; s/^/ /' LICENSE-MIT
    } >"$doc/copyright"
    cat >"$doc/changelog" <<CHANGELOG
$name ($version) unstable; urgency=medium

  * As of commit $(git rev-parse --short=12 HEAD).

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
    find "$root/usr/share/man" "$doc/changelog" -type f -exec gzip -9n {} +
}

control() { # ARCHITECTURE
    mkdir -p "$root/DEBIAN"
    install -m 755 image/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
    (cd "$root" && find etc -type f | sed 's|^|/|' | sort) >"$root/DEBIAN/conffiles"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: $1
Maintainer: $maintainer
Installed-Size: $(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%s\n' | awk '{ n += $1 } END { print int((n + 1023) / 1024) }')
Section: admin
Priority: optional
$(cat image/deb/description)
CONTROL
}

[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64; }
mkdir -p dist
for arch; do
    binary=$(binary_of "$arch")
    rm -rf "${root:?}"/*
    make -s install DESTDIR="$root" BINARY="$binary"
    documents
    control "$arch"
    chmod 755 "$root"
    deb=dist/${name}_${version}_$arch.deb
    dpkg-deb --root-owner-group -Zxz --build "$root" "$deb.$$" >/dev/null
    mv "$deb.$$" "$deb"
    echo "$deb: $(stat -c %s "$deb") bytes"
done
