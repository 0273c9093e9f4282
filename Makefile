# What a person does with scx_hetero, each in one command.  `make run` and
# `make test` also install what they lack (as root, on Debian 12 or later);
# `make build` says what it lacks, on any distribution.

KERNEL  ?= 6.18
# The oldest, the one that most people have, and the newest.
KERNELS ?= 6.16 6.18 7.3
ALL_KERNELS ?= 6.16 6.17 6.18 6.19 7.0 7.1 7.2 7.3
MACHINE ?= alder-lake-4p4e
ARGS    ?=
SEEDS   ?= 1-20000

export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
cargo  = BPF_CLANG=$$(testbed/build-needs clang) cargo
target = $(or $(CARGO_TARGET_DIR),target)
# What is compiled is linted, and its documentation looked at.
linted = RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/tests/linted"

# SIMPLE=1: four equal CPUs, as fast as they go, instead of a hybrid machine.
machine = $(if $(SIMPLE),,--machine $(MACHINE))

# `setup` first, then what needs it.
.NOTPARALLEL:
.PHONY: build spin heartbeats setup testbed run check test test-kernels soak bench-switch try-userland generated install uninstall deb try-deb try-service clean help

build:           ## build target/release/scx_hetero (the default), on any distribution
	@testbed/build-needs >/dev/null
	$(cargo) build --release

spin:            ## build target/libscx_hetero_{spin,advice}.so, for LD_PRELOAD (docs/spin.md, docs/advice.md)
	@$(MAKE) -s -C spin OUT="$(abspath $(target))"

heartbeats:      ## build target/heartbeats/libscx_hetero_heartbeat.{a,so}, for programs with goals (docs/goals.md)
	@$(MAKE) -s -C heartbeats OUT="$(abspath $(target))/heartbeats" PREFIX=/usr

setup:           ## install the packages that `run` and `test` need (Debian 12 or later)
	@testbed/setup

testbed: setup   ## build the virtual hybrid machine (once, about 2 minutes)
	@testbed/hybrid/plugin "$$(testbed/hybrid/qemu)" >/dev/null
	@testbed/guest/build >/dev/null
	@testbed/machine --list

run: setup build ## watch it schedule programs on a virtual hybrid machine
	@testbed/boot --kernel $(KERNEL) $(machine) --timeout 300 \
		--add-bin $(target)/release/scx_hetero -- demo $(ARGS)

check:           ## look at format, lints, documentation and scripts
	@BPF_CLANG=$$(testbed/build-needs clang) tests/check

test:            ## run the checks and the tests: on this machine, then in virtual machines
	@testbed/setup tests
	@# Meanwhile: what waits for the network, and what compilers leave of two CPUs. What needs it says what failed.
	@{ testbed/hybrid/qemu; for k in $(KERNELS); do testbed/kernel $$k; done; } >/dev/null 2>&1 &
	@tests/check --but-lints
	@# All test programs at once, with what virtual machines run: two CPUs have something to compile to the end.
	$(linted) $(cargo) test --release --no-run --lib --examples --test '*'
	$(linted) $(cargo) test --release
	@$(linted) BPF_CLANG=$$(testbed/build-needs clang) testbed/vm-tests $(KERNELS)

test-kernels: setup ## run the long ones, too, on every kernel that can be had
	@testbed/same-seed $(lastword $(ALL_KERNELS))
	@BPF_CLANG=$$(testbed/build-needs clang) LONG=1 testbed/vm-tests \
		$$(for k in $(ALL_KERNELS); do testbed/kernel $$k >/dev/null && echo $$k || \
			echo "SKIPPED: Linux $$k cannot be downloaded" >&2; done)

soak:            ## run 10^8 events of random lives on the BPF half, with AddressSanitizer and UBSan
	@testbed/build-needs >/dev/null
	@testbed/soak $(SEEDS)

bench-switch: setup build ## what switching and waking cost, beside other schedulers
	@experiments/switch-cost $(KERNEL)

try-userland: setup ## build the example that schedules in user space, and see it at work (takes libseccomp-dev)
	$(cargo) build --release -p scx_hetero-userland
	@userland/try $(KERNEL)

generated: build ## man pages and completions, into target/release/generated
	@$(target)/release/scx_hetero generate $(target)/release/generated

install:         ## install what `generated` has built, below PREFIX (/usr/local), with its service (docs/install.md)
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" TARGET="$(target)" packaging/install

uninstall:       ## take that away again
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" TARGET="$(target)" packaging/install uninstall

deb: generated heartbeats spin ## build target/debian/scx-hetero_*.deb (takes cargo-deb and libvulkan-dev: docs/install.md)
	@$(MAKE) -s -C heartbeats OUT="$(abspath $(target))/heartbeats" PREFIX=/usr frames
	@gzip -9nkf $(target)/release/generated/*.1
	@for page in heartbeat advice; do \
		gzip -9nc heartbeats/scx_hetero_$$page.3 >$(target)/heartbeats/scx_hetero_$$page.3.gz || exit; done
	@$(cargo) deb --no-build --strip

try-deb: deb     ## install, upgrade and remove that in a clean Debian (as root; takes debootstrap)
	@packaging/try-deb "$$(ls -t $(target)/debian/scx-hetero_*.deb | head -n 1)"

try-service: setup deb ## see its service at work under systemd, in a virtual machine (as root; takes debootstrap)
	@packaging/try-service "$$(ls -t $(target)/debian/scx-hetero_*.deb | head -n 1)"

clean:           ## remove what was built here (kernels stay in the cache)
	rm -rf $(target)

help:            ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20
	@echo
	@echo "  make run ARGS='--policy rr --stats 1'   arguments for scx_hetero"
	@echo "  make run MACHINE=juno-r1                see: testbed/machine --list"
	@echo "  make run SIMPLE=1                       on four equal CPUs"
	@echo "  make run KERNEL=7.2                     another Debian kernel"
	@echo "  make test KERNELS='6.17 6.18 7.2'       the kernels to test on"
