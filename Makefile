# The commands of the project. `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help

# Product, tests and tools use the same flags, so they share one build cache. No toolchain is
# downloaded.
export GOTOOLCHAIN := local
export CGO_ENABLED := 0
export GOFLAGS := -trimpath

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
KUBERNETES := $(shell sed -n 's|^\tk8s.io/kubernetes ||p' go.mod)
# The version in --version, logs and the Prometheus metric kubernetes_build_info.
LDFLAGS    := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)+spot-aware-scheduler.$(VERSION)

.PHONY: help
help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: build
build: build-lab ## Builds all binaries into bin/.
	go build -ldflags '$(LDFLAGS)' -o bin/spot-extender ./cmd/extender
	go build -ldflags '$(LDFLAGS)' -o bin/kubectl-spot ./cmd/kubectl-spot

# make demo and make replay need only these binaries.
.PHONY: build-lab
build-lab:
	go build -ldflags '$(LDFLAGS)' -o bin/spot-aware-scheduler ./cmd/scheduler
	go build -ldflags '$(LDFLAGS)' -o bin/spot-controller ./cmd/controller
	go build -ldflags '$(LDFLAGS)' -o bin/spot-lab ./test/spot-lab

# make image builds one image per binary. These are the image names and the architectures. With
# PUSH=1 it pushes each as one multi-arch image to the registry in the name. By default the images
# of the controller and the extender have the scheduler image's repository prefix and tag.
IMAGE ?= localhost/spot-aware-scheduler:dev
CONTROLLER_IMAGE ?= $(patsubst ./%,%,$(dir $(IMAGE))spot-controller:$(lastword $(subst :, ,$(IMAGE))))
EXTENDER_IMAGE ?= $(patsubst ./%,%,$(dir $(IMAGE))spot-extender:$(lastword $(subst :, ,$(IMAGE))))
ARCHS ?= amd64 arm64
PUSH  ?=

.PHONY: image
image: export IMAGE := $(IMAGE)
image: export CONTROLLER_IMAGE := $(CONTROLLER_IMAGE)
image: export EXTENDER_IMAGE := $(EXTENDER_IMAGE)
image: export ARCHS := $(ARCHS)
image: export PUSH := $(PUSH)
image: export VERSION := $(VERSION)
image: export LDFLAGS := $(LDFLAGS)
image: ## Builds the container images for amd64 and arm64, with docker or buildah, and checks them (IMAGE, ARCHS, PUSH=1).
	@hack/image.sh

# make release writes dist/VERSION. REGISTRY contains the images after they are pushed.
REGISTRY ?= ghcr.io/spot-aware-scheduler

.PHONY: release
release: export VERSION := $(VERSION)
release: export REGISTRY := $(REGISTRY)
release: export LDFLAGS := $(LDFLAGS)
release: ## Builds all files of a release into dist/VERSION, and checks them (VERSION=v0.1.0, REGISTRY; minutes the first time).
	@go run ./hack/release build -version "$$VERSION" -registry "$$REGISTRY" -ldflags "$$LDFLAGS"
	@go run ./hack/release check -version "$$VERSION" "dist/$$VERSION"

.PHONY: test-release
test-release: ## Builds a release twice, in two folders with two build caches, and compares all digests (SECOND_CACHE; many minutes).
	@hack/test-release.sh

.PHONY: tools
tools: ## Builds the local control plane and the linters into .local/bin (minutes the first time).
	@hack/tools.sh

# make demo and make replay need neither kubectl, linters, Helm nor Karpenter.
.PHONY: control-plane
control-plane:
	@hack/tools.sh control-plane

# The log of the programs that make demo builds. Downloads and compilers write many lines.
BUILD_LOG ?= .local/demo-build.log

.PHONY: demo
demo: ## Demonstrates cost and availability on a real control plane, in less than three minutes (BUILD_LOG; more the first time).
	@mkdir -p $(dir $(BUILD_LOG))
	@echo "building; the first time takes minutes; the log is $(BUILD_LOG)"
	@$(MAKE) control-plane build-lab >$(BUILD_LOG) 2>&1 || { tail -n 15 $(BUILD_LOG) >&2; echo "demo: the build failed; the log is $(BUILD_LOG)" >&2; exit 1; }
	@bin/spot-lab demo

# The folder with recorded traces for make replay. REPLAY contains more flags of spot-lab replay.
SPOT_DATA ?= ../shared/data
REPLAY    ?=

.PHONY: replay
replay: export SPOT_DATA := $(SPOT_DATA)
replay: control-plane build-lab ## Replays recorded spot capacity under all arms, and reports cost and availability (SPOT_DATA, REPLAY; minutes per arm).
	@hack/replay.sh $(REPLAY)

.PHONY: results
results: export SPOT_DATA := $(SPOT_DATA)
results: control-plane build-lab ## Replays all recorded traces and writes docs/results/figures.md (SPOT_DATA; two hours).
	@hack/results.sh

.PHONY: test
test: tools build ## Runs all required tests: unit, property and live tests.
	@hack/test.sh

.PHONY: test-unit
test-unit: tools build ## Runs the tests that start no control plane. Cached results of the product count.
	@UNIT=1 hack/test.sh

.PHONY: test-long
test-long: tools build ## Runs make test plus slow tests: race detector, many more random histories, repeated timing tests.
	@LONG=1 hack/test.sh

# Parameters of make bench: numbers of nodes (100,1000), of pods and of rounds. QUICK=1 selects the
# size for CI. BENCH contains more flags of test/performance, such as "-json FILE" or "-layout
# rare-spot".
QUICK  ?=
NODES  ?= $(if $(QUICK),100,5000)
PODS   ?= $(if $(QUICK),300,3000)
ROUNDS ?= $(if $(QUICK),1,3)
BENCH  ?=

.PHONY: bench
bench: tools build ## Compares speed and spread with kube-scheduler, on a real API server (QUICK=1, NODES, PODS, ROUNDS, BENCH).
	@go build -o bin/bench ./test/performance
	@exec bin/bench -nodes $(NODES) -pods $(PODS) -rounds $(ROUNDS) $(BENCH)

# MINOR is 1.34, 1.35, 1.36 or 1.37. PARTS selects parts of the tests, and RUN selects tests
# of PARTS (hack/test-skew.sh).
MINOR ?= 1.37
PARTS ?=
RUN   ?=

.PHONY: test-skew
test-skew: export MINOR := $(MINOR)
test-skew: export PARTS := $(PARTS)
test-skew: export RUN := $(RUN)
test-skew: tools build ## Runs the live tests against a minor version of Kubernetes (MINOR, PARTS, RUN; builds it; half an hour).
	@hack/test-skew.sh

.PHONY: test-node
test-node: ## Runs the shipped image from the shipped manifests on a real kubelet with containerd (Linux, root; IF_POSSIBLE=1).
	@hack/test-node.sh

.PHONY: bench-micro
bench-micro: ## Compares the plugins at each extension point with in-tree plugins, up to 100,000 nodes (minutes, 4 GB of memory).
	go test -count=1 -run '^$$' -bench . -benchtime 500ms -timeout 1h ./test/performance/micro

.PHONY: bench-extender
bench-extender: tools build ## Measures the latency of spot-extender with 5,000 nodes and 16 concurrent clients (BENCH).
	@go build -o bin/bench-extender ./test/performance/extender
	@exec bin/bench-extender $(BENCH)

.PHONY: bench-memory
bench-memory: tools build ## Measures the scheduler's memory with 5,000 nodes, 100,000 pods and 55,000 ReplicaSets (minutes, 8 GB of memory; BENCH).
	@go build -o bin/bench-memory ./test/performance/memory
	@exec bin/bench-memory $(BENCH)

.PHONY: bench-controller
bench-controller: tools build ## Measures CPU time and memory of the idle controller with 5,000 nodes, 50,000 pods and 20 pod events per second (BENCH).
	@go build -o bin/bench-memory ./test/performance/memory
	@exec bin/bench-memory -controller -pods 50000 $(BENCH)

.PHONY: bench-upstream
bench-upstream: tools ## Compares the shipped profile with the default one on Kubernetes' scheduler_perf (ROUNDS, WORKLOADS, SIZE).
	@hack/bench-upstream.sh

.PHONY: site
site: export SITE_BASE := $(SITE_BASE)
site: ## Builds the documentation site into dist/site with Node.js; fails if a link is broken (SITE_BASE).
	@hack/site.sh

# PICTURES is a folder for pictures of all pages. CHROMIUM is the browser.
PICTURES ?=

.PHONY: test-site
test-site: site ## Checks the site in headless Chromium: clipped cells, pictures, search (CHROMIUM, PICTURES; a minute).
	@node site/check.mjs dist/site $(PICTURES)

.PHONY: generate
generate: tools ## Generates files from Go types, the reference of the configuration, tables of docs, and the README of the chart.
	@hack/generate.sh

.PHONY: verify
verify: tools ## Checks formatting, lint, modules and manifests.
	@hack/verify.sh

# The version of govulncheck. It reads the database of Go vulnerabilities: vuln.go.dev, or VULNDB.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
VULNDB ?= https://vuln.go.dev

.PHONY: vuln
vuln: ## Lists known vulnerabilities that the binaries can reach (VULNDB, a URL).
	GOWORK=off go run $(GOVULNCHECK) -db $(VULNDB) ./cmd/...

.PHONY: clean
clean: ## Removes all build results, including tools.
	rm -rf bin dist .local site/node_modules
