#!/bin/bash
# Every test that needs no emulated board; `make test` calls it. What cannot run
# here is named as skipped, with the reason. Ends with a count of all of them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PATH:/usr/sbin:/sbin

passed=0 failed=0 skipped=0
skip() { # NAME REASON
    echo "skipped: $1: $2"
    skipped=$((skipped + 1))
}
check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@"; then
        echo "passed: $name"
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

# What it ignores, an unknown key say, it only mentions: that is a failure here.
verify_units() { # DIR
    local said status=0
    said=$(systemd-analyze --man=no verify "$1"/* 2>&1) || status=$?
    echo -n "${said:+$said$'\n'}"
    [ $status = 0 ] && [[ $said != *"$1/"* ]]
}

cargo=$(image/cross-build.sh --cargo) || exit
# Its rustc, too, may not be the first one.
[ "$cargo" != /usr/bin/cargo ] || PATH=/usr/bin:$PATH

mapfile -t archs < <({ image/cross-build.sh --host; printf '%s\n' aarch64 armv6; } | sort -u)
check "static binaries" image/cross-build.sh "${archs[@]}"

for tool in fmt:--check "clippy:--all-targets --locked -- -D warnings"; do
    read -ra arguments <<<"${tool#*:}"
    if "$cargo" "${tool%%:*}" --version >/dev/null 2>&1; then
        check "cargo ${tool%%:*}" "$cargo" "${tool%%:*}" "${arguments[@]}"
    else
        skip "cargo ${tool%%:*}" "not part of this toolchain"
    fi
done

# What rust-version promises is built with that very version, where it can be had.
oldest=$(sed -n 's/^rust-version *= *"\(.*\)"/\1.0/p' Cargo.toml)
if ! command -v rustup >/dev/null; then
    skip "rust-version" "no rustup here to fetch Rust $oldest"
elif ! rustup toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1; then
    skip "rust-version" "Rust $oldest cannot be fetched"
else
    check "rust-version: builds with $oldest" cargo "+$oldest" check --quiet --locked --target-dir target/oldest
fi

if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(git ls-files | while read -r f; do
        head -c 64 "$f" 2>/dev/null | head -n1 | grep -qE '^#!.*[/ ](ba|da)?sh( |$)' && echo "$f"
    done 2>/dev/null)
    check "shellcheck of ${#scripts[@]} scripts" shellcheck "${scripts[@]}"
else
    skip shellcheck "not installed"
fi

mapfile -t units < <(find systemd -name '*.service' -o -name '*.timer' 2>/dev/null)
if [ ${#units[@]} = 0 ]; then
    skip "systemd-analyze verify" "no units yet"
elif ! command -v systemd-analyze >/dev/null; then
    skip "systemd-analyze verify and security" "systemd is not installed"
else
    # It looks for the program too, which is not installed here: give it ours.
    verify=$(mktemp -d)
    own=$PWD/dist/$(image/cross-build.sh --host)/storage-selftest
    for unit in "${units[@]}"; do
        sed "s|/usr/bin/storage-selftest|$own|" "$unit" >"$verify/${unit##*/}"
    done
    check "systemd-analyze verify" verify_units "$verify"
    # 40 of 100 is what systemd calls 4.0.
    check "systemd-analyze security: at most 4.0" \
        systemd-analyze --no-pager security --offline=true --threshold=40 "$verify"/*.service
    rm -r "$verify"
    root=$(mktemp -d)
    install -D -m 644 -t "$root/usr/lib/systemd/catalog" systemd/*.catalog
    check "journalctl --update-catalog" journalctl --root="$root" --update-catalog
    rm -r "$root"
fi

for piece in pi-gen rpi-image-gen armbian armbian-extension sdm mounted-root img-file; do
    if [ "$(id -u)" != 0 ] || ! command -v dpkg-deb unshare >/dev/null; then
        skip "image/: $piece" "needs root on a Debian"
    elif ! unshare --mount true 2>/dev/null; then
        skip "image/: $piece" "mount namespaces are not permitted here"
    else
        check "image/: $piece" tests/image.sh "$piece"
    fi
done

# All test binaries by name but the rig's, which has a make target of its own.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
tests=(--bins)
while read -r name; do
    [ "$name" = rig ] || tests+=(--test "$name")
done < <(sed -n '/^\[\[test\]\]/,/^$/s/^name *= *"\(.*\)"/\1/p' Cargo.toml)
"$cargo" test --locked --no-fail-fast "${tests[@]}" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

count() { # PATTERN
    sed -n "s/^test result:.* \([0-9]*\) $1.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
}
# A test that could not do its work says so, and has not passed.
gave_up=$(grep -c '^SKIPPED ' "$log")
passed=$((passed + $(count passed) - gave_up))
skipped=$((skipped + $(count ignored) + gave_up))
tests_failed=$(count failed)
failed=$((failed + tests_failed))
# It did not compile, or died before it counted.
[ "$status" = 0 ] || [ "$tests_failed" -gt 0 ] || failed=$((failed + 1))

echo "test: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
