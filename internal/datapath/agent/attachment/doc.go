// Package attachment attaches the agent's programs to the uplink and to the interfaces of workloads: links of TCX, which
// are pinned so that programs run on without the process. It writes what the programs must know of interfaces, too.
package attachment
