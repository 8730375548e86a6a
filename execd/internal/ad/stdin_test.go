package ad

import (
	"testing"

	"paddock/classad"
)

// REQ-HOOK-26, REQ-HOOK-32: the job, a line of five hyphens, the slot; of either
// alone that alone, and never a secret but where it is asked for.
func TestStdin(t *testing.T) {
	job, err := classad.ParseOld("Cmd = \"/bin/a\\\"b\"\nClaimId = \"x\"\nA = 1 + 2\n")
	if err != nil {
		t.Fatal(err)
	}
	slot := classad.New(
		classad.Attr{Name: "Name", Expr: classad.String("slot1@h").Expr()}, classad.Attr{Name: "ClaimId", Expr: classad.String("secret").Expr()},
	)
	const jobText, slotText = "Cmd = \"/bin/a\\\"b\"\nA = 1 + 2\n", "Name = \"slot1@h\"\n"
	for _, tt := range []struct {
		name      string
		got, want string
	}{
		{"both", string(Stdin(job, slot)), jobText + "-----\n" + slotText},
		{"job", string(Stdin(job, nil)), jobText},
		{"slot", string(Stdin(nil, slot)), slotText},
		{"none", string(Stdin(nil, nil)), ""},
		{"secret", string(SecretStdin(job, slot)), jobText + "-----\n" + slotText + "ClaimId = \"secret\"\n"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, tt.got, tt.want)
		}
	}
}
