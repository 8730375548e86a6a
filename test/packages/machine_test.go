// Package packages has the packages built, and installed, upgraded and removed in a
// machine of their own with Debian's systemd, booted by the script vm of test/vm. Nobody
// imports it.
package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/test/harness"
)

// inGuest is the variable that says which part of TestGuest is to run.
const inGuest = "PADDOCK_VM_GUEST"

// Where things are in the machine.
const (
	own       = "/paddock" // what the test brings, and nothing else
	firstDeb  = own + "/first.deb"
	secondDeb = own + "/second.deb"
	plugin    = own + "/plugin"
	gate      = own + "/gate"  // a named pipe
	stops     = own + "/stops" // for how long the machine was up when it was to stop
)

// machineScript is the machine's first process. It puts what the test brings into the
// disk's root file system, and becomes systemd there.
const machineScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
dmesg -n 1 # or the kernel writes in the middle of our lines
for m in /modules/*.ko; do insmod $m; done
mkdir -p /disk
mount -t ext4 /dev/vda /disk || { echo "vm: cannot mount the disk"; poweroff -f; }
cp -af /machine/. /disk/
umount /proc /sys
mount -o move /dev /disk/dev
exec switch_root /disk /sbin/init
`

// pluginScript is a file transfer plugin that takes files to gate://PATH as soon as
// somebody opens the gate.
const pluginScript = `#!/bin/sh
case $1 in
-classad) printf 'PluginType = "FileTransfer"\nSupportedMethods = "gate"\n' ;;
*) cat ` + gate + ` && cp "$1" "${2#gate://}" ;;
esac
`

// testUnit runs a part of TestGuest when the machine is up.
const testUnit = `[Unit]
After=multi-user.target

[Service]
Type=oneshot
Environment=` + inGuest + `=%[1]s HOME=/root
ExecStart=/bin/sh -c '` + own + `/packages.test -test.v -test.run "^TestGuest$" -test.timeout 1200s; echo "vm: %[1]s exit $?"; cut -d. -f1 /proc/uptime >` + stops + `; systemctl --no-block %[2]s'
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
`

// stoppedScript is run by systemd at last, when it has waited for all processes. One that
// does not end is killed after 90 s.
const stoppedScript = `#!/bin/sh
took=$(($(cut -d. -f1 /proc/uptime) - $(cat ` + stops + `)))
echo "vm: it stopped within $took s" >/dev/ttyS0
[ $took -lt 20 ]
echo "vm: stop exit $?" >/dev/ttyS0
`

// TestMachine boots the machine twice and passes on what is found in it. Its clock goes by
// the instructions that it executes, so that times that are promised can be looked at.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	machine := filepath.Join(dir, "root", "machine")
	write(t, filepath.Join(dir, "root", "init"), machineScript, 0o755)
	write(t, filepath.Join(machine, plugin), pluginScript, 0o755)
	write(t, filepath.Join(machine, "usr/lib/systemd/system-shutdown/stopped"), stoppedScript, 0o755)
	for path, version := range map[string]string{firstDeb: first, secondDeb: next} {
		if out, err := exec.Command("cp", packed(t, version).deb, filepath.Join(machine, path)).CombinedOutput(); err != nil {
			t.Fatalf("cannot copy the package: %v\n%s", err, out)
		}
	}
	if err := harness.BuildTest(filepath.Join(machine, own, "packages.test"), "."); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(machine, "etc/systemd/system/packages-test.service")
	wanted := filepath.Join(machine, "etc/systemd/system/multi-user.target.wants/packages-test.service")
	if err := os.MkdirAll(filepath.Dir(wanted), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../packages-test.service", wanted); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	debian := exec.Command(filepath.Join(harness.Root(), "test", "vm", "vm"), "debian")
	debian.Stderr = os.Stderr
	image, err := debian.Output()
	if err != nil {
		t.Fatalf("cannot make a Debian: %v", err)
	}
	if out, err := exec.Command("cp", "--sparse=always", strings.TrimSpace(string(image)), disk).CombinedOutput(); err != nil {
		t.Fatalf("cannot copy the disk: %v\n%s", err, out)
	}
	for _, boot := range []struct{ part, then string }{{"fresh", "reboot"}, {"again", "poweroff"}} {
		write(t, unit, fmt.Sprintf(testUnit, boot.part, boot.then), 0o644)
		harness.RunMachine(t, filepath.Join(dir, "root"), disk, []string{boot.part + " ", "stop "}, "VM_MEM=1024", "VM_TIMEOUT=1300", "VM_CLOCK=instructions")
		// The packages are on the disk by now.
		for _, path := range []string{firstDeb, secondDeb} {
			if err := os.RemoveAll(filepath.Join(machine, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
