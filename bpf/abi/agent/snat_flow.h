/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/*
 * A workload's own connection to a remote, translated to a port of its VIP. The key of snat_flows
 * is struct session_key: the connection as the workload sees it, with the remote as the client. Of
 * ICMP echo the identifier is the workload's port, and the remote's is 0.
 */

/* What has been seen of one side; bits of events. Each is set once, by any CPU. */
enum snat_event {
	SNAT_SPOKE = 0x1, /* a packet that is no reset */
	SNAT_ACKED = 0x2, /* a segment that is no SYN, or a packet that is no segment */
	SNAT_FIN = 0x4, /* the remote's: that the workload has acknowledged */
	SNAT_RESET = 0x8, /* the remote's has the right number, and the remote was silent since */
	SNAT_REMOTE_RESET = 0x10, /* of the flow: maybe forged, user space asks the workload */
	SNAT_REMOTE_FIN = 0x20, /* of the flow: maybe forged, remote_fin is its number */
};

/* queued: SNAT_OPEN, or the number of packets that were handed to user space to wait for a port. */
enum snat_flow_state {
	SNAT_OPEN = 0x80000000,
};
ABI_ENUM(snat_flow_state);

/* A flow, by its key on the workload's side: its translation, and its TCP state. */
struct snat_flow {
	struct address vip; /* as is vip_port: not set while the flow waits for a port */
	__u64 last_seen; /* CLOCK_MONOTONIC in ns, up to 134 ms late; of the workload's packets */
	__u32 queued;
	__u32 workload; /* number of the workload: struct snat_workload */
	__u32 ifindex; /* where its packets come from; 0: native */
	enum snat_event events; /* bits of it, of the workload */
	__be16 vip_port;
	__u8 direct; /* 1: a row of fastpath says where the workload's packets go */
	__u8 borrowed; /* 1: the port is that of the mapping, which is a row without client */
	__u32 workload_seq; /* the workload's sequence number, up to 134 ms late */
	__u32 remote_next; /* its acknowledgement number, up to 134 ms late */
	__u32 remote_fin; /* what acknowledges the remote's FIN, if SNAT_REMOTE_FIN */
};

/*
 * By the network's side of it. Unique for each five-tuple that the network sees: this table
 * decides. With a mapping that does not depend on the endpoint, a row without remote and remote
 * port is the mapping itself, and one without remote port says that the workload has sent to that
 * address.
 */
struct snat_port_key {
	struct address vip;
	struct address remote;
	__be16 port;
	__be16 remote_port;
	__u8 protocol;
	__u8 pad[3];
};

struct snat_port {
	struct address dip;
	__u64 last_seen; /* of the remote's packets */
	__u32 workload;
	enum snat_event events; /* bits of it, of the remote */
	__be16 dip_port;
	__u8 pad[6];
};

_Static_assert(sizeof(struct snat_flow) == 56, "snat_flow");
_Static_assert(sizeof(struct snat_port_key) == 40, "snat_port_key");
_Static_assert(sizeof(struct snat_port) == 40, "snat_port");
