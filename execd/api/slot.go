package api

import (
	"encoding/json"
	"strconv"
)

// SlotID names a slot of a host by its numbers: "3", or "1_2" for a slot that
// was carved out of slot 1; empty: none, or any. In JSON the SlotID of a slot
// that was not carved may be a number.
type SlotID string

// UnmarshalJSON reads a text or a number.
func (id *SlotID) UnmarshalJSON(data []byte) error {
	var n int
	if json.Unmarshal(data, &n) == nil {
		*id = ""
		if n != 0 {
			*id = SlotID(strconv.Itoa(n))
		}
		return nil
	}
	return json.Unmarshal(data, (*string)(id))
}
