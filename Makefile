# make demo | test | check | install: see README.md. Variables may be set on the
# command line, as in `make install PREFIX=/usr DESTDIR=/tmp/root`.

GO         = go
BIN        = bin
BUILDFLAGS =
# Tests build without -trimpath: with it the standard library is compiled once more.
TRIMPATH   = -trimpath
VERSION    = 0.1.0-dev
LDFLAGS    = -s -w -X main.version=$(VERSION) $(if $(MAILERS),-X paddock/execd/internal/conf.mailers=$(MAILERS))
# MAILERS lists paths, separated by colons, at which execd looks for a mailer that no
# configuration names, instead of the usual ones.
MAILERS    =
# Without the library's generator of manual pages, whose parser costs every
# start of a command half a millisecond.
TAGS       = urfave_cli_no_docs
COMMANDS   = qstat qdel qhold qrls qmod qhost qselect qconf qacct qalter qresub qwait qlog qtop qrsh qlogin qsh

DESTDIR  =
PREFIX   = /usr/local
BINDIR   = $(PREFIX)/bin
SBINDIR  = $(PREFIX)/sbin
MANDIR   = $(PREFIX)/share/man

# Tools are run from their modules, so that go.mod stays free of them.
GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE      = golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.1.4

# FUZZTIME is a count and no time: when a time is over go test sometimes reports its own
# deadline as a failure of the target.
FUZZTIME   = 100000x
# FUZZLIMIT is the seconds after which a slow target is interrupted; 0 is never.
FUZZLIMIT  = 0
# FUZZBUILD has what an input reaches guide the next ones. It builds every package, also those of others, once more, which
# a run of few inputs does not repay.
FUZZBUILD  = -fuzz .
# GOTEST is go test with a log that ends with what has failed.
GOTEST = $(GO) run ./test/report

SOAK_SCALE = 1
SOAK_SEED  = 0
BENCHFLAGS =

# The programs that are installed.
PROGRAMS = ./execd ./shepherd ./execd/transfer ./qsub ./qsub/qweb ./qrsh/session ./hooks/postgres

# UNIT is the packages that have to do with more than one goroutine, in the code or in tests, and whose tests need neither
# binaries nor another program. They run under the race detector with -short, which leaves out what has no concurrency.
# Most tests of PARENT run the real shepherd, which is built without the race detector.
PARENT = ./shepherd/internal/parent
UNIT   = $$(grep -rlE --include='*.go' '"sync["/]|^\s*go |<-|\.Parallel\(|errgroup' . | xargs -n 1 dirname | sort -u | \
         grep -v -e '^\./test/' -e '^\./packaging/' -e '^$(PARENT)$$')

# NEED_... is what a target needs beside Go, as COMMAND=PACKAGE. The target installs it.
NEED_TEST     = perl=perl-base useradd=passwd mkfs.xfs=xfsprogs setpriv=util-linux mount=mount getent=libc-bin curl=curl vi=vim-tiny \
	top=procps ip=iproute2 zsh=zsh fish=fish
NEED_RACE     = gcc=gcc,libc6-dev
NEED_MAN      = mandoc=mandoc
NEED_INTEROP  = sge_execd=gridengine-master,gridengine-exec,gridengine-client,gridengine-common
NEED_WORKFLOW = makeflow=coop-computing-tools orterun=openmpi-bin snakemake=snakemake toil=toil \
	sshd=openssh-server ssh=openssh-client Xvfb=xvfb xterm=xterm ip=iproute2
NEED_PACKAGES = lintian=lintian rpm=rpm rpmlint=rpmlint cpio=cpio mmdebstrap=mmdebstrap busybox=busybox-static \
	systemd-analyze=systemd
NEED_ENGINE   = pg_createcluster=postgresql,postgresql-common psql=postgresql-client pgbouncer=pgbouncer flock=util-linux
NEED_SLURM    = slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client munged=munge
NEED_BENCH    = sshd=openssh-server ssh=openssh-client rsync=rsync setpriv=util-linux ip=iproute2 tsp=task-spooler \
	parallel=parallel strace=strace busybox=busybox-static
NEED_WEB      = promtool=prometheus chromium=chromium
NEED_VM       = mkfs.ext4=e2fsprogs qemu-system-x86_64=qemu-system-x86 busybox=busybox-static cpio=cpio

# Only the race detector needs cgo: a static binary starts faster, and the names of
# users come from getent.
export CGO_ENABLED = 0

.PHONY: all modules packages build install dist release licences-update demo test faults accounts race fuzz fmt vet lint man-lint deadcode deps-check deps-update \
	manifest-check requirements check e2e classad-diff packages-check interop workflow engine web vm packages-test soak bench vuln clean

all: build

# modules downloads all that the targets take from the network by way of Go.
modules:
	test/retry $(GO) mod download
	test/retry $(GO) -C test/classad list -test -deps ./... >/dev/null
	test/retry $(GO) -C test/bench/river list -deps ./... >/dev/null
	test/retry $(GO) -C packaging/build list -test -deps ./... >/dev/null
	test/retry $(GO) run $(GOLANGCI_LINT) --version
	test/retry $(GO) run $(DEADCODE) -help 2>/dev/null >&2

# packages installs all that the targets take from Debian, at once.
packages:
	test/need $(NEED_TEST) $(NEED_RACE) $(NEED_MAN) $(NEED_INTEROP) $(NEED_WORKFLOW) $(NEED_ENGINE) $(NEED_BENCH) $(NEED_SLURM) $(NEED_WEB) $(NEED_PACKAGES) $(NEED_VM)

build:
	$(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' $(BUILDFLAGS) -tags $(TAGS) -o $(BIN)/ ./execd ./shepherd ./qsub ./qsub/qweb
	$(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' $(BUILDFLAGS) -o $(BIN)/execd-transfer ./execd/transfer
	$(GO) build $(TRIMPATH) -ldflags '-s -w' $(BUILDFLAGS) -o $(BIN)/qrsh-session ./qrsh/session
	$(GO) build $(TRIMPATH) -ldflags '$(LDFLAGS)' $(BUILDFLAGS) -o $(BIN)/paddock-pg ./hooks/postgres
	for c in $(COMMANDS); do ln -sf qsub $(BIN)/$$c || exit 1; done

# packaging/manifest says what goes where; owners are set when root installs.
install: build
	sed -e '/^#/d; /^$$/d' -e 's|@PREFIX@|$(PREFIX)|; s|@BINDIR@|$(BINDIR)|; s|@SBINDIR@|$(SBINDIR)|; s|@MANDIR@|$(MANDIR)|; s|@BIN@|$(BIN)|' \
		packaging/manifest | while read -r type owner group mode path source; do \
		own=; [ "$$(id -u)" != 0 ] || own="-o $$owner -g $$group"; \
		to="$(DESTDIR)$$path"; \
		case $$type in [ftcl]) [ -d "$${to%/*}" ] || install -d -m 0755 "$${to%/*}" || exit 1 ;; esac; \
		case $$type in \
		d) install -d $$own -m $$mode "$$to" ;; \
		f) install $$own -m $$mode "$$source" "$$to" ;; \
		t) sed 's|/usr/sbin/|$(SBINDIR)/|; s|/usr/bin/|$(BINDIR)/|' "$$source" | install $$own -m $$mode /dev/stdin "$$to" ;; \
		c) [ -e "$$to" ] || install $$own -m $$mode "$$source" "$$to" ;; \
		l) ln -sfn "$$source" "$$to" ;; \
		s | p) ;; \
		*) echo "packaging/manifest: no such type: $$type" >&2; exit 1 ;; \
		esac || exit 1; \
	done

# dist makes the packages. The same commit makes the same bytes, wherever it is built:
# the time is the commit's, and nothing of git gets into the programs, as in an archive
# of the tree there is none.
DIST               = dist
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist:
	$(MAKE) --no-print-directory build BIN=$(DIST)/bin TRIMPATH=-trimpath BUILDFLAGS=-buildvcs=false
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(GO) -C packaging/build run . -root $(CURDIR) \
		-bin $(abspath $(DIST)/bin) -out $(abspath $(DIST)) -version $(VERSION)

# release makes what is published of a version, which is all that it leaves in dist: the
# packages, and notes from CHANGELOG.md. The tree has to be what the commit says, and to
# pass CHECKS.
CHECKS = test check packages-test
release:
	@[ "$(origin VERSION)" = "command line" ] || { echo "release: which? make release VERSION=x" >&2; exit 1; }
	@[ -z "$$(git status --porcelain)" ] || { echo "release: the tree has changes that are not committed" >&2; exit 1; }
	@$(GO) -C packaging/build run . -root $(CURDIR) -version $(VERSION) -notes >/dev/null
	[ -z "$(CHECKS)" ] || $(MAKE) --no-print-directory $(CHECKS)
	rm -rf $(DIST)
	$(MAKE) --no-print-directory dist VERSION=$(VERSION)
	$(GO) -C packaging/build run . -root $(CURDIR) -version $(VERSION) -notes >$(DIST)/NOTES.md
	rm -r $(DIST)/bin

# licences-update writes packaging/copyright and NOTICE, which name what programs link.
licences-update:
	$(GO) -C packaging/build run . -root $(CURDIR) -licences

demo:
	@echo "Compiling, which takes a minute or two the first time." >&2
	@$(MAKE) --no-print-directory -s build
	test/need tar=tar gzip=gzip sha256sum=coreutils setpriv=util-linux
	PATH="$(abspath $(BIN)):$$PATH" test/demo

# The packages that take the longest come first, so that the others run beside them.
# Tests mostly wait, so that more packages run at a time than there are processors.
LONG     = ./test/e2e ./execd/internal/sandbox/worker ./execd/internal/daemon ./execd/transfer $(PARENT) ./execd/internal/hook \
           ./qrsh/session ./execd/internal/usage
PACKAGES = $$(($$(nproc) * 2))

# FAULT are the tests that do damage in one place after another, or wait for leases to end.
FAULT  = ^TestFault[A-Z]
FAULTY = $$(grep -rlE --include='*_test.go' '^func TestFault[A-Z]' . | xargs -n 1 dirname | sort -u)

# APART are the packages whose tests all have a target of their own.
APART  = /test/(dead|deps|engine|interop|soak|web|workflow)$$

# test is to be quick: go vet and who imports what are left to check, damage to faults and loads to soak. The
# packages share the binaries that their tests run.
QUICK = test/memory test/built $(GOTEST) -count=1 -vet=off -timeout 40m -p $(PACKAGES)
test:
	test/need $(NEED_TEST)
	$(QUICK) -skip '$(FAULT)' $(LONG) $$($(GO) list ./... | grep -vE '$(APART)')

faults:
	test/need $(NEED_TEST)
	$(QUICK) -run '$(FAULT)' $(FAULTY)

# accounts runs the quick tests as each kind of account that may run them: with the
# account paddock and without, with a home and without. Root only.
accounts:
	test/need $(NEED_TEST)
	test/accounts

race:
	test/need $(NEED_RACE)
	CGO_ENABLED=1 $(GOTEST) -race -short -vet=off -timeout 15m $(UNIT)
	CGO_ENABLED=1 $(GOTEST) -race -short -vet=off -timeout 15m -run '^TestFaultAtEveryWrite$$' $(PARENT)

fuzz:
	test/fuzz $(FUZZTIME) $(FUZZLIMIT) '$(FUZZBUILD)'

fmt:
	$(GO) run $(GOLANGCI_LINT) fmt

vet:
	$(GO) vet ./...

# lint includes formatting (gofumpt, goimports).
lint:
	$(GO) run $(GOLANGCI_LINT) run

man-lint:
	test/need $(NEED_MAN)
	mandoc -T lint -W warning man/man*/*

# deadcode fails for what neither a program nor a test reaches, and for what only tests
# reach unless it is in test/dead/list with the reason.
deadcode:
	$(GO) test -count=1 ./test/dead
	out=$$($(GO) run $(DEADCODE) -test ./...) && { [ -z "$$out" ] || { echo "$$out"; exit 1; }; }
	out=$$($(GO) run $(DEADCODE) $(PROGRAMS)) && echo "$$out" | $(GO) run ./test/dead $(PROGRAMS)

# deps-check looks at which package imports which, and what every binary links.
deps-check:
	$(GO) test -count=1 ./test/deps

deps-update:
	$(GO) test -count=1 ./test/deps -update

manifest-check:
	$(GO) test -count=1 -run '^TestManifest' ./test/e2e

# requirements writes which test holds what, and takes rows that have a test by now out
# of missing.
requirements:
	$(GO) generate ./test/requirements

# check is what make test does not do. lint includes go vet.
check: lint race man-lint deadcode deps-check packages-check

e2e:
	$(GOTEST) -count=1 -timeout 30m ./test/e2e

# classad-diff compares with another library of ClassAds, in a module of its own. Values
# that differ are errors; the times are for people.
classad-diff:
	$(GO) -C test/classad vet ./...
	$(GO) -C test/classad test -count=1 -v ./...

# interop runs beside a real Grid Engine, which it installs. Root only.
interop:
	PADDOCK_INTEROP=1 $(GOTEST) -count=1 -timeout 40m ./test/interop

workflow:
	test/need $(NEED_WORKFLOW)
	PADDOCK_WORKFLOW=1 $(GOTEST) -count=1 -timeout 30m -v ./test/workflow

# engine runs beside a real PostgreSQL and a real Slurm, which it installs, at full size also
# beside a real Grid Engine. Root only.
ENGINE_SCALE = 1
engine:
	test/need $(NEED_ENGINE) $(NEED_SLURM)
	PADDOCK_ENGINE=1 $(GOTEST) -count=1 -timeout 30m ./test/engine -scale $(ENGINE_SCALE)

# web has a browser look at the page of qweb, and Prometheus judge the metrics.
web:
	test/need $(NEED_WEB)
	PADDOCK_WEB=1 test/built $(GOTEST) -count=1 -timeout 20m ./test/web

# vm runs tests in a machine under qemu, which it installs: there control groups have
# every controller.
vm:
	test/need $(NEED_VM)
	test/vm/vm setup
	PADDOCK_VM=1 $(GOTEST) -count=1 -timeout 40m -v -run '^TestMachine$$' ./test/vm

# packages-check looks at the program that makes the packages, a module of its own.
packages-check:
	$(GO) -C packaging/build vet .
	$(GO) -C packaging/build test -count=1 .

# packages-test makes the packages, and installs them where that does no harm: in
# directories, and in a machine under qemu. Root only.
packages-test:
	test/need $(NEED_PACKAGES) $(NEED_VM)
	test/vm/vm setup
	PADDOCK_PACKAGES=1 $(GOTEST) -count=1 -timeout 40m -v ./test/packages

# soak adds power cuts, in a machine as that of vm, the test that compares times, and all
# steps and files of the tests that take a few.
soak:
	test/need $(NEED_VM) $(NEED_ENGINE) ip=iproute2
	test/vm/vm setup
	PADDOCK_SOAK=1 $(GOTEST) -count=1 -vet=off -run '^Test(PassIsQuick|RandomDays)$$' ./execd/internal/schedule
	[ "$(SOAK_SCALE)" != 1 ] || PADDOCK_SOAK=1 $(GOTEST) -count=1 -vet=off -timeout 30m -run 'Step$$|^TestMany$$|^TestDepth' ./execd/internal/sandbox/worker ./execd/internal/daemon ./execd/transfer
	$(GOTEST) -count=1 -timeout 60m -v ./test/soak -scale $(SOAK_SCALE) -seed $(SOAK_SEED)
	PADDOCK_VM=1 $(GOTEST) -count=1 -timeout 90m -v -run '^TestPowerCuts' ./test/vm -scale $(SOAK_SCALE) -seed $(SOAK_SEED)

# bench runs beside a real Grid Engine, OpenSSH, task-spooler and GNU parallel, which it
# installs, and draws when jobs ran with and without output that travels beside them. Root only.
bench: build
	test/need $(NEED_BENCH) $(NEED_ENGINE)
	$(GO) run ./test/bench -bin $(BIN) -svg test/bench/makespan.svg $(BENCHFLAGS)

# vuln is not in check, since its database is not reachable from every network.
vuln:
	$(GO) run $(GOVULNCHECK) ./...

clean:
	rm -rf bin coverage dist
