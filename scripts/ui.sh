#!/usr/bin/env bash
# Builds the web page, or tests it in a browser: ui.sh build | test [--may-skip]
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian 13's Node is new enough, 12's is not.
offered=$(apt-cache policy nodejs 2>/dev/null | sed -n 's/.*Candidate: \([0-9]*\)\..*/\1/p' || true)
if ! command -v node >/dev/null && [ "$(id -u)" = 0 ] && [ "${offered:-0}" -ge 20 ]; then
	echo "ui: installing nodejs and npm"
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends nodejs npm >/dev/null || echo "ui: apt-get could not install them" >&2
fi
major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/' || true)
if [ "${major:-0}" -lt 20 ]; then
	[ "${2:-}" = --may-skip ] && { echo "ui: skipped, Node 20 or later is not installed"; exit 0; }
	echo "ui: Node 20 or later is not installed: the page needs it to be built and tested, a manager does not" >&2
	exit 1
fi
if [ ! -e web/node_modules/.package-lock.json ] || [ web/package-lock.json -nt web/node_modules/.package-lock.json ]; then
	if ! (cd web && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --silent --no-audit --no-fund); then
		[ "${2:-}" = --may-skip ] && { echo "ui: skipped, npm could not install what the page is built with"; exit 0; }
		exit 1
	fi
	touch web/node_modules/.package-lock.json
fi
case "$1" in
build)
	go tool -modfile=tools/buf/go.mod buf generate --template buf.gen.ui.yaml
	(cd web && npm run --silent check && npm run --silent build)
	go test -count=1 ./internal/webui -run TestDistIsOfItsSources -update >/dev/null
	;;
test)
	WEIR_UI=1 RETRY=1 scripts/test.sh -count=1 -timeout 10m ./test/webui
	cat out/ui/lab.jsonl # what was measured
	;;
esac
