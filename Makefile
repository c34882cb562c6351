# What a person types. `make` alone prints the list.
# Every command works on the current context of KUBECONFIG (or ~/.kube/config); `make demo` only when KUBECONFIG is given on its command line.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Where cargo puts the programs.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Image of the operator, for docker-build, docker-push and deploy.
IMG ?=
# User name of an operator that is started by hand under another name than the service account's, for install.
IDENTITY ?=
# Namespaces in which the operator is to work, for install and deploy: it gets no rights over what users have in others.
WATCH ?=
# More flags of `sts-plus run`, for run and deploy, such as ARGS='--allowed-origin=https://prometheus.monitoring:9090 --require-labelled-secrets'.
ARGS ?=

export STS_PLUS := $(TARGET)/debug/sts-plus
operator := scripts/operator
watch = $(foreach namespace,$(WATCH),--watch-namespace '$(namespace)')

.PHONY: help
help: ## print this list
	@echo 'sts-plus: safe rollouts of StatefulSets, held between pods until Prometheus checks pass'
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ try it and test it

.PHONY: demo
demo: ## show a bad release that is stopped, and versions side by side, on real parts of this machine; KUBECONFIG=… for a cluster of your own
	@scripts/build '1.37' build --workspace --test generated --bin sts-plus --bin demo
	@$(TARGET)/debug/demo $(if $(filter command,$(origin KUBECONFIG)),--kubeconfig '$(KUBECONFIG)')

.PHONY: test
test: ## build what is missing, run every test and lint, print the counts
	@scripts/test

.PHONY: soak
soak: ## what takes too long for every day: the long tests, other Kubernetes, fuzzing; STS_PLUS_FUZZ_SECONDS=… for each parser
	@scripts/test soak

.PHONY: bench
bench: ## measure on this machine and print one table; SIZE=full takes hours and writes docs/performance.md; OTHER=<command> for another operator
	@scripts/bench

.PHONY: lint
lint: ## format check, clippy, licences and bans of dependencies, documentation, shell scripts
	@scripts/test lint

.PHONY: fmt
fmt: ## format the code
	@cargo fmt --all

.PHONY: build
build: ## build the operator and nothing else
	@cargo build --package sts-plus --bin sts-plus

# With the features of what the tests build, so that who develops compiles nothing twice.
.PHONY: manifests
manifests: ## write deploy/*.yaml anew from the code
	@cargo build --workspace --test generated --bin sts-plus
	@$(STS_PLUS) crds > deploy/crds.yaml
	@$(STS_PLUS) manifests > deploy/install.yaml
	@$(STS_PLUS) manifests --image sts-plus:latest --operator-only > deploy/operator.yaml

##@ use it on a cluster

.PHONY: install
install: build ## install definitions, roles, service account and policies; IDENTITY=<user name> for an operator under another name; WATCH='<namespaces>' for these alone
	@$(operator) install $(watch) $(if $(IDENTITY),--identity '$(IDENTITY)')

.PHONY: run
run: build ## run the operator in the foreground, as the installed service account; ARGS=… for more flags; WATCH='<namespaces>' as installed
	@$(operator) run $(foreach namespace,$(WATCH),--namespace '$(namespace)') $(ARGS)

.PHONY: deploy
deploy: build ## install, and run the operator in the cluster; IMG=<image>; ARGS=… and WATCH=… as above
	@$(if $(IMG),,$(error IMG is missing: make deploy IMG=<image of sts-plus>))$(operator) install $(watch) --image '$(IMG)' $(if $(ARGS),-- $(ARGS))

.PHONY: docker-build
docker-build: ## build the image of the operator with docker, podman or buildah; IMG=<image>
	@scripts/image build '$(IMG)'

.PHONY: docker-push
docker-push: ## push it; IMG=<image>
	@scripts/image push '$(IMG)'

.PHONY: uninstall
uninstall: build ## release every StatefulSet (nothing rolls), then remove all that was installed
	@$(operator) uninstall

.PHONY: undeploy
undeploy: uninstall ## the same as uninstall
