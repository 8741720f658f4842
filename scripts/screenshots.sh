#!/usr/bin/env bash
# Takes the pictures of the web page in docs/images: of a lab with traffic, by chromium. As root.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH=$PWD/bin:$PATH
lab() { weir lab "$@"; }
jobs=()
finish() {
	for job in "${jobs[@]}"; do kill "$job" 2>/dev/null || true; done
	lab down --name pictures >/dev/null
}
trap finish EXIT

lab up --name pictures --muxes 3 --workloads 2 >/dev/null
on() { lab exec --name pictures "$@"; }
on manager weir apply -f examples/web.yaml -f examples/shop.yaml --wait
for to in 203.0.113.60 203.0.113.10; do
	on client1 curl --silent --output /dev/null --rate 100/s --max-time 5 "http://$to/?[1-9000]" &
	jobs+=($!)
done
on manager weir ui --open=false >out/ui-address &
jobs+=($!)
for _ in $(seq 50); do
	[ -s out/ui-address ] && break
	sleep 0.2
done
mkdir -p docs/images out
WEIR_PROXY=$(<out/ui-address) WEIR_PICTURES=$PWD/docs/images on manager env --chdir "$PWD/web" node_modules/.bin/playwright test pictures.spec.ts --output "$PWD/out/pictures"
rm -rf out/pictures out/ui-address
