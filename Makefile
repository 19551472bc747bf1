# Every target works from a fresh clone on Debian or Ubuntu; `make setup` installs what is
# missing (as root, or with sudo).
PREFIX ?= /usr/local
CARGO ?= scripts/cargo

.PHONY: all build demo test bench setup setup-build check install release root clean

all: build

setup-build:
	scripts/setup build

setup:
	scripts/setup test

build: setup-build
	$(CARGO) build --release --locked

demo: build
	demo/run

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked -q
	$(CARGO) run -q --locked -p xtask -- tidy
	scripts/lint-packaging

root:
	@[ "$$(id -u)" = 0 ] || { echo "make test needs root, since tests load uprobes: sudo make test" >&2; exit 1; }

# Needs root: uprobes are loaded into the kernel. A test that cannot run fails. Tests send
# signals, which a caller like nohup may have had ignored. The suite of `trace` runs on uprobes, then
# on trampolines, whatever became of the first.
TEST = env --default-signal=HUP,INT,TERM,QUIT $(CARGO) test
test: root setup check
	@status=0; set -x; \
	$(TEST) --workspace --locked --no-fail-fast || status=$$?; \
	GOSPECT_TEST_BACKEND=trampoline $(TEST) -p gospect --locked --no-fail-fast \
		--test 'trace_*' || status=$$?; \
	exit $$status

# Needs root. About a quarter of an hour; results in bench/latest.json, docs/evaluation.md explains
# them and gets its tables from them.
bench:
	scripts/setup bench
	$(CARGO) run -q --locked -p xtask -- bench

install: build
	scripts/install "$$($(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/gospect" "$(DESTDIR)$(PREFIX)"

# One static program for any Linux, packed as dist/gospect-VERSION-x86_64-linux.tar.gz.
release: setup-build
	scripts/release

clean:
	$(CARGO) clean
