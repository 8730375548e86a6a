package conf

import (
	"fmt"
	"strconv"
)

// text is the attribute as a line of the file complexes.
func (a *Attribute) text() string {
	return fmt.Sprintf("%s %s %s %s %s %s %s %s", a.Name, a.Shortcut, a.Kind, a.Relop, a.Requestable, a.Consumable, a.Default,
		strconv.FormatFloat(a.Urgency, 'g', -1, 64))
}
