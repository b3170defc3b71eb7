# Everything the project does, one command each. `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help

# One set of flags for everything, so that product, tests and tools share one build cache. No toolchain is downloaded.
export GOTOOLCHAIN := local
export CGO_ENABLED := 0
export GOFLAGS := -trimpath

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
KUBERNETES := $(shell sed -n 's|^\tk8s.io/kubernetes ||p' go.mod)
# What --version, logs and the Prometheus metric kubernetes_build_info say.
LDFLAGS    := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)+spot-aware-scheduler.$(VERSION)

.PHONY: help
help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: build
build: ## Builds all binaries into bin/.
	go build -ldflags '$(LDFLAGS)' -o bin/spot-aware-scheduler ./cmd/scheduler
	go build -ldflags '$(LDFLAGS)' -o bin/spot-controller ./cmd/controller
	go build -ldflags '$(LDFLAGS)' -o bin/spot-extender ./cmd/extender
	go build -ldflags '$(LDFLAGS)' -o bin/spot-lab ./cmd/spot-lab
	go build -ldflags '$(LDFLAGS)' -o bin/kubectl-spot ./cmd/kubectl-spot

# What make image makes, one image for each binary: their names, for which architectures, and with PUSH=1 they go to the names' registry,
# each as one multi-arch image. The controller's and the extender's stand beside the scheduler's, with the same tag, unless they are named.
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

.PHONY: tools
tools: ## Builds the local control plane and the linters into .local/bin (minutes the first time).
	@hack/tools.sh

.PHONY: demo
demo: tools build ## Shows what this scheduler saves and what it keeps alive, on a real control plane. Works on a fresh machine.
	@bin/spot-lab demo

.PHONY: test
test: tools build ## Runs everything that must pass: unit, property and live tests.
	@hack/test.sh

.PHONY: test-long
test-long: tools build ## Runs make test and what takes longer: the race detector, many more random histories, timing again and again.
	@LONG=1 hack/test.sh

# What make bench measures: numbers of nodes (100,1000), of pods and of rounds; QUICK=1 is the size for CI. BENCH is more flags of
# test/performance, such as "-json FILE" or "-layout rare-spot".
QUICK  ?=
NODES  ?= $(if $(QUICK),100,5000)
PODS   ?= $(if $(QUICK),300,3000)
ROUNDS ?= $(if $(QUICK),1,3)
BENCH  ?=

.PHONY: bench
bench: tools build ## Measures speed and spread beside kube-scheduler, on a real API server (QUICK=1, NODES, PODS, ROUNDS, BENCH).
	@go build -o bin/bench ./test/performance
	@exec bin/bench -nodes $(NODES) -pods $(PODS) -rounds $(ROUNDS) $(BENCH)

.PHONY: test-skew
test-skew: tools build ## Runs the placement tests against the next minor version of Kubernetes (builds it; minutes the first time).
	@hack/test-skew.sh

.PHONY: test-node
test-node: ## Runs the shipped image from the shipped manifests on a real kubelet with containerd (Linux, root; IF_POSSIBLE=1).
	@hack/test-node.sh

.PHONY: bench-micro
bench-micro: ## Measures the plugins at each extension point beside in-tree ones, up to 100,000 nodes (minutes, 4 GB of memory).
	go test -count=1 -run '^$$' -bench . -benchtime 500ms -timeout 1h ./test/performance/micro

.PHONY: bench-extender
bench-extender: tools build ## Measures how long spot-extender takes to answer, at 5,000 nodes and with 16 clients at a time (BENCH).
	@go build -o bin/bench-extender ./test/performance/extender
	@exec bin/bench-extender $(BENCH)

.PHONY: bench-memory
bench-memory: tools build ## Measures the scheduler's memory with 5,000 nodes, 100,000 pods and 55,000 ReplicaSets (minutes, 8 GB of memory; BENCH).
	@go build -o bin/bench-memory ./test/performance/memory
	@exec bin/bench-memory $(BENCH)

.PHONY: bench-controller
bench-controller: tools build ## Measures the controller at rest with 5,000 nodes, 50,000 pods and 20 pod events a second: processor time and memory (BENCH).
	@go build -o bin/bench-memory ./test/performance/memory
	@exec bin/bench-memory -controller -pods 50000 $(BENCH)

.PHONY: bench-upstream
bench-upstream: tools ## Compares the shipped profile with the default one on Kubernetes' scheduler_perf (ROUNDS, WORKLOADS, SIZE).
	@hack/bench-upstream.sh

.PHONY: picture
picture: tools build ## Draws docs/dashboard.svg: what the dashboard shows while spot goes and comes back (three minutes).
	@hack/prometheus.sh
	@go run ./test/monitoring/picture

.PHONY: generate
generate: tools ## Writes the files that are made from Go types.
	@hack/generate.sh

.PHONY: verify
verify: tools ## Checks formatting, lint, modules and manifests.
	@hack/verify.sh

.PHONY: clean
clean: ## Removes what was built, tools included.
	rm -rf bin .local
