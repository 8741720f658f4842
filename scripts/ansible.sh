#!/usr/bin/env bash
# Plays the Ansible collection on machines under systemd, with ansible-core of PyPI. As root.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.19.14
venv=$PWD/out/ansible
if [ "$("$venv/bin/pip" show ansible-core 2>/dev/null | sed -n 's/^Version: //p')" != "$version" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 20 "ansible-core==$version" ||
		{ echo "ansible: can't install ansible-core, see above: it takes Python 3.11 or later with venv, and PyPI" >&2; exit 1; }
fi
WEIR_ANSIBLE=$venv/bin/ansible-playbook go test -count=1 -timeout 15m -run TestAnsible ./test/packages
