package packages

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stage makes a room like furnish, but with systemd as its first process, in namespaces of every kind: process ids,
// network, control groups. Of the machine's units only what the journal needs is left. $1 is the folder at /mnt, $3 the root
// that the room begins with.
const stage = `
set -e
floor=$(mktemp -d)
mount --make-rprivate /
mount -t tmpfs tmpfs "$floor"
mkdir "$floor/up" "$floor/work" "$floor/room" "$floor/groups"
mount -t cgroup2 cgroup2 "$floor/groups"
group="$floor/groups$(sed -n 's/^0:://p' /proc/self/cgroup)/weir-packages-$$"
mkdir "$group"
trap 'find "$group" -depth -type d -exec rmdir {} +' EXIT
mount -t overlay overlay -o "lowerdir=$3,upperdir=$floor/up,workdir=$floor/work" "$floor/room"
(
	echo "$BASHPID" >"$group/cgroup.procs"
	exec setpriv --pdeathsig KILL unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child bash -ec "$2" room "$floor/room" "$1"
) || true
`

const boot = `
cd "$1"
rm -rf usr/lib/systemd/system/*.wants etc/systemd/system/*.wants etc/systemd/system/*.requires var/lib/weir* etc/weir
: >etc/fstab
cat >etc/systemd/system/stage.target <<END
[Unit]
Requires=basic.target
Wants=systemd-journald.service
After=systemd-journald.service
END
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t bpf bpf sys/fs/bpf
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
	touch dev/$node
	mount --bind /dev/$node dev/$node
done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount --bind "$2" mnt
ip link set lo up
mkdir old
# A process in a chroot may make no user namespace, as PrivateUsers= does: the room becomes the root.
pivot_root . old
exec chroot . /bin/sh -c 'umount -l /old && exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=stage.target'
`

// bootRoom makes a room in which systemd runs, with a folder of this machine at /mnt. It has no network but loopback.
// The process id is that of its systemd. WEIR_ROOT names the root of another machine to begin with.
func bootRoom(t *testing.T, folder string) (r *room, pid int) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "bash", "-c", stage, "stage", folder, boot, cmp.Or(os.Getenv("WEIR_ROOT"), "/"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	ended, err := startTied(cmd)
	if err != nil {
		t.Fatal(err)
	}
	first := 0
	t.Cleanup(func() {
		if first != 0 {
			_ = syscall.Kill(first, syscall.SIGKILL) // with it all others of its namespace
		} else {
			_ = cmd.Process.Kill()
		}
		<-ended
	})
	for end := time.Now().Add(started); ; time.Sleep(20 * time.Millisecond) {
		if first = systemdBelow(cmd.Process.Pid); first != 0 {
			break
		}
		if len(ended) > 0 || time.Now().After(end) {
			t.Fatalf("systemd does not begin: %s", printed.String())
		}
	}
	r = newShell(t, exec.Command("nsenter", "--all", "--root", "--wd", "--target", strconv.Itoa(first), "bash"))
	r.soon("systemctl is-system-running --wait; systemctl is-active stage.target")
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := r.try("journalctl --no-pager -o cat -u 'weir-*' -n 60")
			t.Logf("the journal says:\n%s", log)
		}
	})
	return r, first
}

// startTied starts a command from a thread that lives as long as it. The kernel sends Pdeathsig when the thread ends that
// was the parent, not the process; and threads end that were in another network namespace.
func startTied(cmd *exec.Cmd) (ended <-chan error, err error) {
	started, end := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
	}()
	return end, <-started
}

// systemdBelow finds the systemd that a process has brought forth; 0: there is none yet.
func systemdBelow(pid int) int {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			id, _ := strconv.Atoi(child)
			if name, _ := os.ReadFile("/proc/" + child + "/comm"); strings.TrimSpace(string(name)) == "systemd" {
				return id
			}
			if below := systemdBelow(id); below != 0 {
				return below
			}
		}
	}
	return 0
}

// soon runs a command until it succeeds.
func (r *room) soon(command string) string {
	r.t.Helper()
	for end := time.Now().Add(started); ; time.Sleep(100 * time.Millisecond) {
		printed, status := r.try(command)
		if status == "0" {
			return printed
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s\n%s\nended with %s", command, printed, status)
		}
	}
}

// The units as they are, under systemd: with all that they take from the programs, these load their data planes, adopt
// them after a crash, a restart and an upgrade, and let go when they are stopped.
func TestUnitsUnderSystemd(t *testing.T) {
	r, _ := bootRoom(t, versions(t))
	r.run("ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip link set eth1 up && ip address add 10.99.0.2/24 dev eth0")
	r.run("dpkg -i /mnt/1.0.0/*.deb")
	r.run(`
echo 'insecure: true' >/etc/weir/manager.yaml
printf '%s\n' 'name: mux1' 'manager: http://127.0.0.1:7400' 'interface: eth0' 'as: 65010' 'peer: [{address: 10.99.0.1, as: 65000}]' >/etc/weir/mux.yaml
printf '%s\n' 'name: host1' 'manager: http://127.0.0.1:7400' 'uplink: eth0' >/etc/weir/agent.yaml`)
	r.run("systemctl enable --now weir-manager weir-mux weir-agent") // returns when all have said that they are ready
	for _, program := range []string{"weir-manager", "weir-mux", "weir-agent"} {
		pid := r.run("systemctl show -P MainPID " + program)
		status := r.run("cat /proc/" + pid + "/status")
		holds(t, status, "Seccomp:\t2", "NoNewPrivs:\t1")
	}
	program := func() string { return r.run("ip -j link show eth0 | grep -o '\"prog\":{[^}]*}'") }
	before := program()
	adopted := func(unit string, times int) {
		t.Helper()
		r.soon("systemctl is-active " + unit + " && test $(journalctl --no-pager -o cat -u " + unit + " | grep -c 'adopted=true') -ge " + strconv.Itoa(times))
	}
	r.run("systemctl kill --signal=KILL weir-agent weir-mux weir-manager")
	adopted("weir-agent", 1)
	r.soon("systemctl is-active weir-mux weir-manager")
	r.run("systemctl restart weir-mux weir-agent")
	adopted("weir-agent", 2)
	r.run("dpkg -i /mnt/1.0.1/*.deb")
	adopted("weir-agent", 3)
	r.run("systemctl is-active weir-mux weir-manager")
	if after := program(); after != before {
		t.Errorf("eth0 has the program %s, had %s", after, before)
	}
	r.run("systemctl stop weir-mux")
	if out, status := r.try("ip -j link show eth0 | grep -o '\"prog\":{[^}]*}'"); status == "0" {
		t.Errorf("the mux is stopped, and eth0 has the program %s", out)
	}
}
