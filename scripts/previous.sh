#!/usr/bin/env bash
# scripts/previous.sh COMMIT prints the folder with the programs of that commit, and builds them there first if they
# are not there yet. It needs the whole history.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
	echo "previous: commit $1 is not in this clone: fetch the whole history (git fetch --unshallow)" >&2
	exit 1
}
folder=$PWD/out/previous/$commit
if [ ! -e "$folder/bin/weir" ]; then
	rm -rf "$folder"
	mkdir -p "$folder/source" "$folder/build"
	git archive "$commit" | tar -x -C "$folder/source"
	(
		cd "$folder/source"
		go generate ./internal/datapath/...
		CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/weirlb/weir/internal/daemon.Version=previous" \
			-o "$folder/build/" ./cmd/weir ./cmd/weir-manager ./cmd/weir-mux ./cmd/weir-agent
	) >&2
	rm -rf "$folder/source"
	mv "$folder/build" "$folder/bin"
fi
echo "$folder/bin"
