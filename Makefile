# Weir's make targets; `make help` lists them. Everything is built from here, nothing by hand.

# As build has them: tests and linters read what it compiled.
export GOFLAGS     ?= -trimpath
export CGO_ENABLED ?= 0

GO       ?= go
BIN      := bin
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X github.com/weirlb/weir/internal/daemon.Version=$(VERSION)
PROGRAMS := weir weir-manager weir-mux weir-agent weir-switch
BUF      := $(GO) tool -modfile=tools/buf/go.mod buf
LINT     := $(GO) tool -modfile=tools/golangci/go.mod golangci-lint
BPF_C    := $(shell find bpf internal test -name '*.c' -o -name '*.h' | grep -v '^bpf/include/')
# What bpf2go writes, with Go beside each. It is written anew when a source of any is newer.
BPF_O    := internal/datapath/mux/bpf/mux_bpfel.o internal/datapath/agent/bpf/agent_bpfel.o internal/testkit/bpftest/relay/relay_bpfel.o \
	internal/testkit/bpftest/syncookie/twin_bpfel.o internal/testkit/bpftest/datagram/twin_bpfel.o internal/testkit/bpftest/fbt/maker_bpfel.o \
	internal/testkit/bpftest/fbt/stripper_bpfel.o internal/testkit/bpftest/overlay/twin_bpfel.o internal/datapath/overlay/overlay_bpfel.o internal/hardware/xdp/bpf/switch_bpfel.o \
	test/bench/mux/bench_bpfel.o test/bench/switch/bench_bpfel.o test/bench/keys/keys_bpfel.o
BPF_IN   := $(BPF_C) $(shell find bpf/include -type f; grep -rl --include=*.go '^//go:generate' internal test) go.mod

.DEFAULT_GOAL := help
.PHONY: help machine first-hour bare setup bpf build packages release site print-ldflags generate test unit datapath race e2e labs alone schemathesis faults demo bench-mux bench-agent bench-overlay bench-bypass bench-compare bench-snat bench-fastpath bench-flood bench-manager bench-hardware bench-strangers bench-switch papers api-test fuzz fuzz-packets mutate lint lint-go linters fmt ui ui-test ansible-test screenshots clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

machine: ## Say whether this machine can run tests and the lab, and what to do if not
	@scripts/machine.sh

first-hour: release ## Play the first steps from out/release alone, on machines of Debian 13 without Go, in folders
	@scripts/first-hour.sh

bare: ## Make TARGETS (default: demo) on a Debian 13 that has nothing but git and make, in a folder, on this kernel
	@scripts/bare.sh $(TARGETS)

setup: ## Install missing packages (root; Debian 13, or 12 with Go from backports)
	@scripts/setup.sh

bpf: $(BPF_O) ## Compile the eBPF programs

$(BPF_O) &: $(BPF_IN) | setup
	@$(GO) generate ./internal/datapath/... ./internal/hardware/... ./internal/testkit/bpftest/... ./test/bench/...

build: bpf ## Build the four programs into bin/
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))

packages: build ## Write deb and rpm packages into out/packages
	@scripts/packages.sh $(BIN) out/packages
	@ls out/packages

release: build ## Write packages, archives, images, bills of materials and repositories of amd64 and arm64 into out/release
	@scripts/release.sh out/release
	@cat out/release/SHA256SUMS

site: ## Make a site of docs/ in out/site, and check its links
	@scripts/site.sh

print-ldflags:
	@echo "$(LDFLAGS)"

generate: bpf ## Regenerate everything that is generated and committed
	@$(BUF) generate
	@$(BUF) build --output - | $(GO) run ./api/schema
	@$(MAKE) --no-print-directory build
	@for name in manager mux agent switch; do $(BIN)/weir-$$name config >deploy/config/$$name.yaml; done

test: machine build ## Run every test: units, packet tables, namespaces, lab, and the API by schemathesis (in CI always)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target race datapath schemathesis
	@$(MAKE) --no-print-directory labs
	@$(MAKE) --no-print-directory alone

unit: build ## Run all tests but those in the lab; with the race detector where there is something for it to find
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target race datapath

# Most of these packages wait more than they compute: more of them at a time than there are CPUs.
datapath: bpf ## Run the tests that load eBPF programs, those of what only computes, and those of packages and tools
	RETRY=1 scripts/test.sh -count=1 -timeout 30m -p 3 $$($(GO) list ./... | grep -v $(LABS:%=-e /test/%) $(ALONE:%=-e /test/%) -e /test/churn | grep -vxF "$$(scripts/race-packages.sh)")

# What waits longest begins.
race: bpf ## Run the tests of what has goroutines and loads no eBPF program, with the race detector
	CGO_ENABLED=1 RETRY=1 scripts/test.sh -race -count=1 -timeout 30m -p 3 ./internal/manager $$(scripts/race-packages.sh | grep -v /internal/manager$$)

LABS  := e2e upgrade faults docs networks hardware multipath segment
ALONE := synflood fair moved

e2e: labs alone ## Run the tests in the lab: end to end, and the commands of the documents

labs: build ## Run those of them that bear others beside them, few at a time: a lab has fifty programs and two CPUs
	RETRY=1 WEIR_BIN=$(CURDIR)/$(BIN) scripts/test.sh -count=1 -timeout 30m -p 2 -parallel 2 $(LABS:%=./test/%)

alone: build ## Run those that bound how long something may take or flood, which have the machine to themselves
	RETRY=1 WEIR_BIN=$(CURDIR)/$(BIN) scripts/test.sh -count=1 -timeout 30m ./test/churn
	RETRY=1 WEIR_BIN=$(CURDIR)/$(BIN) scripts/test.sh -count=1 -timeout 30m -p 1 $(ALONE:%=./test/%)

schemathesis: build ## Send the manager what its OpenAPI document allows and what it does not, unless the tool can't be installed (in CI it must)
	@scripts/schemathesis.sh $(if $(CI),,--may-skip)

faults: build ## Break the control plane, and switches that serve VIPs, in every way, with SEEDS seeds each (default 1)
	WEIR_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -v -timeout 24h ./test/faults -seeds $(or $(SEEDS),1) -first $(or $(FIRST),1)
	WEIR_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -v -timeout 24h ./test/hardware -seeds $(or $(SEEDS),1) -seed $(or $(FIRST),1)

demo: machine build ## Raise a lab, balance real traffic, cut a mux's power, clean up
	@$(BIN)/weir lab demo

bench-mux: build ## Time the mux's program against the floor; writes out/bench/mux.json
	@$(GO) run ./test/bench/mux -out out/bench/mux.json

bench-agent: build ## Time iperf3 through the agent and without it; writes out/bench/agent.json
	@$(GO) run ./test/bench/agent -out out/bench/agent.json

bench-overlay: bpf ## Time the programs of load-balancer bypass on a server's host; writes out/bench/overlay.json
	@$(GO) run ./test/bench/overlay -out out/bench/overlay.json

bench-bypass: build ## Time load-balancer bypass, in a lab and by its programs alone, as NGLB's figures; writes out/papers and docs/papers.md
	@$(GO) run ./test/papers -figures nglb-12,nglb-13,nglb-14,nglb-15,nglb-16,nglb-cps,nglb-bulk,nglb-cleaner,nglb-failures,nglb-mux

bench-compare: bpf ## Tell whether mux and agent are slower than in commit BASE (OVERLAY=1 if its benches take no turns); writes out/bench/compare.json
	@$(GO) run ./test/bench/compare -base '$(BASE)' $(if $(OVERLAY),-overlay) -out out/bench/compare.json

bench-snat: build ## Time connections that leave as VIPs, in a lab; writes out/bench/snat.json and docs/figures
	@$(GO) run ./test/bench/snat -bin $(BIN) -out out/bench/snat.json -plots docs/figures

bench-fastpath: build ## Time connections that leave the muxes, in a lab; writes out/bench/fastpath.json and docs/figures
	@$(GO) run ./test/bench/fastpath -bin $(BIN) -out out/bench/fastpath.json -plots docs/figures

bench-flood: build ## Flood one of five tenants in a lab; writes out/bench/flood.json and docs/figures
	@$(GO) run ./test/bench/flood -bin $(BIN) -out out/bench/flood.json -plots docs/figures

bench-manager: build ## Time the control plane with simulated muxes and agents; writes out/bench/manager.json
	@$(GO) run ./test/bench/manager -out out/bench/manager.json -plots docs/figures

bench-hardware: build ## Time what hosts and simulated switches are told of VIPs in switches; writes out/bench/hardware.json
	@$(GO) run ./test/bench/manager -only hardware -limit 30m -out out/bench/hardware.json

bench-strangers: build ## Time what requests of strangers cost a manager; writes out/bench/strangers.json
	@$(GO) run ./test/bench/strangers -out out/bench/strangers.json

bench-switch: bpf ## Time the stand-in for a switch against the mux's floor; writes out/bench/switch.json
	@$(GO) run ./test/bench/switch -out out/bench/switch.json

papers: ## List the figures of the papers, or run FIGURES=ananta-11,ananta-14; writes out/papers and docs/papers.md
	@$(if $(FIGURES),$(MAKE) --no-print-directory build)
	@$(GO) run ./test/papers -figures '$(FIGURES)'

api-test: build ## Send the manager what its OpenAPI document allows, and what it does not (schemathesis, by PyPI)
	@scripts/schemathesis.sh

fuzz: bpf ## Fuzz each parser for a minute
	@scripts/fuzz.sh 60s

fuzz-packets: bpf ## Give the programs a million hostile packets of each class
	@$(GO) test -count=1 -timeout 60m -v -run TestHostilePackets ./internal/datapath/agent ./internal/datapath/mux -packets 1000000

mutate: bpf ## Put faults into the eBPF programs and the Go of the control plane, and see that a test finds each; RUN=regexp for some
	@$(GO) run ./test/mutate -run '$(RUN)'

lint: lint-go ## Run all linters and check that generated files are current
	$(BUF) lint
	clang-format-19 --dry-run --Werror $(BPF_C)
	$(MAKE) --no-print-directory generate
	git diff --exit-code -- api deploy internal '*.go'

lint-go: bpf ## Run the linters of Go, which remember what they have seen
	$(LINT) run ./...

linters: ## Compile the linters that are written in Go, which are cached from then on
	@$(LINT) version >/dev/null
	@$(BUF) --version >/dev/null

fmt: ## Format Go, C and protobuf
	$(LINT) fmt ./...
	clang-format-19 -i $(BPF_C)
	$(BUF) format -w

ui: ## Build the web page into internal/webui/dist, which is committed (Node 20 or later)
	@scripts/ui.sh build

ui-test: build ## Open the web page in a browser, of managers and of a lab (Node 20 or later, chromium); writes out/ui/lab.jsonl
	@scripts/ui.sh test

ansible-test: ## Play the Ansible collection on machines under systemd (PyPI)
	@scripts/ansible.sh

screenshots: build ## Take the pictures of the web page in docs/images, in a lab (Node 20 or later, chromium)
	@scripts/screenshots.sh

clean: ## Remove what was built
	rm -rf $(BIN) out
	find internal test -name '*_bpfel.o' -delete
