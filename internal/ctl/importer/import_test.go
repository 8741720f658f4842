package importer

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/manifest"
)

func written(t *testing.T, r *result) (manifests, notes string) {
	t.Helper()
	var out, told bytes.Buffer
	if err := r.write(&out, &told, map[netip.Addr]string{netip.MustParseAddr("10.0.0.11"): "web1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Parse("imported", out.Bytes()); err != nil {
		t.Errorf("it can't be applied: %v\n%s", err, &out)
	}
	return out.String(), told.String()
}

// As keepalived's own samples have it: sample.conf and the manual page.
const keepalived = `! Configuration File for keepalived
global_defs {
   router_id LVS_DEVEL
}
vrrp_instance VI_1 {
    state MASTER
    virtual_ipaddress { 203.0.113.10 }
}
virtual_server 203.0.113.10 443 {
    delay_loop 6
    lb_algo wlc
    lb_kind DR
    persistence_timeout 50
    protocol TCP
    sorry_server 10.0.0.99 443
    real_server 10.0.0.11 443 {
        weight 3
        HTTP_GET {
            url {
              path "/healthz"
              status_code 200
            }
            connect_timeout 3
            retry 2
        }
    }
    real_server 10.0.0.12 8443
    {
        HTTP_GET { url { path /healthz
 } connect_timeout 3
 retry 2 }
    }
}
virtual_server 203.0.113.10 53 {
    protocol UDP # resolvers
    real_server 10.0.0.11 { }
}
virtual_server fwmark 1 { }
`

func TestKeepalived(t *testing.T) {
	r, err := parseKeepalived(keepalived)
	if err != nil {
		t.Fatal(err)
	}
	got, notes := written(t, r)
	for _, want := range []string{
		"name: vip-203-0-113-10\n", "address: 203.0.113.10\n", "port: 443\n", "host: web1\n", "weight: 3\n", "host: 10.0.0.12\n", "port: 8443\n",
		"affinity: client\n", "path: /healthz\n", "fall: 3\n", "interval: 6s\n", "timeout: 3s\n", "protocol: UDP\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "kind: VIP"); n != 1 {
		t.Errorf("%d VIPs:\n%s", n, got)
	}
	for _, want := range []string{"lb_algo wlc", "sorry_server", "mark or group", "VI_1", "status_code", "persistence"} {
		if !strings.Contains(notes, strings.Replace(want, "VI_1", "vrrp_instance", 1)) {
			t.Errorf("%q is not told:\n%s", want, notes)
		}
	}
}

const saved = `-A -t 203.0.113.10:80 -s wrr -p 300
-a -t 203.0.113.10:80 -r 10.0.0.11:80 -g -w 2
-a -t 203.0.113.10:80 -r 10.0.0.12:8080 -m -w 0
-A -u [2001:db8::10]:53 -s sh
-a -u [2001:db8::10]:53 -r [2001:db8:1::11]:53 -i -w 1
-A -f 7 -s rr
`

func TestIPVS(t *testing.T) {
	r, err := parseIPVS(saved)
	if err != nil {
		t.Fatal(err)
	}
	got, notes := written(t, r)
	for _, want := range []string{
		"vip-203-0-113-10", "vip-2001-0db8-0000-0000-0000-0000-0000-0010", "weight: 2\n", "weight: 0\n", "port: 8080\n", "affinity: client\n",
		"address: 2001:db8:1::11\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for _, want := range []string{"line 4: scheduler sh", "line 6: only services of TCP and UDP", "line 1: persistence"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not told:\n%s", want, notes)
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"virtual_server 203.0.113.10 443 {":     "line 1: a { is not closed",
		"}":                                     "line 1: a } has no {",
		"{":                                     "line 1: a { has nothing before it",
		"virtual_server web 443 { }":            `"web" is no address`,
		"virtual_server 203.0.113.10 https { }": `"https" is no port`,
		"virtual_server 203.0.113.10 1 {\n real_server {\n }\n}":                 "must be an address and a port",
		"virtual_server 203.0.113.10 1 {\nreal_server 10.0.0.1 1 { weight x\n}}": "is no weight",
		"a \"b":                              "line 1: a quote is not closed",
		strings.Repeat("a {\n", mostDepth+1): "blocks are more than 16 deep",
	} {
		if _, err := parseKeepalived(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"-A -t web:http -s rr":                             "ipvsadm-save -n",
		"-a -t 203.0.113.10:80 -r 10.0.0.1:80":             "there is no service",
		"-A -t 203.0.113.10:80\n-A -t 203.0.113.10:80":     "line 2: TCP 203.0.113.10:80 is there twice",
		"-X -t 203.0.113.10:80":                            "is no line of ipvsadm-save",
		"-A -t 1.2.3.4:80\n-a -t 1.2.3.4:80 -r 1.2.3.5 -w": "is no weight",
	} {
		if _, err := parseIPVS(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// Whatever is read, what is written can be read as manifests, or an error says why not.
func FuzzImport(f *testing.F) {
	f.Add(keepalived)
	f.Add(saved)
	f.Add("virtual_server ::1 0 {\nreal_server ::2 0 { TCP_CHECK { connect_port 99999 } }\n}")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (*result, error){parseKeepalived, parseIPVS} {
			r, err := parse(text)
			if err != nil {
				continue
			}
			var out, notes bytes.Buffer
			if err := r.write(&out, &notes, nil); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
