#!/bin/bash
# For userpatches/customize-image.sh, with the package in userpatches/overlay/.
# Armbian runs it in the image with RELEASE LINUXFAMILY BOARD BUILD_DESKTOP ARCH.
set -e
dpkg -i /tmp/overlay/storage-selftest_*_"$5".deb
