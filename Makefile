# storage-selftest: `make help` lists what there is.
PREFIX = /usr
ARCH := $(shell image/cross-build.sh --host)
BINARY = dist/$(ARCH)/storage-selftest
LIB = $(DESTDIR)$(PREFIX)/lib

all: build-deps ## static binary for this machine: dist/<arch>/storage-selftest
	@image/cross-build.sh $(ARCH)

dist: ## the same for aarch64, armv7, armv6 (Pi 1, Zero) and x86_64
	@image/prerequisites.sh dist
	@image/cross-build.sh aarch64 armv7 armv6 x86_64

# 1 (warn) and 2 (fail) are answers about the medium; from 3 on nothing was proved.
run: as-root all ## test this machine's own media (as root), state under ./var
	@mkdir -p var; status=0; $(BINARY) run --profile boot --state-dir var || status=$$?; \
	echo "exit status $$status"; [ $$status -lt 3 ]

test: ## all tests that need no emulated board
	@image/prerequisites.sh test
	@tests/all.sh

rig-test: ## tests on the emulated board
	@image/prerequisites.sh test rig
	@tests/rig/run

rig-shell: ## a shell on it: DEVICES="sd=8G usb3=4G:vfat"
	@image/prerequisites.sh test rig
	@tests/rig/shell $(DEVICES)

bench: all ## compare with fio, in one run
	@image/prerequisites.sh test
	@tests/bench.sh

install: ## into DESTDIR and PREFIX=/usr, after make
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/storage-selftest
	install -D -m 644 -t $(LIB)/systemd/system systemd/*.service systemd/*.timer
	install -D -m 644 -t $(LIB)/systemd/system-preset systemd/*.preset
	install -D -m 644 -t $(LIB)/systemd/catalog systemd/*.catalog
	install -D -m 644 -t $(LIB)/udev/rules.d systemd/*.rules
	install -D -m 644 systemd/storage-selftest.tmpfiles $(LIB)/tmpfiles.d/storage-selftest.conf
	install -D -m 755 image/60-storage-selftest.motd $(DESTDIR)/etc/update-motd.d/60-storage-selftest
	[ -e $(DESTDIR)/etc/storage-selftest.toml ] || \
	install -D -m 644 image/storage-selftest.toml $(DESTDIR)/etc/storage-selftest.toml

deb: dist ## Debian packages for arm64, armhf (Pi 1 and later) and amd64 into dist/
	@image/deb.sh arm64 armhf amd64

clean: ## remove target/ and dist/; var/ holds measurements and stays
	rm -rf target dist

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

build-deps:
	@image/prerequisites.sh build

as-root:
	@[ "$$(id -u)" = 0 ] || { echo "make run must be root: it reads whole disks" >&2; exit 1; }

.PHONY: all dist run test rig-test rig-shell bench install deb clean help build-deps as-root
