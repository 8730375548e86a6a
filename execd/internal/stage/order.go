package stage

import (
	"strings"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/queue"
)

// limit sets the limits of a run, the queue's, or what the job asked for with
// -l where that is less, and what else it asked for there.
func limit(c *conf.Config, o *launch.Order) {
	o.Devices = launch.Devices(c, o.Grant.Debits)
	o.SRT, o.HRT = queue.WallClock(c, o.Queue, o.Request.Hard)
	asked := map[string]launch.Limit{}
	for _, r := range o.Request.Hard {
		a := c.Attribute(r.Name)
		if a == nil {
			continue
		}
		if a.Name == launch.PrivateTmp && a.Kind == conf.KindBool {
			v, _ := conf.ParseValue(a.Kind, r.Value) // checked at submission
			o.PrivateTmp = v.Number != 0
		}
		if a.Name == launch.ScratchLimit && a.Kind == conf.KindMemory {
			v, _ := conf.ParseValue(a.Kind, r.Value)
			if a.Consumable == conf.ConsumableYes { // for each slot
				v.Number *= float64(o.Grant.Slots())
			}
			o.ScratchLimit = uint64(min(max(v.Number, 1), conf.MaxScratch))
		}
		if a.Name != "s_rt" && a.Name != "h_rt" && (strings.HasPrefix(a.Name, "s_") || strings.HasPrefix(a.Name, "h_")) {
			asked[a.Name] = launch.Limit{Limit: conf.Limit{Key: a.Name, Value: r.Value}, ForJob: a.Consumable == conf.ConsumableJob}
		}
	}
	for _, l := range o.Queue.Limits {
		if _, ok := asked[l.Key]; !ok {
			o.Limits = append(o.Limits, launch.Limit{Limit: l})
		}
	}
	for _, l := range asked {
		o.Limits = append(o.Limits, l)
	}
}
