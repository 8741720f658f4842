#!/usr/bin/env bash
# Runs schemathesis against a manager of its own: requests made from its OpenAPI document, good and bad, the same at
# each run. Needs python3 with venv, and PyPI the first time. Where that is missing it fails; with --may-skip it says
# that it was skipped, and why. Usage: scripts/schemathesis.sh [--may-skip] [examples per call]
set -euo pipefail
cd "$(dirname "$0")/.."

may_skip=
if [ "${1:-}" = --may-skip ]; then
	may_skip=1
	shift
fi
examples=${1:-20}
venv=out/schemathesis

install() {
	rm -rf "$venv"
	python3 -m venv "$venv" &&
		"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 20 -r scripts/requirements-api.txt &&
		cp scripts/requirements-api.txt "$venv/installed"
}

if ! [ -x "$venv/bin/st" ] || ! cmp -s scripts/requirements-api.txt "$venv/installed"; then
	if ! install; then
		if [ -z "$may_skip" ]; then
			echo "api-test: can't install schemathesis, see above: it takes python3 with venv, and PyPI" >&2
			exit 1
		fi
		echo "=== SKIPPED: the API is not tested by schemathesis: it can't be installed, see above" >&2
		exit 0
	fi
fi

mkdir -p out
exec 9>out/test.lock # which scripts/test.sh takes before it runs a test once more, alone
flock -s 9
data=$(mktemp -d)
bin/weir-manager --insecure --listen 127.0.0.1:0 --metrics-listen "" --data-dir "$data" ${WEIR_MANAGER_FLAGS:-} 2>"$data/log" &
manager=$!
trap 'kill $manager 2>/dev/null; wait $manager 2>/dev/null; rm -rf "$data"' EXIT
for _ in $(seq 600); do # other tests run beside it
	address=$(sed -n 's/.*msg="manager runs" listen=\([^ ]*\).*/\1/p' "$data/log")
	[ -n "$address" ] && break
	sleep 0.1
done
[ -n "$address" ] || { cat "$data/log" >&2; exit 1; }

# Watches never end: the tests of the manager read them. Alone it takes four minutes.
timeout 3600 "$venv/bin/st" --config-file scripts/schemathesis.toml run "http://$address/openapi.json" --url "http://$address" \
	--exclude-path-regex ':watch$' --max-examples "$examples" --phases examples,coverage,fuzzing \
	--generation-deterministic --request-timeout 60 --no-color
kill -0 $manager || { echo "the manager is gone" >&2; cat "$data/log" >&2; exit 1; }
if grep -q 'panic' "$data/log"; then
	cat "$data/log" >&2
	exit 1
fi
