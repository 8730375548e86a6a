package owner

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func places(t *testing.T, getent string) Places {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nbad:x:x:1::/:/bin/sh\nhuge:x:4294967295:1::/:/bin/sh\nann:x:1001:1001:Ann,,:/home/ann:/bin/sh\n",
		"group":  "root:x:0:\nwheel:x:10:bob,ann\nanna:x:11:anna\nann:x:1001:\nwheel2:x:10:ann\nbroken\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := Places{Passwd: dir + "/passwd", Group: dir + "/group", Getent: dir + "/getent", Limit: 20 * time.Second}
	if getent != "" {
		if err := os.WriteFile(p.Getent, []byte("#!/bin/sh\n"+getent), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestFiles(t *testing.T) {
	u, err := places(t, "").Lookup("ann")
	if err != nil || u.UID != 1001 || u.GID != 1001 || u.Home != "/home/ann" || u.Shell != "/bin/sh" || !slices.Equal(u.Groups, []int{10, 1001}) {
		t.Errorf("Lookup(ann) = %+v, %v", u, err)
	}
	for _, name := range []string{"nobody-here", "bad", "huge", "", "-x", "a:b", "ann\nroot"} {
		if u, err := places(t, "").Lookup(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("Lookup(%q) = %+v, %v; want ErrUnknown", name, u, err)
		}
	}
}

func TestShell(t *testing.T) {
	p := places(t, "echo 'eve:*:2002:2003::/net/eve:/bin/ksh'")
	for name, want := range map[string]string{"ann": "/bin/sh", "eve": "", "bad": ""} {
		if got := p.Shell(name); got != want {
			t.Errorf("Shell(%s) = %q; want %q", name, got, want)
		}
	}
}

func TestGetent(t *testing.T) {
	u, err := places(t, `case $1 in
passwd) echo "$2:*:2002:2003::/net/$2:/bin/sh" ;;
initgroups) echo "$2   2003 77 5" ;;
esac`).Lookup("eve")
	if err != nil || u.UID != 2002 || u.GID != 2003 || u.Home != "/net/eve" || !slices.Equal(u.Groups, []int{5, 77, 2003}) {
		t.Errorf("Lookup(eve) = %+v, %v", u, err)
	}
	if _, err := places(t, "exit 2").Lookup("eve"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown to getent: %v; want ErrUnknown", err)
	}
}

func TestGetentHangs(t *testing.T) {
	p := places(t, "exec sleep 1000")
	p.Limit = 50 * time.Millisecond
	if _, err := p.Lookup("eve"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a getent that hangs: %v", err)
	}
}
