#!/usr/bin/env bash
# Maximises linear programs with HiGHS: see tools/highs/maximise.py. Needs python3 with venv, and PyPI the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=out/highs
requirements=tools/highs/requirements.txt
if ! cmp -s "$requirements" "$venv/installed"; then
	rm -rf "$venv"
	if ! { python3 -m venv "$venv" &&
		"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 20 -r "$requirements"; } >&2; then
		echo "highs: can't install highspy, see above: it takes python3 with venv, and PyPI" >&2
		exit 1
	fi
	cp "$requirements" "$venv/installed"
fi
exec "$venv/bin/python" tools/highs/maximise.py
