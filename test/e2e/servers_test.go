package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weirlb/weir/internal/lab/netlab"
)

const (
	nginxPort     = 80
	iperfPort     = 5201
	iperfWorkload = "host1-w1"
)

// startServers starts what stands behind the VIPs beside the lab's own echo.
func startServers(lab *netlab.Lab) error {
	for name := range shop {
		node, err := lab.Node(name)
		if err != nil {
			return err
		}
		if err := startNginx(lab, node); err != nil {
			return err
		}
	}
	_, err := lab.Start(iperfWorkload, "iperf3", "--server", "--port", strconv.Itoa(iperfPort))
	return err
}

// nginxDir holds an nginx's files: root, access.log.
func nginxDir(lab *netlab.Lab, workload string) string {
	return filepath.Join(lab.Dir(), "nginx", workload)
}

const nginxConfig = `
user root;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr warn;
worker_processes 1;
events { worker_connections 8192; }
http {
	log_format clients '$remote_addr $status $request_uri';
	access_log %[1]s/access.log clients;
	client_body_temp_path %[1]s/temp;
	client_max_body_size 0;
	sendfile on;
	keepalive_requests 1000000;
	server {
		listen %[2]s:%[4]d backlog=4096;
		listen [%[3]s]:%[4]d backlog=4096;
		root %[1]s/root;
		add_header X-Backend %[5]s always;
		add_header X-Client $remote_addr always;
		location = / { return 200 "served\n"; }
		location /upload/ { dav_methods PUT; create_full_put_path on; }
	}
}
`

func startNginx(lab *netlab.Lab, n netlab.Node) error {
	dir := nginxDir(lab, n.Name)
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf(nginxConfig, dir, n.IPv4, n.IPv6, nginxPort, n.Name)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	_, err := lab.Start(n.Name, "nginx", "-c", file, "-e", "stderr")
	return err
}
