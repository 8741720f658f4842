#!/usr/bin/env bash
# Lists the packages of internal/ and cmd/ whose tests run with the race detector: they load no eBPF program (nothing that
# they are built from holds what bpf2go wrote), and something that they are built from starts a goroutine. In what only
# computes there is no race to find, and the detector makes it ten times slower.
set -euo pipefail

# Those whose tests put something else in the place of the programs that they are built from.
fakes='internal/agentd/snat'

folders() { xargs -rn1 dirname | sort -u; }
generated=$(git ls-files '*_bpfel.go' | folders)
starts='^[[:space:]]*(defer )?go [A-Za-z]|\.Go\(|\.Parallel\('
concurrent=$(git grep -lE "$starts" -- 'internal/**.go' 'cmd/**.go' ':!*_test.go' | folders)
tests=$(git grep -lE "$starts" -- 'internal/**_test.go' 'cmd/**_test.go' | folders)
go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./internal/... ./cmd/... | awk -v generated="$generated" -v fakes="$fakes" -v concurrent="$concurrent" -v tests="$tests" '
	function fill(set, text,  dirs, i) { split(text, dirs, "\n"); for (i in dirs) set["github.com/weirlb/weir/" dirs[i]] = 1 }
	BEGIN { fill(fake, fakes); fill(loads, generated); fill(starts, concurrent); fill(own, tests) }
	$1 !~ /\.test$/ { next }
	{
		sub(/\.test$/, "", $1)
		found = 0
		race = $1 in own
		for (i = 2; i <= NF; i++) {
			if ($i in loads) found = 1
			if ($i in starts) race = 1
		}
		if (race && (!found || $1 in fake)) print $1
	}'
