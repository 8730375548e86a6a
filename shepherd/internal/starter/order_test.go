package starter

import (
	"errors"
	"testing"
)

func TestOrder(t *testing.T) {
	for _, o := range []Order{
		{Name: "a\x00b"}, {User: "\x00"}, {Argv: []string{"x", "\x00"}}, {Env: []string{"A=\x00"}}, {Kind: kinds},
	} {
		if err := o.check(); !errors.Is(err, errBadOrder) {
			t.Errorf("check(%+v) = %v", o, err)
		}
	}
	if err := (&Order{Kind: Prolog, User: "root", Argv: []string{"/bin/x", "", "\n"}, Env: []string{"A=1"}}).check(); err != nil {
		t.Error(err)
	}
}
