#!/bin/bash -e
# A stage that adds storage-selftest: put the package into 00-storage-selftest/files/,
# and the path of this directory into STAGE_LIST, before the stage that is exported:
#   STAGE_LIST="stage0 stage1 /path/to/image/pi-gen stage2"
[ -d "${ROOTFS_DIR}" ] || copy_previous
