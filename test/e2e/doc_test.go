// Package e2e runs the real programs in the lab, with real servers and clients. The tests need root,
// the packages that scripts/setup.sh names, and the built programs in WEIR_BIN (or in bin).
//
// Most tests share one lab (see the picture in netlab): three nginx of the weights 1, 2 and 3, an
// echo on every workload, an iperf3, all behind one VIP of each family:
//
//	203.0.113.20, 2001:db8:113::20   TCP 80     nginx   host1-w1, host2-w2, host3-w1: 1:2:3
//	                                 TCP 8080   echo    all workloads
//	                                 UDP 8080   echo    all workloads
//	                                 TCP 5201   iperf3  host1-w1
//	                                 UDP 5201   iperf3  host1-w1
package e2e
