/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who may send what to a tunnel of this host. admit() alone decides it, by the outer source, the
 * step and what is inside; nothing is answered, noted or delivered before.
 *
 *               IP-in-IP              GUE, step NONE or ASK   GUE, step CHAINED or FINAL
 *   mux         everything            everything              nothing
 *   peer        nothing               nothing                 packets of the endpoint of both
 *   far end     its own connection    nothing                 nothing
 *   anybody     nothing               nothing                 nothing
 *
 * Outside of it is what carries no packet: control messages of Fastpath, which are sealed.
 */
#pragma once

#include "agent/fastpath.h"
#include "agent/icmp.h"
#include "agent/chain.h"

/* To an endpoint, or an answer to a workload's own connection: decides by the rule, which it finds.
 */
static __always_inline enum content content_find(struct rx_ctx *a)
{
	if (protocol_is_icmp(a->inner.protocol))
		return a->inner.destination_port ? CONTENT_ECHO : CONTENT_ERROR;
	a->key.vip = a->inner.destination;
	a->key.tunnel = a->outer.destination;
	a->key.port = a->inner.destination_port;
	a->key.protocol = a->inner.protocol;
	a->key.pad = 0;
	return rule_find(&a->key, &a->rule) ? CONTENT_ENDPOINT : CONTENT_ANSWER;
}

/* The connection of the packet, as its workload sees it. False: there is none. */
static __always_inline bool admit_connection(const struct rx_ctx *a, struct session_key *key)
{
	struct snat_port_key port_key = {
		.vip = a->inner.destination,
		.remote = a->inner.source,
		.port = a->inner.destination_port,
		.remote_port = a->inner.source_port,
		.protocol = a->inner.protocol,
	};
	const struct snat_port *port;

	key->client = a->inner.source;
	key->client_port = a->inner.source_port;
	key->protocol = a->inner.protocol;
	switch (a->content) {
	case CONTENT_ENDPOINT:
		key->dip = a->rule.dip;
		key->dip_port = a->rule.port;
		return true;
	case CONTENT_ANSWER:
		port = settings.snat ? bpf_map_lookup_elem(&snat_ports, &port_key) : NULL;
		if (!port)
			return false;
		key->dip = port->dip;
		key->dip_port = port->dip_port;
		return true;
	case CONTENT_ECHO:
	case CONTENT_ERROR:
	case CONTENT_REFUSED:
		return false;
	}
	return false;
}

/* Past the muxes comes only what belongs to a connection that has left them, from its far end. */
static __always_inline enum verdict admit_past_muxes(struct rx_ctx *a)
{
	struct session_key key = {};

	if (a->tunnel.entropy || !admit_connection(a, &key))
		return VERDICT_DROP_NOT_A_MUX;
	a->past_muxes = true;
	return fastpath_admit(a, &key);
}

/* Backends of one endpoint hand on its packets to each other, and nothing else. */
static __always_inline enum verdict admit_from_peer(const struct rx_ctx *a)
{
	return a->content == CONTENT_ENDPOINT && chain_is_from_peer(a) ? VERDICT_NONE
								       : VERDICT_DROP_NOT_A_PEER;
}

/* May the outer source say what the packet says? */
static __noinline enum verdict admit(struct rx_ctx *a)
{
	a->past_muxes = false;
	switch (a->tunnel.step) {
	case GUE_CHAIN_NONE:
	case GUE_CHAIN_QUERY:
		return address_is_mux(&a->outer.source) ? VERDICT_NONE : admit_past_muxes(a);
	case GUE_CHAIN_FORWARDED:
	case GUE_CHAIN_FINAL:
		return admit_from_peer(a);
	}
	return VERDICT_DROP_GUE_UNKNOWN;
}
