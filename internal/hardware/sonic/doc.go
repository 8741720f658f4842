// Package sonic programs a switch that runs SONiC, through its databases: a VIP is a route of a VNET whose endpoints are the
// hosts' tunnels, by VXLAN.
//
//	driver ─ one script: HSET _VNET_ROUTE_TUNNEL_TABLE:<vnet>:<vip>/32, SADD ..._KEY_SET, PUBLISH ..._CHANNEL@0 ─▶ APPL_DB
//	APPL_DB ─▶ orchestration agent ─▶ ASIC
//	driver ◀─ VNET_ROUTE_TUNNEL_TABLE|<vnet>|<vip>/32: state, active_endpoints ─ STATE_DB
//
// The script is what SONiC's own ProducerStateTable does; a plain HSET would wake nobody. CONFIG_DB is only read: what is
// written there may be saved, and come back after a reboot. The VNET (scope default) and its VXLAN tunnel are the operator's
// to set up, and every route in that VNET is ours. The agent sorts the members of a group, gives all the same weight, and
// says nothing of what it refuses: an entry that is not in STATE_DB after a while counts as refused, and the one before is
// written again.
//
// It has been tested against SONiC's protocol and a stand-in of its agent, not against an ASIC.
package sonic
