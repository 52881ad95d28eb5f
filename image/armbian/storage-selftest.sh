# shellcheck shell=bash
# Extension: this file and the package into userpatches/extensions/storage-selftest/,
# and ENABLE_EXTENSIONS=storage-selftest on the command line of compile.sh.
# shellcheck disable=SC2154 # Armbian sets EXTENSION_DIR, SDCARD and ARCH
function pre_customize_image__storage_selftest() {
    display_alert "Adding" "storage-selftest" "info"
    install -m 644 "$EXTENSION_DIR"/storage-selftest_*_"$ARCH".deb "$SDCARD/root/storage-selftest.deb"
    chroot_sdcard_apt_get_install /root/storage-selftest.deb
    rm "$SDCARD/root/storage-selftest.deb"
}
