// Package netns makes network namespaces and works inside them: links, addresses, routes, sysctls,
// offloads, functions and processes. For tests and the lab only.
//
// A namespace is entered by one locked thread, which changes nothing but its network namespace and
// dies afterwards. So /sys, /proc and a mounted bpffs look the same inside as outside; ip netns exec
// would hide a bpffs, since it mounts /sys anew.
//
// Namespaces have names (/run/netns/NAME), so that ip netns sees them too.
package netns
