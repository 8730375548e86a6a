// Package vm runs the project's programs in a machine of its own, whose kernel
// has control groups of version 2 and nothing else, and whose power may fail.
// The machine is booted by the script vm; what is run in it is this test's
// binary, see guest_test.go and load_test.go. Nobody imports it.
package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"paddock/test/harness"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hogWord {
		hog()
	}
	if len(os.Args) > 1 && os.Args[1] == loadWord {
		load()
	}
	if len(os.Args) > 1 && os.Args[1] == queueWord {
		loadQueue()
	}
	if len(os.Args) > 2 && os.Args[1] == aliceWord {
		become(os.Args[2:])
	}
	os.Exit(m.Run())
}

// inGuest is the variable that the machine's first process sets.
const inGuest = "PADDOCK_VM_GUEST"

// script is the machine's first process.
const script = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ ` + inGuest + `=1
mkdir -p /srv /var/tmp /home/alice
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
dmesg -n 1 # or the kernel writes in the middle of our lines
for d in /tmp /srv; do mount -t tmpfs tmpfs $d; done
chmod 1777 /tmp
chown alice /home/alice
hostname guest
ifconfig lo 127.0.0.1 up
for m in /modules/*.ko; do insmod $m; done
mkdir -p ` + quotas + ` && mount -t ext4 -o prjquota /dev/vda ` + quotas + ` || echo "vm: cannot mount the disk"
cd /tmp
TMPDIR=` + quotas + ` /paddock/cgroup.test -test.v -test.run '^TestKernel' -test.skip Bomb -test.timeout 200s
echo "vm: cgroup exit $?"
PADDOCK_QUOTA_DIR=` + quotas + ` /paddock/quota.test -test.v -test.timeout 100s
echo "vm: quota exit $?"
/paddock/vm.test -test.v -test.run '^TestGuest$' -test.timeout 900s
echo "vm: exit $?"
poweroff -f
`

// getent is what the name services are asked with.
const getent = `#!/bin/sh
while IFS= read -r line; do
  case $line in "$2":*|*:x:"$2":*) echo "$line"; exit 0 ;; esac
done <"/etc/$1"
exit 2
`

const (
	passwd = "root:x:0:0:root:/:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
	group  = "root:x:0:\nalice:x:1000:\n"
)

// TestMachine boots the machine and passes on what is found in it.
func TestMachine(t *testing.T) {
	if os.Getenv("PADDOCK_VM") != "1" {
		t.Skip("boots a machine under qemu, and installs that: needs PADDOCK_VM=1 (make vm)")
	}
	root := t.TempDir()
	for _, dir := range []string{"paddock", "bin", "etc"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := harness.Build(filepath.Join(root, "paddock")); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{
		"vm.test": ".", "cgroup.test": "paddock/execd/internal/cgroup", "quota.test": "paddock/execd/internal/quota",
	} {
		if err := harness.BuildTest(filepath.Join(root, "paddock", name), of); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"init": script, "bin/getent": getent, "etc/passwd": passwd, "etc/group": group,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	disk := filepath.Join(t.TempDir(), "disk")
	mkfs := exec.Command("mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota,root_owner=0:0", disk, "64M")
	mkfs.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := mkfs.CombinedOutput(); err != nil {
		t.Fatalf("cannot make a disk: %v\n%s", err, out)
	}
	harness.RunMachine(t, root, disk, []string{"", "cgroup ", "quota "}, "VM_MEM=1024", "VM_TIMEOUT=1300")
}
