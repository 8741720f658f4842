-- SPDX-License-Identifier: Apache-2.0
-- Dissects what Weir's muxes and hosts say to each other in GUE: bpf/abi/shared/gue.h is the original.
--
--   wireshark -X lua_script:deploy/wireshark/weir_gue.lua
-- or copy it into the folder of plugins: Help, About, Folders, Personal Lua Plugins.

local gue = Proto("weir_gue", "Weir's Generic UDP Encapsulation")

local steps = {
	[0] = "none: deliver",
	[1] = "ask: deliver if the connection is known, else hand it to the other backend",
	[2] = "chained: deliver if the connection is known, else hand it back",
	[3] = "final: deliver",
	[4] = "home: a subflow's SYN, to who may know its token",
	[5] = "next home: the first one does not know it",
	[6] = "holder: deliver, the host has the connection",
}
local kinds = {
	[0] = "packet",
	[1] = "fragment: the ports are its datagram's",
	[2] = "relay: between muxes, a fragment for the one that keeps its datagram",
	[3] = "steered: between hosts, a switch brought it to another one than serves it",
	[4] = "token: the other backend has the connection; the ports are its token",
	[5] = "joined: the other backend has the subflow",
}

local f = {
	variant = ProtoField.uint8("weir_gue.variant", "Variant", base.DEC, nil, 0xc0),
	control = ProtoField.bool("weir_gue.control", "Control message", 8, nil, 0x20),
	hlen = ProtoField.uint8("weir_gue.hlen", "Header length in words behind the first", base.DEC, nil, 0x1f),
	protocol = ProtoField.uint8("weir_gue.protocol", "Protocol inside", base.DEC, { [4] = "IPv4", [41] = "IPv6" }),
	flags = ProtoField.uint16("weir_gue.flags", "Flags", base.HEX),
	version = ProtoField.uint8("weir_gue.version", "Version of Weir's part"),
	step = ProtoField.uint8("weir_gue.step", "Step", base.DEC, steps),
	kind = ProtoField.uint8("weir_gue.kind", "Kind", base.DEC, kinds),
	source_port = ProtoField.uint16("weir_gue.source_port", "Source port of the datagram"),
	destination_port = ProtoField.uint16("weir_gue.destination_port", "Destination port of the datagram"),
	other4 = ProtoField.ipv4("weir_gue.other", "Tunnel of the other backend"),
	other6 = ProtoField.ipv6("weir_gue.other6", "Tunnel of the other backend"),
}
gue.fields = f

local e = {
	short = ProtoExpert.new("weir_gue.short", "The header is longer than the packet", expert.group.MALFORMED, expert.severity.ERROR),
	unknown = ProtoExpert.new("weir_gue.unknown", "Private data that is not Weir's", expert.group.UNDECODED, expert.severity.NOTE),
}
gue.experts = e

local ipv4, ipv6, data = Dissector.get("ip"), Dissector.get("ipv6"), Dissector.get("data")

-- What stands behind the first word: nothing, or struct gue_weir and the tunnel of another backend.
local function weir(buffer, pinfo, tree)
	local words = buffer:len() / 4
	if words < 2 or buffer(0, 1):uint() ~= 1 then
		tree:add_proto_expert_info(e.unknown)
		return
	end
	tree:add(f.version, buffer(0, 1))
	tree:add(f.step, buffer(1, 1))
	tree:add(f.kind, buffer(2, 1))
	if buffer(2, 1):uint() ~= 0 then
		tree:add(f.source_port, buffer(4, 2))
		tree:add(f.destination_port, buffer(6, 2))
	end
	local step = buffer(1, 1):uint()
	if words == 3 then
		tree:add(f.other4, buffer(8, 4))
	elseif words == 6 then
		tree:add(f.other6, buffer(8, 16))
	end
	if step ~= 0 then
		pinfo.cols.info:append(" [" .. (steps[step] or "step " .. step):match("^[^:]*") .. "]")
	end
end

function gue.dissector(buffer, pinfo, tree)
	if buffer:len() < 4 or buffer(0, 1):bitfield(0, 2) ~= 0 then
		return 0 -- variant 1 has no header of its own
	end
	local length = 4 + 4 * buffer(0, 1):bitfield(3, 5)
	local header = tree:add(gue, buffer(0, math.min(length, buffer:len())))
	header:add(f.variant, buffer(0, 1))
	header:add(f.control, buffer(0, 1))
	header:add(f.hlen, buffer(0, 1))
	header:add(f.protocol, buffer(1, 1))
	header:add(f.flags, buffer(2, 2))
	if length > buffer:len() then
		header:add_proto_expert_info(e.short)
		return buffer:len()
	end

	-- The packet inside names the columns; what we say comes behind.
	local inside = buffer(length):tvb()
	local protocol = buffer(1, 1):uint()
	local by = ({ [4] = ipv4, [41] = ipv6 })[protocol] or data
	if inside:len() > 0 then
		by:call(inside, pinfo, tree)
	end
	if length > 4 then
		weir(buffer(4, length - 4), pinfo, header)
	end
	return buffer:len()
end

DissectorTable.get("udp.port"):add(6080, gue)
