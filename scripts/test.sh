#!/usr/bin/env bash
# Runs go test with the given arguments. If something fails, it says at the end what and where once
# more, without the logs of daemons in between.
#
# With RETRY=1, tests that failed run once more when nothing else of this script runs: many packages at a time make any
# machine slow, and a test that waits for 20 s may wait in vain. One that passes then is told as flaky, and does not fail
# the run; nor does a package whose process ended by itself, as the embedded etcd has it do. A data race, a panic and what
# does not build always do.
set -euo pipefail

out=$(mktemp)
trap 'rm -f "$out"' EXIT

# failures prints what failed: for each package its name and a regular expression of its tests, none if no test says so.
failures() {
	awk '/^--- FAIL: / { tests = tests (tests ? "|" : "") $3 }
		/^(ok|FAIL)[ \t]+[^ \t]/ { if ($1 == "FAIL") print $2, tests; tests = "" }' "$out"
}

# alone runs what failed once more.
alone() {
	grep -qE '^panic: |^WARNING: DATA RACE|\[(build|setup) failed\]' "$out" && return 1
	flock 9
	while read -r package tests; do
		: "${tests:=.*}"
		echo "=== $package: $tests: once more, alone"
		go test -vet=off "${flags[@]}" -run "^($tests)\$" "$package" || return 1
		flaky+=("$package: $tests")
	done < <(failures)
	printf '=== flaky, passed alone: %s\n' "${flaky[@]}"
}

mkdir -p out
exec 9>out/test.lock
flock -s 9
go test -vet=off "$@" 2>&1 9>&- | tee "$out" && exit
status=$?
echo "=== what failed"
awk '/^WARNING: DATA RACE/ { race = 1 } /^==================/ { race = 0 }
	race || /^ *--- FAIL|^FAIL|^panic: |^ +[a-z0-9_]+_test\.go:[0-9]+: /' "$out"
if [ -n "${RETRY:-}" ]; then
	flags=() flaky=()
	for argument; do [[ $argument == *github.com/* || $argument == ./* ]] || flags+=("$argument"); done
	flock -u 9
	alone && exit
fi
exit "$status"
