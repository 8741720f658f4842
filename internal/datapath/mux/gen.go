package mux

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type address -type flowhash_key -type verdict -type backend_flag -type endpoint_flag -type shortcut -type shortcut_row -type snat_row -type endpoint_row -type pool_flag -type flow_cell -type look -type member_way -type punt_reason -type connection -type redirect -type source_key -type source_set -type source_name -type syn_counter -type vip_guard -type share_key -type talker -type datagram_set mux ../../../bpf/mux/mux.bpf.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf -I../../../bpf/include
