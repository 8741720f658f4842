#!/usr/bin/env bash
# Makes a site of docs/ in out/site, by MkDocs from PyPI. A link that leads nowhere fails it.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=out/mkdocs
if ! cmp -s scripts/requirements-site.txt "$venv/installed"; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 20 -r scripts/requirements-site.txt ||
		{ echo "site: can't install MkDocs, see above: it takes python3 with venv, and PyPI" >&2; exit 1; }
	cp scripts/requirements-site.txt "$venv/installed"
fi
# Not --quiet: with it MkDocs counts no warnings, and --strict passes.
log=$("$venv/bin/mkdocs" build --strict 2>&1) || { grep -v '^INFO' <<<"$log" >&2; exit 1; }
