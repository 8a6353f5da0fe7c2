# `make demo` and `make test` need nothing but Python 3.11 or later and make; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Without a torch there already, this release is installed first, so that no other one is drawn in with it.
TORCH  ?= torch==2.13.0

.PHONY: help demo test nightly explore lab-packages lab-test package sbom container-test timm-test page-test metrics-test screenshots check format lint types bench fuzz pages readme docs papers clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Scripts of an environment, such as pip, name the interpreter that they were installed for. In a folder that was copied
# with its .venv that one is the original's; so commands here are `python -m`, and the package is installed once more.
ifneq ($(wildcard $(READY)),)
INSTALLED := $(shell $(BIN)/python -I -c 'import os, paceline; print(os.path.realpath(paceline.__path__[0]))' 2>/dev/null)
ifneq ($(INSTALLED),$(realpath paceline))
.PHONY: $(READY)
endif
endif

$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Paceline needs Python 3.11 or later: set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Paceline needs Python 3.11 or later: set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[dev,integrations]'
	# Without what it depends on: it asks for torchvision, whose newest release would replace torch, and is used without.
	$(BIN)/python -m pip install --quiet --no-deps 'pytorchcv>=0.0.74'
	@! test -d .git || git config core.hooksPath .githooks
	@touch $@

demo: $(READY)  ## the main job: a race of five schemes on uneven workers, with a table and a figure
	$(BIN)/python -m paceline race --schemes bsp,asp,ssp,gsp,esync --data digits --workers 4 --slowdown 1,1,2,8 --step-ms 20 --target-accuracy 0.95 --out runs/demo-$$(date +%Y%m%d-%H%M%S)

# One more process than two cores: tests of runs wait now and then.
PROCESSES ?= 3
TESTS ?=
test: $(READY)  ## all tests, or TESTS=tests/core, in PROCESSES=3
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal $(TESTS)

lab-packages:  ## Debian packages for tests on several hosts made of network namespaces, and with Redis; as root
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssh-server openssh-client rsync \
	  iproute2 util-linux openmpi-bin munge slurm-client slurmctld slurmd slurm-wlm-basic-plugins redis-server

lab-test: $(READY) lab-packages  ## those tests, and what CI does without: Grid Engine, Ray, and what takes a minute
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  gridengine-master gridengine-exec gridengine-client
	$(BIN)/python -m pip install --quiet "ray>=2.60"
	LAB=all $(BIN)/python -m pytest tests/lab

timm-test: $(READY)  ## tests of timm's loop as a worker, with timm and torchvision in build/timm, beside the environment
	# Without what they depend on: torchvision's own torch is one with CUDA. The environment has the rest.
	@test -d build/timm/timm || $(BIN)/python -m pip install --quiet --no-deps --target build/timm 'timm>=1.0.31' 'torchvision>=0.28'
	PYTHONPATH=$(CURDIR)/benchmarks/scripts/beside_cpu_torch:$(CURDIR)/build/timm \
	  $(BIN)/python -m pytest -n 0 -k timm tests/integrations tests/examples

package: $(READY)  ## build the wheel and the sdist, install each with its dependencies in a new environment, train there
	$(BIN)/python -m scripts.check_package --install

sbom: $(READY)  ## what the package draws in, as a bill of materials: build/sbom.json (CycloneDX)
	@test -x build/sbom/bin/python || $(PYTHON) -m venv build/sbom
	build/sbom/bin/python -c 'import torch' 2>/dev/null || build/sbom/bin/python -m pip install --quiet '$(TORCH)'
	build/sbom/bin/python -m pip install --quiet .
	@build/sbom-tool/bin/python -c 'import cyclonedx_py' 2>/dev/null || { $(PYTHON) -m venv build/sbom-tool && build/sbom-tool/bin/python -m pip install --quiet 'cyclonedx-bom>=7'; }
	build/sbom-tool/bin/python -m cyclonedx_py environment --pyproject pyproject.toml --output-file build/sbom.json build/sbom/bin/python

# A folder of wheels that pip looks into as well.
WHEELS ?=
container-test: $(READY)  ## the Dockerfile's steps in a debootstrap root, then the compose file's services there; as root
	@command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
	mkdir -p build
	$(BIN)/python -m scripts.container_root build/container $(if $(WHEELS),--find-links $(WHEELS))

page-test: $(READY)  ## the live page in a headless browser; installs Debian's chromium where there is none
	@command -v chromium >/dev/null || apt-get install -y --no-install-recommends chromium fonts-dejavu-core
	$(BIN)/python -m pytest tests/observe/watch/test_page.py

metrics-test: $(READY)  ## /metrics before Prometheus' own promtool; installs Debian's prometheus where there is none, as root
	@command -v promtool >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus
	$(BIN)/python -m pytest tests/observe/export

screenshots: $(READY)  ## pictures of the live page for docs/images
	$(BIN)/python -m scripts.screenshots

check: $(READY) format lint types test  ## what CI runs: format, lint, types, tests

format: $(READY)
	$(BIN)/python -m ruff format --check .

lint: $(READY)
	$(BIN)/python -m ruff check .

types: $(READY)
	$(BIN)/python -m mypy

bench: $(READY)  ## every benchmark script; at the end, those that fell short
	@short=; for script in benchmarks/[a-z]*.py; do \
	  echo "== $$script"; $(BIN)/python $$script || short="$$short $$script"; \
	done; if [ -n "$$short" ]; then echo "fell short:$$short"; exit 1; fi

# Which third of the schemes: 1, 2, 3, or today, by the day of the year.
THIRD ?= today
nightly: $(READY)  ## a third of the schemes, live, with killed and stopped workers; THIRD=1, 2, 3 or today; five minutes
	$(BIN)/python benchmarks/losses.py --third $(THIRD)

TIMES ?= 10
explore: $(READY)  ## property tests with new examples, TIMES=10 times; tests of a change draw the same ones each time
	@for i in $$(seq $(TIMES)); do \
	  $(BIN)/python -m pytest -q -n $(PROCESSES) -m hypothesis --hypothesis-profile "new examples" tests || exit 1; \
	done

SECONDS ?= 60
fuzz: $(READY)  ## schemes under seeded faults in virtual time, for SECONDS=60
	$(BIN)/python -m paceline fuzz --seconds $(SECONDS)

mutants: $(READY)  ## a table of the bugs planted in code of live runs, and what sees each; some minutes
	$(BIN)/python benchmarks/live_mutants.py --listed

pages: $(READY)  ## docs/schemes: a page and a figure for every scheme, from its docstring; the index of decisions; the types of options
	$(BIN)/python -m scripts.scheme_pages
	$(BIN)/python -m scripts.decision_index
	$(BIN)/python -m scripts.option_types

readme: $(READY)  ## every command of the README as it is written, in an empty folder; five minutes
	$(BIN)/python -m scripts.readme_commands

docs: $(READY)  ## the documentation as a site, in build/site; any warning is an error
	@$(BIN)/python -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in build/site: open build/site/index.html"

QUICK = --data digits --model cifar10-quick --width 0.25 --resize 16

papers: $(READY)  ## the papers' claims again, each with its page in docs/papers
	for paper in dcasgd diloco esync esync_networks gsp lbbsp lm networks prague speedo theanompi weighting; do $(BIN)/python benchmarks/papers/$$paper.py || exit 1; done
	$(BIN)/python benchmarks/papers/speedo.py $(QUICK) --page speedo_cifar10_quick --target 0.9 --every 2 --epochs 15 --lrs 0.01,0.03,0.1
	$(BIN)/python benchmarks/papers/gsp.py $(QUICK) --page gsp_cifar10_quick --target 0.8 --every 1 --epochs 25 --lrs 0.003,0.01,0.03 --seeds 1,2

clean:  ## remove what was built, runs excepted
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
