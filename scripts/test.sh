#!/usr/bin/env bash
# Runs go test with the given arguments. If something fails, it says at the end what and where once
# more, without the logs of daemons in between.
set -euo pipefail

out=$(mktemp)
trap 'rm -f "$out"' EXIT
go test -vet=off "$@" 2>&1 | tee "$out" && exit
status=$?
echo "=== what failed"
grep -E '^ *--- FAIL|^FAIL|^panic: |^WARNING: DATA RACE|^ +[a-z0-9_]+_test\.go:[0-9]+: ' "$out" || true
exit "$status"
