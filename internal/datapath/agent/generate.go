package agent

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package agent -type session_event -type fastpath_state -type fastpath_answer -type control_kind -type fastpath_command -type control -type connection -type snat_event -type nat_rule_flag -type peer -type prefix -type snat_workload_flag -type snat_notice -type snat_held -type snat_flow_call -type snat_own_call -type snat_unhold_call -type snat_sweep_call agent ../../../bpf/agent.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -I../../../bpf/include
