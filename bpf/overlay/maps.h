/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of the overlay programs. User space writes all but counters; sizes
 * are set at load. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/overlay/client.h"
#include "abi/overlay/network.h"
#include "abi/overlay/verdict.h"
#include "abi/shared/fbt.h"
#include "net/answer.h"
#include "net/packet.h"
#include "net/skb/decap.h"
#include "net/skb/bypass_header.h"
#include "net/skb/fbt.h"
#include "net/skb/fragment.h"
#include "net/skb/quote.h"
#include "overlay/sessions.h"

/* (VNI, address) to the attachment's number: what of VXLAN is ours. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network_address);
	__type(value, __u32);
} network_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct overlay_attachment);
} attachments SEC(".maps");

/* VIP and port behind which tunnel address: the rule's number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct overlay_rule_key);
	__type(value, __u32);
} rules SEC(".maps");

/* Rules by number. One keeps its number while a session has it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct overlay_rule);
} rule_rows SEC(".maps");

/* Where VXLAN for our VIPs may come from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct overlay_vtep);
} vteps SEC(".maps");

/* Hosts by number, which FBTs and sessions name. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct overlay_host);
} hosts SEC(".maps");

/* By attachment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct overlay_traffic);
} traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICT_COUNT);
	__type(key, enum verdict);
	__type(value, struct counter);
} verdicts SEC(".maps");

/* Clients' interfaces, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct overlay_port);
} ports SEC(".maps");

/* Clients' addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network_address);
	__type(value, struct overlay_port_address);
} port_addresses SEC(".maps");

/* The programs write; user space deletes. Full: the connection that was used longest ago goes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct bypass_flow_key);
	__type(value, struct bypass_flow);
} bypass_flows SEC(".maps");

/* By attachment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct bypass_traffic);
} bypass_traffic SEC(".maps");

/* This host's keys. User space writes. */
struct fbt_keys fbt_keys SEC(".data.fbt_keys");

/* The one of these that makes answers which go by muxes. */
struct fbt_key answer_key SEC(".data.answer_key");

/* Where a packet goes in VXLAN. */
struct vxlan_path {
	struct address from;
	struct address to;
	__u8 to_mac[6]; /* of the inner frame */
	__u8 from_mac[6];
	__u32 vni;
	bool route; /* tells a mux that this host has an agent */
	__u32 answer_to; /* number of the client's host, to which a mux sends it on; 0: not so */
	__u32 answer_key;
	__u8 ticket; /* the byte behind the VNI: the inner frame has a ticket; 0: it has none */
};

/* What is known of a packet between two steps. */
struct overlay_ctx {
	struct packet outer;
	struct packet inner; /* of a server's packet: that */
	struct tunnel tunnel;
	struct overlay_key key;
	struct overlay_attachment attachment;
	struct overlay_rule rule;
	struct overlay_session row; /* as it was read */
	struct fbt_head head; /* TCP, and the FBT if there is one */
	struct bypass_header header; /* length 0: there is none */
	struct packet quoted; /* what an ICMP error is about */
	bool error; /* the inner packet is one */
	struct vxlan_path path;
	enum parsed parsed; /* the inner packet */
	__u8 client_mac[6]; /* the inner frame's source */
	__u8 inner_to[6]; /* and its destination */
	__u8 ticket; /* the byte behind the VNI, if the inner frame has a ticket; else 0 */
	bool asks; /* the client's host asks for a ticket */
	__u32 epoch; /* that its nonce is of */
	struct bypass_flow_key flow; /* of a datagram */
	bool from_mux;
	bool via;
	__u32 mss; /* of a client whose handshake is repeated to the server; 0: it is not */
	__u32 shift; /* of the session's sequence numbers */
	__u32 host; /* of the client, by the FBT or the outer source */
	__u32 number; /* of the row */
	__u32 counters; /* of its backend */
	__u32 tag;
	__u32 ifindex;
	__u32 room; /* for a packet in VXLAN on its path */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct overlay_ctx);
} overlay_ctxs SEC(".maps");
