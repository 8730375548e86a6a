package stage

import (
	"paddock/execd/api/accounting"
	"paddock/spool"
)

// fill copies the resource usage of a run into its accounting record.
func fill(rec *accounting.Record, u *spool.Usage) {
	rec.StartTime, rec.EndTime, rec.RuWallclock = u.Start, u.End, u.Wallclock
	rec.RuUTime, rec.RuSTime = u.UTime.Seconds(), u.STime.Seconds()
	rec.CPU = (u.UTime + u.STime).Seconds()
	rec.RuMaxRSS = float64(u.MaxRSS)
	rec.RuIXRSS, rec.RuIDRSS, rec.RuISRSS = u.IXRSS, u.IDRSS, u.ISRSS
	rec.RuMinFlt, rec.RuMajFlt, rec.RuNSwap = u.MinFlt, u.MajFlt, u.NSwap
	rec.RuInBlock, rec.RuOuBlock = float64(u.InBlock), u.OuBlock
	rec.RuMsgSnd, rec.RuMsgRcv, rec.RuNSignals = u.MsgSnd, u.MsgRcv, u.NSignals
	rec.RuNVCSw, rec.RuNIVCSw = u.NVCSw, u.NIVCSw
}
