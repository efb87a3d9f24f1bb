.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
PROFILE ?= fast
LAB ?= process
WORKERS ?= $(if $(filter libvirt,$(LAB)),0,3)
ARGS ?=
N ?= 10
SEED ?= 12
# Of those that run on virtual machines, one for each fault.
VM_SCENARIOS := scenarios/partition/test_recovery.py scenarios/monitoring/test_silent_nodes.py \
    scenarios/naming/test_reboot.py scenarios/shutdown/test_graceful.py scenarios/shutdown/test_unnoticed.py \
    scenarios/swap/test_swap.py::test_limited_swap_is_for_burstable_pods

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## OS packages, virtual environment, Kubernetes components; done already costs under a second
	@infra/setup.sh $(filter libvirt,$(LAB))
	@$(BIN)/nodeproof components >/dev/null

run: setup ## the whole line: lab, scenarios, verdicts, Allure site under reports/out/latest
	@$(BIN)/nodeproof run --lab=$(LAB) --profile=$(PROFILE) -n $(WORKERS) --dist=loadfile --no-loadscope-reorder $(ARGS)

report: setup ## serve the last site on a free loopback port
	@$(BIN)/nodeproof report

lint: setup ## ruff, mypy, import-linter, shellcheck
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports
	@$(BIN)/shellcheck infra/*.sh infra/image/*.sh infra/image/files/usr/local/sbin/* .ci/run

unit: setup ## unit tests
	@$(BIN)/pytest -q -p no:cacheprovider tests/unit

test-go: setup ## the Go tests of the executables
	@$(BIN)/pytest -q -p no:cacheprovider tests/go

contract: setup ## every lab, machine and fault against the same tests
	@$(BIN)/pytest -q -p no:cacheprovider --contract-lab=$(LAB) tests/contract

test-vm: ## virtual machines: contract tests of machine, fault, lab and safety, one scenario of each fault
	@$(MAKE) --no-print-directory setup LAB=libvirt
	@$(BIN)/pytest -q -p no:cacheprovider --contract-lab=libvirt -m vm --durations=10 tests/contract
	@$(BIN)/nodeproof run --lab=libvirt --nodes=2 $(VM_SCENARIOS)

box: ## the guest as a Vagrant box in .box, for the Vagrantfile
	@infra/setup.sh vagrant
	@$(BIN)/nodeproof box $(ARGS)

test-vagrant: ## vagrant up, ssh and destroy with a private libvirtd (2 to 4 minutes)
	@infra/setup.sh vagrant
	@$(BIN)/pytest -q -s -p no:cacheprovider tests/vm/test_vagrant.py

acceptance: setup ## the real line, and clusters on which verdicts must fall
	@$(BIN)/pytest -q -p no:cacheprovider tests/acceptance

test: lint unit test-go contract acceptance ## all of it

documented: setup ## the defaults at their real length (about 8 minutes)
	@$(BIN)/nodeproof run --lab=$(LAB) --profile=documented -k without $(ARGS)

soak: setup ## kill random parts at random moments of random faults, N times from SEED; nothing may be left
	@$(BIN)/python -m tests.soak --rounds $(N) --seed $(SEED) --lab $(LAB)

bench: setup ## figures beside their anchors, with the machine's description
	@$(BIN)/python -m infra.bench.bench --lab=$(LAB) $(ARGS)

soak-boots: ## 20 boots of two virtual machines, without one panic or missing node
	@$(MAKE) --no-print-directory setup LAB=libvirt
	@$(BIN)/python -m infra.bench.soak $(ARGS)

LOCKED := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock: ## write the lock files anew
	@$(BIN)/uv pip compile $(LOCKED) --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/python -c 'import pathlib, tomllib; \
	    print(*tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["optional-dependencies"]["libvirt"])' | \
	    $(BIN)/uv pip compile $(LOCKED) - -o requirements-libvirt.lock

clean: ## remove the virtual environment, generated reports and the Vagrant box
	@rm -rf .venv reports/out .box

.PHONY: help setup run report lint unit test-go contract test-vm box test-vagrant acceptance test documented \
    soak bench soak-boots lock clean
