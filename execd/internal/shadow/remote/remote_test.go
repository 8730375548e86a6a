package remote

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

func good() Claim {
	return Claim{Format: 1, ID: "<node7>#1764#12#secret", Host: "node7", User: "anna", Slot: "3", Queue: "all.q", Lease: 2400}
}

// A claim is on disk as a whole or not at all, whatever write fails.
func TestRecordFaults(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{root}
	log := slog.New(slog.DiscardHandler)
	failed := 0
	for n := 1; ; n++ {
		r, at := good(), 0
		restore := atomicfile.Inject(func(atomicfile.Op, string) error {
			if at++; at == n {
				return syscall.ENOSPC
			}
			return nil
		})
		err := s.Put(&r)
		restore()
		list, loadErr := s.Load(log)
		if loadErr != nil {
			t.Fatal(loadErr)
		}
		if len(list) > 0 && *list[0] != r || err == nil && len(list) != 1 || len(list) > 1 {
			t.Errorf("after %v at step %d: %+v", err, n, list)
		}
		if err := s.Remove(&r); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		if failed++; !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("step %d: %v", n, err)
		}
	}
	if failed < 3 {
		t.Errorf("%d steps can fail; want those of a durable write", failed)
	}
	if list, err := s.Load(log); err != nil || len(list) != 0 {
		t.Errorf("after all: %+v, %v", list, err)
	}
}

// What is no claim is set aside; what a later execd has written, or cannot be read, is
// never taken for none.
func TestRecordLoad(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{root}
	r := good()
	if err := s.Put(&r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.path("node7.1764.12"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"node7.1764.13": string(text), "node8.1764.12": string(text), "x": "{", "node7.1.1": `{"format":1,"id":"<h>#1#1#s","host":"node7","lease":0,"queue":"q"}`} {
		if err := os.WriteFile(s.path(name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Load(slog.New(slog.DiscardHandler))
	if err != nil || len(list) != 1 || *list[0] != r {
		t.Errorf("%+v, %v", list, err)
	}
	if names, err := root.ListRemote(); err != nil || len(names) != 1 {
		t.Errorf("left in remote: %q, %v", names, err)
	}
	if err := os.WriteFile(s.path("node7.1.2"), []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(slog.New(slog.DiscardHandler)); !errors.Is(err, spool.ErrFormat) {
		t.Errorf("of a later format: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	r := good()
	text, err := json.Marshal(&r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("node7.1764.12", text)
	f.Add("../x.1.2", []byte(`{"format":1,"id":"<h>#1#2#s","host":"../x","lease":10,"queue":"q"}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		r, err := parse(name, data)
		if err != nil {
			return
		}
		if again, err := file(r); err != nil || again != name {
			t.Errorf("%q is %q, %v", name, again, err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := parse(name, text); err != nil || *same != *r {
			t.Errorf("%+v and %+v, %v", r, same, err)
		}
	})
}
