package main

// mplbKeys is Table 1's row of MP_CAPABLE as the paper did it, beside the product.
var mplbKeys = figure{
	name: "mplb-keys", section: "3.1", shows: "keys that the mux chooses for the server: the algorithm of Figure 6 in XDP",
	says: "1.01 Mpps with MP_CAPABLE, 4.07 without, 3.64 of joins",
	differs: "an experiment, not Weir's mux: a program of the algorithm alone, by the kernel's test run. Tokens are by SHA-256 (RFC 8684), keys by " +
		"SipHash; servers are stock kernels that answer SYNs with cookies, in place of patched ones.",
	bench: &bench{name: "keys"},
	rows: []row{
		{name: "keys-tcp-syn", unit: "Mpps", paper: new(4.07), bound: atLeast(3 * 4.07), from: keysMpps("syn")},
		{name: "keys-tcp-mpc", unit: "Mpps", paper: new(1.01), bound: atLeast(1.01), from: keysMpps("capable")},
		{name: "keys-tcp-join", unit: "Mpps", paper: new(3.64), bound: atLeast(3 * 3.64), from: keysMpps("join")},
		{name: "keys-tcp-mpc-to-tcp-syn", unit: "ratio", paper: new(4.03), from: source{path: keysOf("capable"), over: keysOf("syn")}},
		{name: "keys-tcp-join-to-tcp-syn", unit: "ratio", paper: new(1.12), from: source{path: keysOf("join"), over: keysOf("syn")}},
		{name: "keys-adopted", unit: "ratio", bound: atLeast(1), from: source{path: "adopted[synCookies=2].share"}},
		{name: "keys-adopted-without-cookies", unit: "ratio", bound: atMost(0), from: source{path: "adopted[synCookies=1].share"}},
	},
}

func keysOf(class string) string { return "packets[class=" + class + "][flows=1].ns" }

func keysMpps(class string) source { return source{over: keysOf(class), times: 1000} }
