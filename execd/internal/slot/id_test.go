package slot

import (
	"encoding/json"
	"testing"
)

func TestID(t *testing.T) {
	for text, want := range map[string]ID{
		"1": {1, 0}, "12_3": {12, 3}, "slot7": {7, 0}, "slot1_2": {1, 2}, "slot1_2@node.example": {1, 2}, "3@node": {3, 0},
		"": {}, "0": {}, "1_0": {}, "1_": {}, "_1": {}, "01": {}, "1_2_3": {}, "slot": {}, "-1": {}, "+1": {}, "1 ": {}, "slotslot1": {}, "@node": {}, "99999999999999999999": {},
	} {
		id, err := ParseID(text)
		if id != want || (err != nil) != want.IsZero() {
			t.Errorf("%q is %+v, %v; want %+v", text, id, err, want)
		}
	}
	id := ID{4, 2}
	if id.String() != "4_2" || id.Name() != "slot4_2" || id.Parent() != Static(4) || !id.IsDynamic() || id.Parent().IsDynamic() || (ID{}).String() != "" {
		t.Errorf("%+v prints %v, %s", id, id, id.Name())
	}
	var back struct{ A, B ID }
	data, err := json.Marshal(struct{ A, B ID }{A: id})
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || back.A != id || !back.B.IsZero() {
		t.Errorf("%s is read as %+v, %v", data, back, err)
	}
	if err := json.Unmarshal([]byte(`{"A":"x"}`), &back); err == nil {
		t.Error("x is a slot")
	}
}
