#!/bin/bash -e
# /tmp would be hidden in the chroot.
install -m 644 files/storage-selftest_*_"${ARCH}".deb "${ROOTFS_DIR}/root/storage-selftest.deb"
on_chroot <<EOF
dpkg -i /root/storage-selftest.deb
EOF
rm "${ROOTFS_DIR}/root/storage-selftest.deb"
