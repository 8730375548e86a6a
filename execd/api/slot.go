package api

import (
	"encoding/json"
	"strconv"
	"strings"
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

// Size returns how many slots of its queue a slot stands for: a partitionable one for what is
// left of it.
func (s *SlotStatus) Size() int {
	if s.Type == "" {
		return 1
	}
	return int(min(max(s.Cpus, 0), MaxSlots))
}

// Free returns how many of them may be claimed without waiting.
func (s *SlotStatus) Free() int {
	if s.Activity == "Idle" && (s.Holder == "" || s.Holder == "queue") && s.State != "Owner" && s.State != "Drained" {
		return s.Size()
	}
	return 0
}

// IsName reports whether a word of another host may be the name of a queue or a slot.
func IsName(word string) bool {
	return word != "" && len(word) <= 255 && !strings.ContainsFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
