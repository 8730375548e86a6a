package claim

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// CLAIM-ID: an id has a public part and a secret of 32 bytes, and can only be
// printed without it.
func TestIDKeepsItsSecret(t *testing.T) {
	id := newID("node", 1700000000, 7)
	whole := id.Reveal()
	public, secret := whole[:strings.LastIndex(whole, "#")+1], whole[strings.LastIndex(whole, "#")+1:]
	if public != "<node>#1700000000#7#" || len(secret) != 64 {
		t.Fatalf("public %q, %d digits of a secret; want <node>#1700000000#7# and 64", public, len(secret))
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("claim", "id", id)
	encoded, err := json.Marshal(struct{ ID ID }{id})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		id.String(), fmt.Sprint(id), fmt.Sprintf("%v %+v %#v %s %q %x %d", id, id, id, id, id, id, id), fmt.Sprint(&id),
		fmt.Sprintf("%+v", struct{ ID ID }{id}), log.String(), string(encoded),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%q has the secret", text)
		}
	}
	if got, want := id.String(), public+"..."; got != want {
		t.Errorf("String is %q; want %q", got, want)
	}
	back, err := ParseID(whole)
	if err != nil || !back.Equal(id) || back.String() != id.String() {
		t.Errorf("ParseID returned %v, %v; want the same id", back, err)
	}
}

func TestIDsAreUnequal(t *testing.T) {
	a := newID("node", 1, 1)
	whole := a.Reveal()
	for _, text := range []string{
		newID("node", 1, 1).Reveal(),                // another secret
		strings.Replace(whole, "#1#1#", "#1#2#", 1), // another claim
		whole[:len(whole)-1],
		whole + "0",
	} {
		b, err := ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		if a.Equal(b) {
			t.Errorf("%q opens %q", text, whole)
		}
	}
	if (ID{}).Equal(ID{}) {
		t.Error("no id opens what has none")
	}
}

// FuzzParseID: nothing from outside panics, and what is read is written again.
func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "#", "a#b", "<n>#1#2#" + strings.Repeat("0", 64), "<n>#1#2#[k=v]00", "\x00#\xff", strings.Repeat("#", 2000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseID(text)
		if err == nil && id.Reveal() != text {
			t.Errorf("%q was read as %q", text, id.Reveal())
		}
		_, _, _ = id.sequence()
	})
}
