# For developers; the README's two commands are scripts/demo and scripts/test.
.PHONY: check build dev lock

check: ## lint, types, boundaries, the panel's checks and all tests
	./scripts/test

build: ## sdist and wheel into dist/, with the built panel
	npm ci --ignore-scripts
	npm run build
	python3 -m pip wheel --no-deps --wheel-dir dist .
	python3 setup.py -q sdist

dev: ## this tree, editable, in the active virtual environment, with panel and server extension switched on
	python3 -m pip install --editable '.[hub,server,test]'
	npm ci --ignore-scripts
	npm run build
	cd labextension && jupyter-builder develop . --overwrite
	jupyter server extension enable hub_extensions.server_extension --sys-prefix

lock: ## the lock files of Python and npm, anew
	./requirements/lock.sh
	npm install --package-lock-only --ignore-scripts
	cd requirements/browser && npm install --package-lock-only --ignore-scripts
	cd scripts/sso && npm install --package-lock-only --ignore-scripts
